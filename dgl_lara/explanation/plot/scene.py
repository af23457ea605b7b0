"""What a picture of one explanation shows, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dgl_lara.explanation.plot.layout import arcs, forces, free_positions, rings

HOP_LABEL_SIZE = np.array([0.35, 0.12])  # half of what "2 hops" takes
NODE_SIZE = 0.55  # half of what a node with its rim takes
FULL_GRAPH_NODES = 150  # graphs up to this size are drawn in full, since pieces of a molecule mean little
FULLY_MARKED_NODES = 30  # nodes up to which each one is marked
MARKED_NODES = 15  # of a larger crowd
CROWDED_EDGES = 60  # edges from which on those that connect no node with the target are faint


@dataclass(frozen=True, eq=False)
class Scene:
    """The drawn nodes and edges. Either nodes or edges are players."""

    index: np.ndarray  # (drawn,) positions among all nodes
    names: list[str]  # of nodes in words
    marks: list[str]  # what is written on nodes
    score: np.ndarray | None  # (drawn,) None if edges are players
    hop: np.ndarray | None  # (drawn,) None for a graph
    truth: np.ndarray | None  # (drawn,) in the true motif
    other_class: np.ndarray | None  # (drawn,) the model predicts another class than the explained one
    edges: np.ndarray  # (num_edges, 2) rows of `index`. An edge in both directions appears once
    one_way: np.ndarray  # (num_edges,) the edge runs from the first to the second node only
    edge_player: np.ndarray | None  # (num_edges,) which player an edge is, -1 for none. None if nodes are players
    edge_score: np.ndarray | None  # (num_edges,) 0 for edges that are not players
    position: np.ndarray  # (drawn, 2)
    molecule: bool
    max_score: float  # largest |score| besides the target's, which would make all others pale
    rest: str  # one line about the players that are not drawn, or ""
    node_types: list[str] | None = None  # (drawn,) of nodes, if there are several
    class_name: str = ""  # of the explained class

    @cached_property
    def hop_lines(self) -> list[np.ndarray]:
        """One line for each hop (none for a graph)."""
        return [] if self.hop is None else arcs(self.position, self.hop)

    @cached_property
    def hop_labels(self) -> list[tuple[np.ndarray, str]]:
        """Position and text of the label of each hop line."""
        if self.hop is None:
            return []
        positions = free_positions(self.position, self.hop, self.hop_lines, self.edges)
        return [(position, f"{hop} hop{'s' * (hop > 1)}") for hop, position in enumerate(positions, start=1)]

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lower left and upper right corner of everything that is drawn."""
        nodes = [self.position.min(axis=0) - NODE_SIZE, self.position.max(axis=0) + NODE_SIZE]
        labels = [position + corner for position, _ in self.hop_labels for corner in (-HOP_LABEL_SIZE, HOP_LABEL_SIZE)]
        points = np.concatenate([nodes, *self.hop_lines, *([labels] if labels else [])])
        return points.min(axis=0), points.max(axis=0)

    @property
    def target(self) -> int | None:
        """Row of the target, or of the first end of a link."""
        return None if self.hop is None else int(self.targets[0])

    @cached_property
    def targets(self) -> np.ndarray:
        """Rows of the nodes that the target consists of."""
        return np.zeros(0, dtype=int) if self.hop is None else np.flatnonzero(self.hop == 0)

    @cached_property
    def strength(self) -> np.ndarray:
        """(drawn,) |score| as a share of the largest, at most 1. Nodes that are not players have 0."""
        return np.zeros(len(self.index)) if self.score is None else np.minimum(np.abs(self.score) / self.max_score, 1)

    @cached_property
    def is_faint(self) -> np.ndarray:
        """(num_edges,) whether the edge is on no strongest path to the target, among many edges."""
        if self.hop is None or self.score is None or len(self.edges) < CROWDED_EDGES:
            return np.zeros(len(self.edges), dtype=bool)
        inner = _inner_neighbours(np.abs(self.score), self.hop, self.edges)
        first, second = self.edges.T
        return (inner[first] != second) & (inner[second] != first)


def shapes_of(scene: Scene) -> dict[str, int]:
    """Return the number of the shape of each node type. The target's type is 0, a circle."""
    names = scene.node_types or []
    own = [names[row] for row in scene.targets if names]
    return {name: number for number, name in enumerate(dict.fromkeys([*own, *names]))}


def compose(
    names: list[str],  # of nodes in words
    labels: list[str] | None,  # of nodes, written on them instead of the names
    score: np.ndarray,  # of nodes, or of players if edges are players
    hop: np.ndarray | None,  # distance of nodes to the target, None for a graph
    truth: np.ndarray | None,  # nodes in the true motif
    edges: np.ndarray,  # (num_edges, 2) nodes, each direction by itself
    max_nodes: int,
    named: Sequence[int] = (),  # nodes (or edge players) that the sentence names or removes
    other_class: np.ndarray | None = None,  # nodes with another predicted class
    edge_player: np.ndarray | None = None,  # player that each edge is, -1 for none
    node_types: list[str] | None = None,  # of nodes, if there are several
    class_name: str = "",  # of the explained class
    molecule: bool = False,  # nodes are atoms
) -> Scene:
    """Choose the nodes to draw and place them."""
    strength, named_nodes = _importance_of_nodes(score, named, edges, edge_player, len(names))
    chosen = _choose(strength, hop, edges, max_nodes, named_nodes)
    row = np.full(len(names), -1)
    row[chosen] = np.arange(len(chosen))
    inside = row[edges]
    drawn = (inside >= 0).all(axis=1) & (inside[:, 0] != inside[:, 1])
    pairs, one_way, player = _pair_up(inside[drawn], None if edge_player is None else edge_player[drawn])
    if edge_player is None:
        rest, edge_score = np.delete(score, chosen), None
    else:
        rest = np.delete(score, player[player >= 0])
        edge_score = np.append(score, 0.0)[player]  # the last one is for -1
    own = None if labels is None else [labels[node] for node in chosen]
    position = forces(len(chosen), pairs, own if molecule else None) if hop is None else rings(hop[chosen], pairs)
    return Scene(
        index=chosen,
        names=[names[node] for node in chosen],
        marks=_marks(names, own, chosen, strength, hop, named_nodes, molecule),
        score=score[chosen] if edge_player is None else None,
        hop=None if hop is None else hop[chosen],
        truth=None if truth is None else truth[chosen],
        other_class=None if other_class is None else other_class[chosen],
        edges=pairs,
        one_way=one_way,
        edge_player=None if edge_player is None else player,
        edge_score=edge_score,
        position=position,
        molecule=molecule,
        max_score=_max_score(score, hop if edge_player is None else None),
        rest=_rest_in_words(rest, score),
        node_types=None if node_types is None else [node_types[node] for node in chosen],
        class_name=class_name,
    )


def _marks(
    names: list[str],
    own: list[str] | None,
    chosen: np.ndarray,
    strength: np.ndarray,
    hop: np.ndarray | None,
    named: set[int],
    molecule: bool,
) -> list[str]:
    """Return what is written on nodes. Atoms have symbols (named ones names), and crowds few marks."""
    marks = [names[node] for node in chosen] if own is None else own
    if molecule:
        return [names[node] if node in named else mark for node, mark in zip(chosen, marks, strict=True)]
    if len(chosen) <= FULLY_MARKED_NODES:
        return marks
    marked = {*chosen[np.argsort(-strength[chosen], kind="stable")[:MARKED_NODES]].tolist(), *named}
    marked |= set() if hop is None else set(np.flatnonzero(hop == 0).tolist())
    return [mark if node in marked else "" for node, mark in zip(chosen, marks, strict=True)]


def _importance_of_nodes(
    score: np.ndarray, named: Sequence[int], edges: np.ndarray, edge_player: np.ndarray | None, num_nodes: int
) -> tuple[np.ndarray, set[int]]:
    """Return |score| of each node, or of the strongest edge at it, and the named nodes, or the ends of named edges."""
    if edge_player is None:
        return np.abs(score), set(named)
    is_player, strength = edge_player >= 0, np.zeros(num_nodes)
    for end in edges[is_player].T:
        np.maximum.at(strength, end, np.abs(score[edge_player[is_player]]))
    return strength, set(edges[np.isin(edge_player, list(named))].flatten().tolist())


def _max_score(score: np.ndarray, hop: np.ndarray | None) -> float:
    others = score if hop is None else score[hop > 0]
    return float(np.abs(others).max(initial=0)) or float(np.abs(score).max(initial=0)) or 1.0


def _choose(
    strength: np.ndarray, hop: np.ndarray | None, edges: np.ndarray, max_nodes: int, named: set[int]
) -> np.ndarray:
    """Return at most `max_nodes` named and strong nodes, rising, each with its strongest path to the target."""
    is_named = np.isin(np.arange(len(strength)), list(named))
    order = np.lexsort((-strength, ~is_named))
    if hop is None:
        return np.sort(order[: max(max_nodes, FULL_GRAPH_NODES)])
    if len(strength) <= max_nodes:
        return np.arange(len(strength))
    inner = _inner_neighbours(strength, hop, edges)
    chosen = set(np.flatnonzero(hop == 0).tolist())
    for node in order.tolist():
        path = []
        while node >= 0 and node not in chosen:
            path.append(node)
            node = int(inner[node])
        if len(chosen) + len(path) <= max_nodes:
            chosen.update(path)
    return np.array(sorted(chosen))


def _inner_neighbours(strength: np.ndarray, hop: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the strongest neighbour of each node that is one hop nearer to the target (-1 for the target)."""
    inner = np.full(len(strength), -1)
    both = np.concatenate([edges, edges[:, ::-1]])
    nearer = both[hop[both[:, 1]] == hop[both[:, 0]] - 1]
    nearer = nearer[np.argsort(strength[nearer[:, 1]], kind="stable")]
    inner[nearer[:, 0]] = nearer[:, 1]  # the last one written is the strongest
    return inner


def _pair_up(edges: np.ndarray, players: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each pair of connected nodes once (each direction if they are two players), whether it is one-way, and
    the player that it is."""
    if not len(edges):
        return np.zeros((0, 2), dtype=int), np.zeros(0, dtype=bool), np.zeros(0, dtype=int)
    numbers = [-1] * len(edges) if players is None else players.tolist()
    player_of = dict(zip(map(tuple, edges.tolist()), numbers, strict=True))

    def alone(edge: tuple[int, ...]) -> bool:
        back = player_of.get(edge[::-1])
        return back is None or back != player_of[edge]

    pairs = sorted(edge for edge in player_of if edge[0] < edge[1] or alone(edge))
    return np.array(pairs), np.array(list(map(alone, pairs))), np.array([player_of[pair] for pair in pairs])


def _rest_in_words(rest: np.ndarray, score: np.ndarray) -> str:
    """Return one line about the players that are not drawn, or ""."""
    if not len(rest):
        return ""
    share = np.abs(rest).sum() / max(np.abs(score).sum(), 1e-12)
    part = f"{share:.0%}" if share >= 0.01 else "under 1%"
    span = f"{rest.min():+.3g} to {rest.max():+.3g}"
    return f"{len(rest):,} further players not drawn: scores {span}, {part} of the sum of all |scores|"


@dataclass(frozen=True, eq=False)
class Bars:
    """The strongest players as bars, best first. For players without a place in the graph."""

    index: np.ndarray  # (drawn,) positions among all players
    names: list[str]
    details: list[str]  # the value of each player
    score: np.ndarray  # (drawn,)
    max_score: float
    rest: str  # one line about the players that are not drawn, or ""


def compose_bars(names: list[str], details: list[str], score: np.ndarray, max_bars: int) -> Bars:
    """Return the players with the largest |scores|."""
    chosen = np.argsort(-np.abs(score), kind="stable")[:max_bars]
    chosen = chosen[np.argsort(-score[chosen], kind="stable")]
    return Bars(
        index=chosen,
        names=[names[player] for player in chosen],
        details=[details[player] for player in chosen],
        score=score[chosen],
        max_score=float(np.abs(score).max(initial=0)) or 1.0,
        rest=_rest_in_words(np.delete(score, chosen), score),
    )

"""What a picture of one explanation shows: which players, where, and what is said of the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dgl_lara.explanation.plot.layout import arcs, forces, free_places, rings

ELEMENTS = {
    "H", "Li", "B", "C", "N", "O", "F", "Na", "Mg", "Al", "Si", "P", "S", "Cl", "K", "Ca", "Fe", "Cu", "Zn", "Se", "Br",
    "Sn", "I",
}  # fmt: skip


WORDS = np.array([0.35, 0.12])  # room that "2 hops" takes, to each side
ROUND = 0.55  # of the room that a node with its rim takes
WHOLE = 150  # nodes up to which a graph is drawn whole: pieces of a molecule would not show what it is
MARKED_UP_TO = 30  # nodes; in a larger crowd only the strongest are marked
MARKED = 15  # of a crowd
CROWD = 60  # edges, from which on those that link nobody to the target step back


def is_molecule(labels: Iterable[str]) -> bool:
    return all(label in ELEMENTS for label in labels)


@dataclass(frozen=True, eq=False)
class Scene:
    """The drawn nodes and edges, of which one kind plays. Row 0.. of every array of nodes is the same node as in
    `place`."""

    place: np.ndarray  # (drawn,) among all nodes that were given
    names: list[str]  # what a node is called in words
    marks: list[str]  # what is written on it
    score: np.ndarray | None  # (drawn,); None where edges play
    hop: np.ndarray | None  # None for a graph
    truth: np.ndarray | None  # (drawn,) bool: in the true motif
    other_class: np.ndarray | None  # (drawn,) bool: f predicts another class for this node than the explained one
    edges: np.ndarray  # (num_edges, 2) rows of `place`; an edge in both directions stands once
    one_way: np.ndarray  # (num_edges,) bool: the edge runs from the first to the second only
    edge_place: np.ndarray | None  # (num_edges,) which player an edge is, -1: none; None where nodes play
    edge_score: np.ndarray | None  # (num_edges,) 0 for those that are no player
    position: np.ndarray  # (drawn, 2)
    molecule: bool
    largest: float  # |score| of the strongest player besides the target, whose own would drown all others
    rest: str  # one line on the players that are not drawn; empty if all are
    kinds: list[str] | None = None  # (drawn,) the type of each node, where there are several
    other_than: str = ""  # the explained class by its name, which those of another class are not of

    @cached_property
    def hop_lines(self) -> list[np.ndarray]:
        """One a hop; none for a graph."""
        return [] if self.hop is None else arcs(self.position, self.hop)

    @cached_property
    def hop_names(self) -> list[tuple[np.ndarray, str]]:
        """Of each of these lines: where there is room to say how far it is, and the words."""
        if self.hop is None:
            return []
        places = free_places(self.position, self.hop, self.hop_lines, self.edges)
        return [(place, f"{hop} hop{'s' * (hop > 1)}") for hop, place in enumerate(places, start=1)]

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lower left and the upper right corner of everything that is drawn."""
        nodes = [self.position.min(axis=0) - ROUND, self.position.max(axis=0) + ROUND]
        words = [place + corner for place, _ in self.hop_names for corner in (-WORDS, WORDS)]
        points = np.concatenate([nodes, *self.hop_lines, *([words] if words else [])])
        return points.min(axis=0), points.max(axis=0)

    @property
    def target(self) -> int | None:
        """Its row."""
        return None if self.hop is None else int(np.flatnonzero(self.hop == 0)[0])

    @cached_property
    def targets(self) -> np.ndarray:
        """The rows of all nodes that the target is: both ends of a link."""
        return np.zeros(0, dtype=int) if self.hop is None else np.flatnonzero(self.hop == 0)

    @cached_property
    def strength(self) -> np.ndarray:
        """(drawn,) |score| of each node as a share of the largest, at most 1; nodes that do not play have none."""
        return np.zeros(len(self.place)) if self.score is None else np.minimum(np.abs(self.score) / self.largest, 1)

    @cached_property
    def steps_back(self) -> np.ndarray:
        """(num_edges,) bool: among many edges, one that is no node's strongest way to the target."""
        if self.hop is None or self.score is None or len(self.edges) < CROWD:
            return np.zeros(len(self.edges), dtype=bool)
        inner = _ways(np.abs(self.score), self.hop, self.edges)
        first, second = self.edges.T
        return (inner[first] != second) & (inner[second] != first)


def shapes_of(scene: Scene) -> dict[str, int]:
    """Which shape the nodes of each type have; the target's type comes first and is round."""
    own = [] if scene.kinds is None else [scene.kinds[row] for row in scene.targets]
    return {kind: number for number, kind in enumerate(dict.fromkeys([*own, *(scene.kinds or [])]))}


def compose(
    names: list[str],
    labels: list[str] | None,
    score: np.ndarray,
    hop: np.ndarray | None,
    truth: np.ndarray | None,
    edges: np.ndarray,
    most: int,
    told: Sequence[int] = (),
    other_class: np.ndarray | None = None,
    edge_player: np.ndarray | None = None,
    kinds: list[str] | None = None,
    other_than: str = "",
) -> Scene:
    """The `most` nodes that count most, for or against, with those that link them to the target.

    Args:
        names: Of each node.
        labels: Likewise; what is written on them.
        score: Of each player: of each node, or of what `edge_player` names.
        hop: Of each node; None for a graph.
        truth: Of each node: it is in the true motif.
        edges: (num_edges, 2) places of nodes.
        most: How many nodes are drawn.
        told: Players that a sentence calls by name or takes away. They are drawn in any case; of many atoms of one
            kind only these are numbered.
        other_class: Of each node: f predicts another class for it.
        edge_player: Of each edge, where edges play: which player it is, -1 for none.
        kinds: Of each node: its type, where there are several.
        other_than: What the class is called that `other_class` is about.
    """
    strength, told_nodes = np.abs(score), set(told)
    if edge_player is not None:
        strength = _at_nodes(score, edges, edge_player, len(names))
        told_nodes = set(edges[np.isin(edge_player, list(told))].flatten().tolist())
    chosen = _choose(strength, hop, edges, most, told_nodes)
    row = np.full(len(names), -1)
    row[chosen] = np.arange(len(chosen))
    inside = row[edges]
    drawn = (inside >= 0).all(axis=1) & (inside[:, 0] != inside[:, 1])
    pairs, one_way, edge_place = _pair_up(inside[drawn], None if edge_player is None else edge_player[drawn])
    molecule = hop is None and labels is not None and is_molecule(labels)
    own = None if labels is None else [labels[place] for place in chosen]
    called = [names[place] for place in chosen]
    marks = list(called if own is None else own)
    if molecule:
        marks = [called[row] if place in told_nodes else marks[row] for row, place in enumerate(chosen)]
    elif len(chosen) > MARKED_UP_TO:
        strongest = {*chosen[np.argsort(-strength[chosen], kind="stable")[:MARKED]].tolist(), *told_nodes}
        strongest |= set() if hop is None else set(np.flatnonzero(hop == 0).tolist())
        marks = [mark if place in strongest else "" for place, mark in zip(chosen, marks, strict=True)]
    if edge_player is None:
        left, edge_score = np.delete(score, chosen), None
    else:
        left = np.delete(score, edge_place[edge_place >= 0])
        edge_score = np.where(edge_place >= 0, score[edge_place], 0.0) if len(score) else np.zeros(len(pairs))
    return Scene(
        place=chosen,
        names=called,
        marks=marks,
        score=score[chosen] if edge_player is None else None,
        hop=None if hop is None else hop[chosen],
        truth=None if truth is None else truth[chosen],
        other_class=None if other_class is None else other_class[chosen],
        edges=pairs,
        one_way=one_way,
        edge_place=None if edge_player is None else edge_place,
        edge_score=edge_score,
        position=rings(hop[chosen], pairs)
        if hop is not None
        else forces(len(chosen), pairs, own if molecule else None),
        molecule=molecule,
        largest=_largest(score, hop if edge_player is None else None),
        rest=left_out(left, score),
        kinds=None if kinds is None else [kinds[place] for place in chosen],
        other_than=other_than,
    )


def _at_nodes(score: np.ndarray, edges: np.ndarray, edge_player: np.ndarray, nodes: int) -> np.ndarray:
    """(nodes,) the |score| of the strongest edge at each."""
    plays, strength = edge_player >= 0, np.zeros(nodes)
    for end in edges[plays].T:
        np.maximum.at(strength, end, np.abs(score[edge_player[plays]]))
    return strength


def _largest(score: np.ndarray, hop: np.ndarray | None) -> float:
    others = score if hop is None else score[hop > 0]
    return float(np.abs(others).max(initial=0)) or float(np.abs(score).max(initial=0)) or 1.0


def _choose(strength: np.ndarray, hop: np.ndarray | None, edges: np.ndarray, most: int, told: set[int]) -> np.ndarray:
    """Rising places of at most `most` nodes, those told of and the strongest; each brings the strongest way to the
    target along."""
    first = np.isin(np.arange(len(strength)), list(told))
    order = np.lexsort((-strength, ~first))
    if hop is None:
        return np.sort(order[: max(most, WHOLE)])
    if len(strength) <= most:
        return np.arange(len(strength))
    inner = _ways(strength, hop, edges)
    chosen = set(np.flatnonzero(hop == 0).tolist())
    for place in order.tolist():
        way = []
        while place >= 0 and place not in chosen:
            way.append(place)
            place = int(inner[place])
        if len(chosen) + len(way) <= most:
            chosen.update(way)
    return np.array(sorted(chosen))


def _ways(strength: np.ndarray, hop: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Of each node the strongest neighbour one hop nearer to the target, -1 for the target."""
    inner = np.full(len(strength), -1)
    both = np.concatenate([edges, edges[:, ::-1]])
    nearer = both[hop[both[:, 1]] == hop[both[:, 0]] - 1]
    nearer = nearer[np.argsort(strength[nearer[:, 1]], kind="stable")]
    inner[nearer[:, 0]] = nearer[:, 1]  # the last one written is the strongest
    return inner


def _pair_up(edges: np.ndarray, players: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each pair of linked nodes once, whether only that direction exists, and which player it is; both directions
    stand where they are players of their own."""
    if not len(edges):
        return np.zeros((0, 2), dtype=int), np.zeros(0, dtype=bool), np.zeros(0, dtype=int)
    given = [-1] * len(edges) if players is None else players.tolist()
    found = dict(zip(map(tuple, edges.tolist()), given, strict=True))

    def alone(edge: tuple[int, ...]) -> bool:
        back = found.get(edge[::-1])
        return back is None or back != found[edge]

    pairs = sorted(edge for edge in found if edge[0] < edge[1] or alone(edge))
    return np.array(pairs), np.array(list(map(alone, pairs))), np.array([found[pair] for pair in pairs])


def left_out(left: np.ndarray, score: np.ndarray) -> str:
    """One line on the players that are not drawn; empty if all are."""
    if not len(left):
        return ""
    share = np.abs(left).sum() / max(np.abs(score).sum(), 1e-12)
    part = f"{share:.0%}" if share >= 0.01 else "under 1%"
    span = f"{left.min():+.3g} to {left.max():+.3g}"
    return f"{len(left):,} further players not drawn: scores {span}, {part} of the sum of all |scores|"


@dataclass(frozen=True, eq=False)
class Bars:
    """Players that stand nowhere in a graph, the columns of the features: the strongest, best first."""

    place: np.ndarray  # (drawn,) among all players of the explanation
    names: list[str]
    about: list[str]  # what is known of each besides: its value
    score: np.ndarray  # (drawn,)
    largest: float
    rest: str  # one line on the players that are not drawn; empty if all are


def compose_bars(names: list[str], about: list[str], score: np.ndarray, most: int) -> Bars:
    """The `most` players that count most, for or against."""
    chosen = np.argsort(-np.abs(score), kind="stable")[:most]
    chosen = chosen[np.argsort(-score[chosen], kind="stable")]
    return Bars(
        place=chosen,
        names=[names[place] for place in chosen],
        about=[about[place] for place in chosen],
        score=score[chosen],
        largest=float(np.abs(score).max(initial=0)) or 1.0,
        rest=left_out(np.delete(score, chosen), score),
    )

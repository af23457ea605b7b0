"""What a picture of one explanation shows: which players, where, and what is said of the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dgl_lara.drawing.layout import arcs, forces, rings

ELEMENTS = {
    "H", "Li", "B", "C", "N", "O", "F", "Na", "Mg", "Al", "Si", "P", "S", "Cl", "K", "Ca", "Fe", "Cu", "Zn", "Se", "Br",
    "Sn", "I",
}  # fmt: skip


ROUND = 0.55  # of the room that a node with its rim takes
WHOLE = 150  # nodes up to which a graph is drawn whole: pieces of a molecule would not show what it is


def is_molecule(labels: Iterable[str]) -> bool:
    return all(label in ELEMENTS for label in labels)


@dataclass(frozen=True, eq=False)
class Scene:
    """The drawn players. Row 0.. of every array is the same player as in `place`."""

    place: np.ndarray  # (drawn,) among all players of the explanation
    names: list[str]  # what a player is called in words
    marks: list[str]  # what is written on it
    score: np.ndarray  # (drawn,)
    hop: np.ndarray | None  # None for a graph
    truth: np.ndarray | None  # (drawn,) bool: in the true motif
    other_class: np.ndarray | None  # (drawn,) bool: f predicts another class for this player than the explained one
    edges: np.ndarray  # (num_edges, 2) rows of `place`; an edge in both directions stands once
    one_way: np.ndarray  # (num_edges,) bool: the edge runs from the first to the second only
    position: np.ndarray  # (drawn, 2)
    molecule: bool
    largest: float  # |score| of the strongest player besides the target, whose own would drown all others
    rest: str  # one line on the players that are not drawn; empty if all are

    @cached_property
    def hop_lines(self) -> list[np.ndarray]:
        """One a hop; none for a graph."""
        return [] if self.hop is None else arcs(self.position, self.hop)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lower left and the upper right corner of everything that is drawn."""
        nodes = [self.position.min(axis=0) - ROUND, self.position.max(axis=0) + ROUND]
        points = np.concatenate([nodes, *(line for line in self.hop_lines)])
        return points.min(axis=0), points.max(axis=0)

    @property
    def target(self) -> int | None:
        """Its row."""
        return None if self.hop is None else int(np.flatnonzero(self.hop == 0)[0])


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
) -> Scene:
    """The `most` players that count most, for or against, with the nodes that link them to the target.

    `told`: the places of those that a sentence calls by name; of many atoms of one kind only these are numbered.
    """
    chosen = _choose(score, hop, edges, most)
    row = np.full(len(score), -1)
    row[chosen] = np.arange(len(chosen))
    inside = row[edges]
    inside = inside[(inside >= 0).all(axis=1) & (inside[:, 0] != inside[:, 1])]
    pairs, one_way = _pair_up(inside)
    molecule = hop is None and labels is not None and is_molecule(labels)
    own = [labels[place] for place in chosen] if labels is not None else None
    return Scene(
        place=chosen,
        names=[names[place] for place in chosen],
        marks=[names[place] if labels is None or (molecule and place in told) else labels[place] for place in chosen],
        score=score[chosen],
        hop=None if hop is None else hop[chosen],
        truth=None if truth is None else truth[chosen],
        other_class=None if other_class is None else other_class[chosen],
        edges=pairs,
        one_way=one_way,
        position=rings(hop[chosen], pairs)
        if hop is not None
        else forces(len(chosen), pairs, own if molecule else None),
        molecule=molecule,
        largest=_largest(score, hop),
        rest=_rest(np.delete(score, chosen), score),
    )


def _largest(score: np.ndarray, hop: np.ndarray | None) -> float:
    others = score if hop is None else score[hop > 0]
    return float(np.abs(others).max(initial=0)) or float(np.abs(score).max(initial=0)) or 1.0


def _choose(score: np.ndarray, hop: np.ndarray | None, edges: np.ndarray, most: int) -> np.ndarray:
    """Rising places of at most `most` players, by |score|; each brings the strongest way to the target along."""
    order = np.argsort(-np.abs(score), kind="stable")
    if hop is None:
        return np.sort(order[: max(most, WHOLE)])
    if len(score) <= most:
        return np.arange(len(score))
    strength = np.abs(score)
    inner = np.full(len(score), -1)  # the strongest neighbour one hop nearer to the target
    both = np.concatenate([edges, edges[:, ::-1]])
    nearer = both[hop[both[:, 1]] == hop[both[:, 0]] - 1]
    nearer = nearer[np.argsort(strength[nearer[:, 1]], kind="stable")]
    inner[nearer[:, 0]] = nearer[:, 1]  # the last one written is the strongest
    chosen = {int(np.flatnonzero(hop == 0)[0])}
    for place in order.tolist():
        way = []
        while place >= 0 and place not in chosen:
            way.append(place)
            place = int(inner[place])
        if len(chosen) + len(way) <= most:
            chosen.update(way)
    return np.array(sorted(chosen))


def _pair_up(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each pair of linked nodes once, and whether only that direction exists."""
    if not len(edges):
        return np.zeros((0, 2), dtype=int), np.zeros(0, dtype=bool)
    present = set(map(tuple, edges.tolist()))
    pairs = sorted(edge for edge in present if edge[0] < edge[1] or edge[::-1] not in present)
    return np.array(pairs), np.array([pair[::-1] not in present for pair in pairs])


def _rest(left: np.ndarray, score: np.ndarray) -> str:
    if not len(left):
        return ""
    share = np.abs(left).sum() / max(np.abs(score).sum(), 1e-12)
    part = f"{share:.0%}" if share >= 0.01 else "under 1%"
    span = f"{left.min():+.3g} to {left.max():+.3g}"
    return f"{len(left):,} further players not drawn: scores {span}, {part} of the sum of all |scores|"

"""What the methods that score edges have in common: ego graphs with a weight on every edge, and what becomes of it.

A target is explained on its own ego graph (a graph task: on the graph), many of them side by side in one graph. Only
edges between players are scored. Those further out only count in the degrees at the rim; they keep weight 1, and so
do self-loops, which connect nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dgl_lara._util.memory_budget import slices_within_budget
from dgl_lara.baselines.common.method import Method
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players, joined
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.graphs.subgraph import EgoBatch

EDGES_AT_ONCE = 500_000  # of ego graphs side by side; a larger one stands alone


@dataclass(frozen=True, eq=False)
class EdgeScores:
    """How much each edge between players matters to each target: a ragged list of (target, edge) pairs."""

    targets: Tensor  # (num_targets,)
    row: Tensor  # (num_pairs,) which entry of `targets` a pair belongs to; rising
    source: Tensor  # (num_pairs,) node ids
    destination: Tensor
    scores: Tensor


@dataclass(frozen=True, eq=False)
class MaskBatch:
    """Some targets, ready for a model that takes edge weights."""

    targets: Tensor  # (num_targets,)
    egos: EgoBatch  # their graphs, side by side
    num_players: Tensor  # (num_targets,)
    edge: Tensor  # (num_scored,) ids of the scored edges in the graph of `egos`
    row: Tensor  # (num_scored,) whose ego graph they are in
    twin: Tensor  # (num_scored,) place of the opposite edge among the scored ones; its own where there is none

    def weights(self, mask: Tensor) -> Tensor:
        """(num_edges,): the mask on scored edges, 1 elsewhere."""
        return mask.new_ones(self.egos.graph.num_edges()).index_copy(0, self.edge, mask)

    def both_ways(self, mask: Tensor) -> Tensor:
        """The mean of the two directions, as the authors of both methods make their masks symmetric."""
        return (mask + mask[self.twin]) / 2

    def sums(self, values: Tensor) -> Tensor:
        """(num_targets,): over the scored edges of each."""
        return values.new_zeros(len(self.targets)).index_add(0, self.row, values)

    def means(self, values: Tensor) -> Tensor:
        return self.sums(values) / self.sums(torch.ones_like(values)).clamp(min=1)

    def ends(self) -> tuple[Tensor, Tensor]:
        """Source and destination of the scored edges, in the whole graph."""
        src, dst = self.egos.graph.find_edges(self.edge)
        return self.egos.nodes[src], self.egos.nodes[dst]


def instances(game: Game, targets: Tensor) -> Iterator[MaskBatch]:
    """The targets in order, as many at once as memory allows."""
    # what enters the outermost context nodes reaches no target; they are there for the degrees of those before
    inner = game.context_hops if game.context_hops > game.hops else None
    for rows in game.chunks(targets):
        some = targets[rows]
        for part in slices_within_budget(_edges_entering(game, some, inner), EDGES_AT_ONCE):
            yield _assemble(
                some[part], game.task.ego_batch(game.graph, some[part], game.context_hops, inner), game.hops
            )


def _edges_entering(game: Game, targets: Tensor, inner: int | None) -> Tensor:
    """(num_targets,) how many edges the ego graph of each has, or a few more."""
    context = game.task.reach(game.graph, targets, game.context_hops)
    entering = game.graph.in_degrees()[context.player] * (context.hop < (inner or game.hops + 1))
    return torch.zeros_like(context.counts).index_add(0, context.row, entering)


def _assemble(targets: Tensor, egos: EgoBatch, hops: int) -> MaskBatch:
    graph, is_player = egos.graph, egos.hop <= hops
    src, dst = graph.edges()
    edge = (is_player[src] & is_player[dst] & (src != dst)).nonzero().flatten()
    # ordered by target, source, destination, so that a target's edges never depend on its company
    edge = edge[torch.argsort(src[edge] * graph.num_nodes() + dst[edge])]
    src, dst = src[edge], dst[edge]
    place, there = lookup_sorted(dst * graph.num_nodes() + src, src * graph.num_nodes() + dst)
    twin = torch.where(there, place, torch.arange(len(edge), device=edge.device))
    return MaskBatch(targets, egos, egos.counts(is_player), edge, egos.row[src], twin)


def entropy(mask: Tensor) -> Tensor:
    """Of each edge as a coin: large where the mask has not made up its mind."""
    tiny = 1e-15
    return -mask * (mask + tiny).log() - (1 - mask) * (1 - mask + tiny).log()


def node_scores(edges: EdgeScores, players: Players) -> Tensor:
    """(num_pairs,) as in the paper: the mean over the edges at the node, whichever way they point.

    A node without an edge gets 0, below every mask.
    """
    total = edges.scores.new_zeros(len(players.player))
    count = torch.zeros_like(total)
    for end in (edges.source, edges.destination):
        place, _ = lookup_sorted(edges.row * players.num_ids + end, players.key)
        total.index_add_(0, place, edges.scores)
        count.index_add_(0, place, torch.ones_like(edges.scores))
    return total / count.clamp(min=1)


class EdgeMethod(Method):
    """A method that scores edges between players by a mask in (0, 1)."""

    needs: ClassVar[tuple[str, ...]] = ("edge weights", "gradients")

    def score(self, some: MaskBatch) -> Tensor:
        """(num_scored,) the final mask."""
        raise NotImplementedError

    def predict(self, some: MaskBatch, mask: Tensor, features: Tensor) -> Tensor:
        """(num_targets, num_classes): logits of the targets under a mask of the scored edges."""
        return self.call_with_weights(some.egos.graph, features, some.weights(mask))[some.egos.target_rows]

    def _each(self, targets: Tensor) -> Iterator[EdgeScores]:
        self.game.check_targets(targets)
        for some in instances(self.game, targets):
            yield EdgeScores(some.targets, some.row, *some.ends(), self.score(some))

    def explain_edges(self, targets: Tensor) -> EdgeScores:
        parts = list(self._each(targets))
        shift, rows = 0, []
        for part in parts:
            rows.append(part.row + shift)
            shift += len(part.targets)
        rest = (torch.cat([getattr(part, end) for part in parts]) for end in ("source", "destination", "scores"))
        return EdgeScores(targets, torch.cat(rows), *rest)

    def explain(self, targets: Tensor) -> Explanations:
        players, scores = [], []
        for edges in self._each(targets):  # edges are many: never all at once
            players.append(self.game.players(edges.targets))
            scores.append(node_scores(edges, players[-1]))
        return self.result(joined(players), torch.cat(scores))

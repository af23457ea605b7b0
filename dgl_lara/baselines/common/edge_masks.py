"""Ego graphs with a weight on every edge, for methods that score edges by masks.

A target is explained on its own ego graph (a graph target on the graph), many of them in one batch. Only edges between
players are scored. Edges further out matter for the degrees at the boundary only and keep weight 1. So do self-loops.
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

MAX_EDGES = 500_000  # of the ego graphs in a batch, a larger one is a batch of its own


@dataclass(frozen=True, eq=False)
class EdgeScores:
    """The scores of edges between players, as a ragged list of (target, edge) pairs."""

    targets: Tensor  # (num_targets,)
    row: Tensor  # (num_pairs,) index into `targets`, ascending
    source: Tensor  # (num_pairs,) node ids
    destination: Tensor  # (num_pairs,) node ids
    scores: Tensor  # (num_pairs,)


@dataclass(frozen=True, eq=False)
class MaskBatch:
    """Targets and their ego graphs, for a model that takes edge weights."""

    targets: Tensor  # (num_targets,)
    egos: EgoBatch
    num_players: Tensor  # (num_targets,)
    edge: Tensor  # (num_scored,) ids of the scored edges in the graph of `egos`
    row: Tensor  # (num_scored,) index of the target
    twin: Tensor  # (num_scored,) index of the opposite edge among the scored ones, or of itself if there is none

    def weights(self, mask: Tensor) -> Tensor:
        """Return (num_edges,): the mask on scored edges, 1 elsewhere."""
        return mask.new_ones(self.egos.graph.num_edges()).index_copy(0, self.edge, mask)

    def both_ways(self, mask: Tensor) -> Tensor:
        """Average the two directions of each edge, as the authors of both methods do."""
        return (mask + mask[self.twin]) / 2

    def sums(self, values: Tensor) -> Tensor:
        """Sum over the scored edges of each target, (num_targets,)."""
        return values.new_zeros(len(self.targets)).index_add(0, self.row, values)

    def means(self, values: Tensor) -> Tensor:
        """Average over the scored edges of each target, (num_targets,)."""
        return self.sums(values) / self.sums(torch.ones_like(values)).clamp(min=1)

    def ends(self) -> tuple[Tensor, Tensor]:
        """Return source and destination of the scored edges, as nodes of the full graph."""
        src, dst = self.egos.graph.find_edges(self.edge)
        return self.egos.nodes[src], self.egos.nodes[dst]


def mask_batches(game: Game, targets: Tensor) -> Iterator[MaskBatch]:
    """Yield the targets in order, as many at once as memory allows."""
    # edges into the outermost context nodes reach no target. These nodes are there for the degrees of the others
    inner = game.context_hops if game.context_hops > game.hops else None
    for rows in game.chunks(targets):
        chunk = targets[rows]
        for part in slices_within_budget(_edge_counts(game, chunk, inner), MAX_EDGES):
            egos = game.task.ego_batch(game.graph, chunk[part], game.context_hops, inner)
            yield _mask_batch(chunk[part], egos, game.hops)


def _edge_counts(game: Game, targets: Tensor, inner: int | None) -> Tensor:
    """Return (num_targets,) an upper bound on the edges of each ego graph."""
    context = game.task.reach(game.graph, targets, game.context_hops)
    entering = game.graph.in_degrees()[context.player] * (context.hop < (inner or game.hops + 1))
    return torch.zeros_like(context.counts).index_add(0, context.row, entering)


def _mask_batch(targets: Tensor, egos: EgoBatch, hops: int) -> MaskBatch:
    graph, is_player = egos.graph, egos.hop <= hops
    src, dst = graph.edges()
    edge = (is_player[src] & is_player[dst] & (src != dst)).nonzero().flatten()
    # ordered by target, source, destination, so that a target's edges do not depend on the rest of the batch
    edge = edge[torch.argsort(src[edge] * graph.num_nodes() + dst[edge])]
    src, dst = src[edge], dst[edge]
    index, exists = lookup_sorted(dst * graph.num_nodes() + src, src * graph.num_nodes() + dst)
    twin = torch.where(exists, index, torch.arange(len(edge), device=edge.device))
    return MaskBatch(targets, egos, egos.counts(is_player), edge, egos.row[src], twin)


def entropy(mask: Tensor) -> Tensor:
    """Compute the entropy of each edge as a coin with this probability."""
    tiny = 1e-15
    return -mask * (mask + tiny).log() - (1 - mask) * (1 - mask + tiny).log()


def node_scores(edges: EdgeScores, players: Players) -> Tensor:
    """Average the scores of the edges at each player in both directions, as the paper does.

    Returns:
        (num_pairs,) node scores. A node without edges has 0, below every mask.
    """
    total = edges.scores.new_zeros(len(players.player))
    count = torch.zeros_like(total)
    for end in (edges.source, edges.destination):
        pair, _ = lookup_sorted(edges.row * players.num_ids + end, players.key)
        total.index_add_(0, pair, edges.scores)
        count.index_add_(0, pair, torch.ones_like(edges.scores))
    return total / count.clamp(min=1)


class EdgeMethod(Method):
    """A method that scores edges between players by a mask in (0, 1)."""

    needs: ClassVar[tuple[str, ...]] = ("edge weights", "gradients")

    def score(self, batch: MaskBatch) -> Tensor:
        """Compute (num_scored,) the final mask."""
        raise NotImplementedError

    def predict(self, batch: MaskBatch, mask: Tensor, features: Tensor) -> Tensor:
        """Compute (num_targets, num_classes) logits of the targets under a mask of the scored edges."""
        return self.call_with_weights(batch.egos.graph, features, batch.weights(mask))[batch.egos.target_rows]

    def _score_batches(self, targets: Tensor) -> Iterator[EdgeScores]:
        self.game.check_targets(targets)
        for batch in mask_batches(self.game, targets):
            yield EdgeScores(batch.targets, batch.row, *batch.ends(), self.score(batch))

    def explain_edges(self, targets: Tensor) -> EdgeScores:
        """Score the edges between the players of each target."""
        batches = list(self._score_batches(targets))
        shift, rows = 0, []
        for batch in batches:
            rows.append(batch.row + shift)
            shift += len(batch.targets)
        columns = (torch.cat([getattr(one, name) for one in batches]) for name in ("source", "destination", "scores"))
        return EdgeScores(targets, torch.cat(rows), *columns)

    def explain(self, targets: Tensor) -> Explanations:
        players, scores = [], []
        for edges in self._score_batches(targets):  # the edges of all targets would not fit
            players.append(self.game.players(edges.targets))
            scores.append(node_scores(edges, players[-1]))
        return self.result(joined(players), torch.cat(scores))

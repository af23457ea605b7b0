"""`Players`: ragged lists of (target, player) pairs, ordered by target and then by player.

K-hop in-neighbourhoods grow hop by hop along in-edges for all targets at once, on any device and without a dense
matrix. For many targets on the CPU compiled code makes an equal list (`khop_kernel.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dgl_lara.graphs.graph import Graph
from dgl_lara.graphs.indexing import in_edges, is_member, lookup_sorted, ragged

MANY = 32  # targets from which compiled code is faster, including its start


@dataclass(frozen=True, eq=False)
class Players:
    """The players of a batch of targets, as (target, player) pairs.

    Attributes:
        targets: (num_targets,) nodes, graphs of a batch, or pairs.
        counts: (num_targets,) players of each target.
        player: (num_pairs,) ids, ascending for each target: nodes, edges or groups of columns.
        hop: (num_pairs,) distance to the target, 0 for graph tasks.
        num_ids: Number of ids in the full graph.
        player_type: Name of the `PlayerSet` that the ids belong to.
    """

    targets: Tensor
    counts: Tensor
    player: Tensor
    hop: Tensor
    num_ids: int
    player_type: str = "nodes"

    @property
    def row(self) -> Tensor:
        """Return (num_pairs,) the index in `targets` of each pair."""
        return torch.repeat_interleave(torch.arange(len(self.targets), device=self.counts.device), self.counts)

    @property
    def indptr(self) -> Tensor:
        """Return (num_targets + 1,) the first pair of each target."""
        return torch.cat([self.counts.new_zeros(1), self.counts.cumsum(0)])

    @property
    def slices(self) -> list[slice]:
        """Return the slice of the pairs of each target."""
        ends = self.indptr.tolist()
        return [slice(*pair) for pair in zip(ends, ends[1:], strict=False)]

    @property
    def key(self) -> Tensor:
        """Return (num_pairs,) row * num_ids + player, ascending."""
        return self.row * self.num_ids + self.player

    def part(self, rows: slice) -> Players:
        """Return the players of consecutive targets."""
        indptr = self.indptr
        pairs = slice(int(indptr[rows.start]), int(indptr[rows.stop]))
        player, hop = self.player[pairs], self.hop[pairs]
        return replace(self, targets=self.targets[rows], counts=self.counts[rows], player=player, hop=hop)

    def only(self, chosen: Tensor) -> Players:
        """Return the players of the targets that are marked in (num_targets,) bool."""
        pairs = chosen[self.row]
        player, hop = self.player[pairs], self.hop[pairs]
        return replace(self, targets=self.targets[chosen], counts=self.counts[chosen], player=player, hop=hop)

    def rank(self, scores: Tensor) -> Tensor:
        """Return the rank of each score among those of its target, (num_pairs,), 0 for the highest."""
        order = torch.argsort(scores, descending=True, stable=True)
        order = order[torch.argsort(self.row[order], stable=True)]
        rank = torch.empty_like(order)
        start = torch.repeat_interleave(self.indptr[:-1], self.counts)
        rank[order] = torch.arange(len(order), device=order.device) - start
        return rank

    def among(self, ids: Tensor) -> Players:
        """Return players with their index in an ascending list of ids as ids."""
        return replace(self, player=lookup_sorted(self.player, ids)[0], num_ids=len(ids))


def in_neighborhood(graph: Graph, targets: Tensor, hops: int) -> Players:
    """Return all nodes from which a target can be reached in at most `hops` steps."""
    num_nodes = graph.num_nodes()
    if len(targets) >= MANY and graph.device.type == "cpu":
        # not at the top, because the compiler takes longer than a few targets
        from dgl_lara.graphs.khop_kernel import list_players

        return Players(targets, *list_players(graph, targets, hops), num_nodes)
    rows = torch.arange(len(targets), device=targets.device)
    reached_keys = frontier = rows * num_nodes + targets  # sorted keys row * num_nodes + node
    hop = torch.zeros_like(reached_keys)
    for distance in range(1, hops + 1):
        pair, sources = in_edges(graph, frontier % num_nodes)
        reached = torch.unique((frontier // num_nodes)[pair] * num_nodes + sources)
        frontier = reached[~is_member(reached, reached_keys)]
        reached_keys, order = torch.cat([reached_keys, frontier]).sort()
        hop = torch.cat([hop, torch.full_like(frontier, distance)])[order]
    counts = torch.bincount(reached_keys // num_nodes, minlength=len(targets))
    return Players(targets, counts, reached_keys % num_nodes, hop, num_nodes)


def nodes_of_graphs(batch: Graph, chosen: Tensor) -> Players:
    """Return all nodes of each chosen graph of a batch."""
    sizes = batch.batch_num_nodes()
    first = (sizes.cumsum(0) - sizes)[chosen]
    counts = sizes[chosen]
    pair, within = ragged(counts)
    player = first[pair] + within
    return Players(chosen, counts, player, torch.zeros_like(player), batch.num_nodes())


def joined(parts: list[Players]) -> Players:
    """Return several lists as one."""
    if len(parts) == 1:
        return parts[0]
    fields = {
        name: torch.cat([getattr(part, name) for part in parts]) for name in ("targets", "counts", "player", "hop")
    }
    return Players(num_ids=parts[0].num_ids, player_type=parts[0].player_type, **fields)

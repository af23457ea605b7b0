"""Lists of players: ragged lists of (target, player) pairs, ordered by target and then by player.

The K-hop in-neighbourhoods of targets are grown hop by hop along incoming edges for all targets at once, so it works on
any device and needs no dense matrix; for many targets on the CPU compiled code makes the same list (`listing.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import dgl
import torch
from torch import Tensor

from dgl_lara.graphs.indexing import in_edges, is_member, lookup_sorted, ragged

MANY = 32  # targets; from here on compiled code is faster, its start included


@dataclass(frozen=True, eq=False)
class Players:
    """The players of a batch of targets, as (target, player) pairs."""

    targets: Tensor  # (num_targets,) nodes, or graphs of a batch
    counts: Tensor  # (num_targets,) players of each
    player: Tensor  # (num_pairs,) ids, rising for each target: nodes, edges or columns of features
    hop: Tensor  # (num_pairs,) distance to the target; 0 throughout for a graph task
    num_ids: int  # how many ids there are in the whole graph
    player_type: str = "nodes"  # what the ids are: the name of a `PlayerKind`

    @property
    def row(self) -> Tensor:
        """(num_pairs,) which entry of `targets` a pair belongs to."""
        return torch.repeat_interleave(torch.arange(len(self.targets), device=self.counts.device), self.counts)

    @property
    def indptr(self) -> Tensor:
        """(num_targets + 1,) where the pairs of a target begin."""
        return torch.cat([self.counts.new_zeros(1), self.counts.cumsum(0)])

    @property
    def slices(self) -> list[slice]:
        """The pairs of each target."""
        ends = self.indptr.tolist()
        return [slice(*pair) for pair in zip(ends, ends[1:], strict=False)]

    @property
    def key(self) -> Tensor:
        """(num_pairs,) rising numbers, one for each pair: row * num_ids + player."""
        return self.row * self.num_ids + self.player

    def part(self, rows: slice) -> Players:
        """The same for some of the targets."""
        indptr = self.indptr
        pairs = slice(int(indptr[rows.start]), int(indptr[rows.stop]))
        player, hop = self.player[pairs], self.hop[pairs]
        return replace(self, targets=self.targets[rows], counts=self.counts[rows], player=player, hop=hop)

    def only(self, chosen: Tensor) -> Players:
        """The same for the targets that are marked: (num_targets,) bool."""
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
        """The same with players numbered by their places in a rising list of ids."""
        return replace(self, player=lookup_sorted(self.player, ids)[0], num_ids=len(ids))


def in_neighborhood(graph: dgl.DGLGraph, targets: Tensor, hops: int) -> Players:
    """All nodes from which a target can be reached in at most `hops` steps."""
    num_nodes = graph.num_nodes()
    if len(targets) >= MANY and graph.device.type == "cpu":
        from dgl_lara.graphs.khop_kernel import (
            list_players,  # not at the top: a few targets shall not wait for the compiler
        )

        return Players(targets, *list_players(graph, targets, hops), num_nodes)
    rows = torch.arange(len(targets), device=targets.device)
    seen = frontier = rows * num_nodes + targets  # sorted keys row * num_nodes + node
    hop = torch.zeros_like(seen)
    for distance in range(1, hops + 1):
        pair, sources = in_edges(graph, frontier % num_nodes)
        reached = torch.unique((frontier // num_nodes)[pair] * num_nodes + sources)
        frontier = reached[~is_member(reached, seen)]
        seen, order = torch.cat([seen, frontier]).sort()
        hop = torch.cat([hop, torch.full_like(frontier, distance)])[order]
    counts = torch.bincount(seen // num_nodes, minlength=len(targets))
    return Players(targets, counts, seen % num_nodes, hop, num_nodes)


def nodes_of_graphs(batch: dgl.DGLGraph, chosen: Tensor) -> Players:
    """Graph tasks: every node of a graph is a player of that graph."""
    sizes = batch.batch_num_nodes()
    first = (sizes.cumsum(0) - sizes)[chosen]
    counts = sizes[chosen]
    pair, within = ragged(counts)
    player = first[pair] + within
    return Players(chosen, counts, player, torch.zeros_like(player), batch.num_nodes())


def joined(parts: list[Players]) -> Players:
    """One list after the other."""
    if len(parts) == 1:
        return parts[0]
    fields = {
        name: torch.cat([getattr(part, name) for part in parts]) for name in ("targets", "counts", "player", "hop")
    }
    return Players(num_ids=parts[0].num_ids, player_type=parts[0].player_type, **fields)

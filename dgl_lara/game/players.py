"""Who plays: the K-hop in-neighbourhood of a target (the target included), hop distances, walk weights.

A batch of neighbourhoods is a ragged list of (target, player) pairs, ordered by target and then by player. It is
grown hop by hop along incoming edges for all targets at once, so it works on any device and needs no dense matrix;
for many targets on the CPU compiled code makes the same list (`listing.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import dgl
import torch
from torch import Tensor

from dgl_lara.errors import InputError

MANY = 32  # targets; from here on compiled code is faster, its start included


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """The players of a batch of targets, as (target, player) pairs."""

    targets: Tensor  # (num_targets,) nodes, or graphs of a batch
    counts: Tensor  # (num_targets,) players of each
    player: Tensor  # (num_pairs,) node ids
    hop: Tensor  # (num_pairs,) distance to the target; 0 throughout for a graph task
    num_nodes: int

    @property
    def row(self) -> Tensor:
        """(num_pairs,) which entry of `targets` a pair belongs to."""
        return torch.repeat_interleave(torch.arange(len(self.targets), device=self.counts.device), self.counts)

    @property
    def first(self) -> Tensor:
        """(num_targets + 1,) where the pairs of a target begin."""
        return torch.cat([self.counts.new_zeros(1), self.counts.cumsum(0)])

    @property
    def key(self) -> Tensor:
        """(num_pairs,) rising numbers, one for each pair: row * num_nodes + player."""
        return self.row * self.num_nodes + self.player

    def part(self, rows: slice) -> Neighborhood:
        """The same for some of the targets."""
        first = self.first
        pairs = slice(int(first[rows.start]), int(first[rows.stop]))
        return Neighborhood(self.targets[rows], self.counts[rows], self.player[pairs], self.hop[pairs], self.num_nodes)


def in_neighborhood(graph: dgl.DGLGraph, targets: Tensor, hops: int) -> Neighborhood:
    """All nodes from which a target can be reached in at most `hops` steps."""
    num_nodes = graph.num_nodes()
    if len(targets) >= MANY and graph.device.type == "cpu":
        from dgl_lara.game.listing import list_players  # not at the top: a few targets shall not wait for the compiler

        return Neighborhood(targets, *list_players(graph, targets, hops), num_nodes)
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
    return Neighborhood(targets, counts, seen % num_nodes, hop, num_nodes)


def nodes_of_graphs(batch: dgl.DGLGraph, chosen: Tensor) -> Neighborhood:
    """Graph tasks: every node of a graph is a player of that graph."""
    sizes = batch.batch_num_nodes()
    first = (sizes.cumsum(0) - sizes)[chosen]
    counts = sizes[chosen]
    within = torch.arange(int(counts.sum()), device=sizes.device)
    within = within - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    player = torch.repeat_interleave(first, counts) + within
    return Neighborhood(chosen, counts, player, torch.zeros_like(player), batch.num_nodes())


def in_edges(graph: dgl.DGLGraph, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """(index into `nodes`, source node) of every edge that enters one of them."""
    indptr, sources, _ = graph.adj_tensors("csc")
    start, degrees = indptr[nodes], indptr[nodes + 1] - indptr[nodes]
    pair = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), degrees)
    within = torch.arange(len(pair), device=nodes.device) - torch.repeat_interleave(
        degrees.cumsum(0) - degrees, degrees
    )
    return pair, sources[torch.repeat_interleave(start, degrees) + within]


def find(keys: Tensor, in_sorted: Tensor) -> tuple[Tensor, Tensor]:
    """(place of each key in a sorted list, whether it is there)."""
    place = torch.searchsorted(in_sorted, keys).clamp(max=max(len(in_sorted) - 1, 0))
    return place, in_sorted[place] == keys


def is_member(keys: Tensor, in_sorted: Tensor) -> Tensor:
    return find(keys, in_sorted)[1]


def walk_counts(graph: dgl.DGLGraph, steps: int) -> Tensor:
    """(num_nodes,) walks of at most `steps` steps that end at a node: a bound on its players and on the work."""
    counts = torch.ones(graph.num_nodes(), 1, dtype=torch.float64, device=graph.device)
    for _ in range(steps):
        counts = dgl.ops.copy_u_sum(graph, counts) + counts
    return counts.squeeze(1)


def walk_scale(graph: dgl.DGLGraph) -> Tensor:
    """(num_nodes,) s with Â = diag(s) (A + I) diag(s), the symmetrically normalised adjacency of a GCN."""
    return (graph.in_degrees().float() + 1).rsqrt()


def walk_weights(graph: dgl.DGLGraph, neighborhood: Neighborhood, steps: int) -> Tensor:
    """(num_pairs, steps + 1): column d holds (Â^d)[target, player], the weight of all walks of d steps."""
    num_nodes, all_keys = graph.num_nodes(), neighborhood.key
    scale = walk_scale(graph)
    keys = torch.arange(len(neighborhood.targets), device=all_keys.device) * num_nodes + neighborhood.targets
    weight = torch.ones(len(keys), device=all_keys.device)
    columns = []
    for step in range(steps + 1):
        if step:
            node = keys % num_nodes
            pair, sources = in_edges(graph, node)
            passed = weight * scale[node]
            row = keys // num_nodes
            grown = torch.cat([row[pair] * num_nodes + sources, keys])  # the second part: the self-loop
            grown_weight = torch.cat([passed[pair] * scale[sources], passed * scale[node]])
            keys, place = torch.unique(grown, return_inverse=True)
            weight = torch.zeros(len(keys), device=all_keys.device).index_add_(0, place, grown_weight)
        place, there = find(keys, all_keys)
        column = torch.zeros(len(all_keys), device=all_keys.device)
        columns.append(column.index_add_(0, place[there], weight[there]))
    return torch.stack(columns, dim=1)


def max_hop(
    predict: Callable[[dgl.DGLGraph, Tensor], Tensor],
    graph: dgl.DGLGraph,
    features: Tensor,
    nodes: Tensor,
    limit: int = 10,
    tolerance: float = 1e-4,
) -> int:
    """Eq. 13: the smallest K for which one hop more changes no prediction of the sampled nodes.

    Changes are measured against the largest logit. Degree normalisation reaches one hop beyond the last layer, and
    this is found too, unless the tolerance is wider than that effect.
    """
    full = predict(graph, features)[nodes]
    allowed = tolerance * full.abs().max().clamp(min=1e-12)
    before = _on_ego_graphs(predict, graph, features, nodes, 0)
    for hops in range(limit + 1):
        after = _on_ego_graphs(predict, graph, features, nodes, hops + 1)
        if (after - before).abs().max() <= allowed and (before - full).abs().max() <= allowed:
            return hops
        before = after
    raise InputError(f"the model still changes beyond {limit} hops; give the number of hops yourself (--hops).")


def _on_ego_graphs(
    predict: Callable[[dgl.DGLGraph, Tensor], Tensor], graph: dgl.DGLGraph, features: Tensor, nodes: Tensor, hops: int
) -> Tensor:
    predictions = []
    for node in nodes.tolist():
        ego, place = dgl.khop_in_subgraph(graph, node, k=hops, store_ids=True)
        predictions.append(predict(ego, features[ego.ndata[dgl.NID]])[place])
    return torch.cat(predictions)

"""Walks that end at a target: how many there are, and how much each weighs in a power of the adjacency."""

from __future__ import annotations

import dgl
import torch
from torch import Tensor

from dgl_lara.game.player_index import Players
from dgl_lara.graphs.indexing import in_edges, lookup_sorted


def walk_counts(graph: dgl.DGLGraph, steps: int) -> Tensor:
    """(num_nodes,) walks of at most `steps` steps that end at a node: a bound on its players and on the work."""
    counts = torch.ones(graph.num_nodes(), 1, dtype=torch.float64, device=graph.device)
    for _ in range(steps):
        counts = dgl.ops.copy_u_sum(graph, counts) + counts
    return counts.squeeze(1)


def walk_scale(graph: dgl.DGLGraph) -> Tensor:
    """(num_nodes,) s with Â = diag(s) (A + I) diag(s), the symmetrically normalised adjacency of a GCN."""
    return scale_of(graph.in_degrees())


def scale_of(in_degrees: Tensor) -> Tensor:
    return (in_degrees.float() + 1).rsqrt()


def walk_weights(graph: dgl.DGLGraph, players: Players, steps: int) -> Tensor:
    """(num_pairs, steps + 1): column d holds (Â^d)[target, player], the weight of all walks of d steps."""
    num_nodes, all_keys = graph.num_nodes(), players.key
    scale = walk_scale(graph)
    keys = torch.arange(len(players.targets), device=all_keys.device) * num_nodes + players.targets
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
        place, there = lookup_sorted(keys, all_keys)
        column = torch.zeros(len(all_keys), device=all_keys.device)
        columns.append(column.index_add_(0, place[there], weight[there]))
    return torch.stack(columns, dim=1)


def smooth(graph: dgl.DGLGraph, states: Tensor, steps: int, scale: Tensor | None = None) -> Tensor:
    """Return Â^steps applied to the rows of `states`."""
    scale = (walk_scale(graph) if scale is None else scale).unsqueeze(1)
    for _ in range(steps):
        states = states * scale
        states = (dgl.ops.copy_u_sum(graph, states) + states) * scale
    return states


def mean_shares(batch: dgl.DGLGraph, steps: int) -> Tensor:
    """(num_nodes,) Return the share of each node in the mean over its graph: the columns of Â^steps, averaged."""
    sizes = batch.batch_num_nodes()
    equal = torch.repeat_interleave(1 / sizes, sizes).unsqueeze(1)
    return smooth(dgl.reverse(batch), equal, steps, walk_scale(batch)).squeeze(1)

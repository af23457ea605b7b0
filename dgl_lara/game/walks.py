"""Walks that end at a target: their number, and their weight in powers of the adjacency matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara.graphs.graph import Graph, reverse, sum_in_neighbors
from dgl_lara.graphs.indexing import in_edges, lookup_sorted

if TYPE_CHECKING:
    from dgl_lara.game.player_index import Players


def walk_counts(graph: Graph, steps: int) -> Tensor:
    """Return (num_nodes,) the number of walks of at most `steps` steps that end at each node."""
    counts = torch.ones(graph.num_nodes(), 1, dtype=torch.float64, device=graph.device)
    for _ in range(steps):
        counts = sum_in_neighbors(graph, counts) + counts
    return counts.squeeze(1)


def walk_scale(graph: Graph) -> Tensor:
    """Return (num_nodes,) s with Â = diag(s) (A + I) diag(s), the normalised adjacency matrix of a GCN."""
    return scale_of(graph.in_degrees())


def scale_of(in_degrees: Tensor) -> Tensor:
    return (in_degrees.float() + 1).rsqrt()


def walk_weights(graph: Graph, players: Players, steps: int) -> Tensor:
    """Return (num_pairs, steps + 1) (Â^d)[target, player] in column d, the weight of all walks of d steps."""
    num_nodes, all_keys = graph.num_nodes(), players.key
    scale = walk_scale(graph)
    keys = torch.arange(len(players.targets), device=all_keys.device) * num_nodes + players.targets
    weight = torch.ones(len(keys), device=all_keys.device)
    columns = []
    for step in range(steps + 1):
        if step:
            node = keys % num_nodes
            pair, sources = in_edges(graph, node)
            sent = weight * scale[node]
            row = keys // num_nodes
            reached = torch.cat([row[pair] * num_nodes + sources, keys])  # the second part: the self-loop
            reached_weight = torch.cat([sent[pair] * scale[sources], sent * scale[node]])
            keys, index = torch.unique(reached, return_inverse=True)
            weight = torch.zeros(len(keys), device=all_keys.device).index_add_(0, index, reached_weight)
        index, found = lookup_sorted(keys, all_keys)
        column = torch.zeros(len(all_keys), device=all_keys.device)
        columns.append(column.index_add_(0, index[found], weight[found]))
    return torch.stack(columns, dim=1)


def smooth(graph: Graph, states: Tensor, steps: int, scale: Tensor | None = None) -> Tensor:
    """Return Â^steps applied to the rows of `states`."""
    scale = (walk_scale(graph) if scale is None else scale).unsqueeze(1)
    for _ in range(steps):
        states = states * scale
        states = (sum_in_neighbors(graph, states) + states) * scale
    return states


def mean_shares(batch: Graph, steps: int) -> Tensor:
    """Return (num_nodes,) the share of each node in the mean over its graph: the columns of Â^steps, averaged."""
    sizes = batch.batch_num_nodes()
    equal = torch.repeat_interleave(1 / sizes, sizes).unsqueeze(1)
    return smooth(reverse(batch), equal, steps, walk_scale(batch)).squeeze(1)

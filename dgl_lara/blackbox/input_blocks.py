"""What can be seen of nodes and edges beside what f says of them, whatever kind of graph it is."""

from __future__ import annotations

from collections.abc import Callable

import dgl
import torch
from dgl import ops
from torch import Tensor

from dgl_lara.blackbox.edge_data import EDGE, WithEdgeData, as_columns
from dgl_lara.blackbox.hetero import HeteroAdapter, node_looks, relation_looks

WIDE = 256  # columns; more are left out of what g sees (`explainer/inputs.py` says why)


def seen_of_nodes(model: Callable, graph: dgl.DGLGraph, features: Tensor) -> list[Tensor]:
    """Blocks of columns, one row a node: its features; on graphs of several types also its type, and its features in
    columns of its type's own; and what the edges that enter it carry, in sum and on average."""
    blocks = node_looks(model, graph) if isinstance(model, HeteroAdapter) else [features]
    edges = seen_of_edges(model)
    if edges is None or edges.shape[1] > WIDE:
        return blocks
    total = ops.copy_e_sum(graph, edges[graph.edata[EDGE]])
    return [*blocks, total, total / graph.in_degrees().clamp(min=1).unsqueeze(1)]


def seen_of_edges(model: Callable) -> Tensor | None:
    """(num_edges, columns) of all edges that the whole graph has; None: they carry nothing."""
    if isinstance(model, HeteroAdapter):
        return relation_looks(model)
    if isinstance(model, WithEdgeData):
        return torch.cat([as_columns(name, rows) for name, rows in sorted(model.data.items())], dim=1)
    return None


def null_features(model: Callable, features: Tensor, count: int) -> Tensor:
    """(count, columns): the features of nodes that are not there, one for each node of a target."""
    if isinstance(model, HeteroAdapter):
        return torch.tensor([[model.types.nobody(kind)] for kind in model.asked_types], device=features.device)
    return features.new_zeros(count, features.shape[1])


def places_of_ends(model: Callable, num_nodes: int) -> list[range]:
    """The nodes that can stand on either side of a pair."""
    if not isinstance(model, HeteroAdapter):
        return [range(num_nodes)] * 2
    starts, types = model.types.node_starts.tolist(), model.types
    return [range(starts[types.place(kind)], starts[types.place(kind) + 1]) for kind in model.asked_types]


def columns_of(model: Callable, features: Tensor) -> int:
    """How many numbers f is given for a node, at most."""
    if isinstance(model, HeteroAdapter):
        return max(rows.shape[1] for rows in model.features.values())
    return features.shape[1]

"""The graph as the game plays on it, and as f is given it.

Inside, a graph has one type of node and of edge and carries nothing, so that cutting and copying it stays cheap. What
edges carry is left behind: `edata[EDGE]` says which edge of the whole graph an edge is, and f is given the data of
those edges (`WithEdgeData`). Graphs of several types are in `typed.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara.blackbox.adapter import ModelAdapter
from dgl_lara.blackbox.call import Model
from dgl_lara.errors import InputError

EDGE = "_EDGE_OF_WHOLE"  # edata: which edge of the whole graph it is; -1: none of them; a name that no user gives
KINDS = 16  # places into which whole numbers on edges are told apart


class WithEdgeData(ModelAdapter):
    """f with the data that the edges of a part carry in the whole graph."""

    data: dict[str, Tensor]  # (num_edges of the whole graph, ...) each

    def forward(self, graph: dgl.DGLGraph, features: Tensor, *ends: Tensor) -> Any:
        with graph.local_scope():
            which = graph.edata.pop(EDGE)
            for name, rows in self.data.items():
                graph.edata[name] = rows_of(rows, which)
            return self.model(graph, features, *ends)


def rows_of(rows: Tensor, which: Tensor) -> Tensor:
    """These rows; zeros where the number is negative, which nothing carries."""
    if not len(rows):
        return rows.new_zeros(len(which), *rows.shape[1:])
    found, nobody = rows[which.clamp(min=0)], which < 0
    if nobody.any():
        found[nobody] = 0
    return found


def detach_edge_data(model: Callable, graph: dgl.DGLGraph) -> tuple[Model, dgl.DGLGraph]:
    """f and the graph for the game; as they are where edges carry nothing, or where that has been seen to before."""
    data = {name: rows for name, rows in graph.edata.items() if name not in (dgl.EID, dgl.ETYPE)}
    if not data or EDGE in data:
        return model, graph
    plain = without_data(graph)
    plain.edata[EDGE] = torch.arange(graph.num_edges(), device=graph.device)
    return WithEdgeData(model, data=data), plain


def without_edge_data(model: Callable, graph: dgl.DGLGraph) -> tuple[Model, dgl.DGLGraph]:
    """f and the graph where edges carry nothing."""
    return model.model if isinstance(model, WithEdgeData) else model, without_data(graph) if graph.edata else graph


def without_data(graph: dgl.DGLGraph) -> dgl.DGLGraph:
    """The edges and the batch, nothing else."""
    plain = dgl.graph(graph.edges(), num_nodes=graph.num_nodes()).long()  # dgl 2: sizes are of the same type as ids
    plain.set_batch_num_nodes(graph.batch_num_nodes().long())
    plain.set_batch_num_edges(graph.batch_num_edges().long())
    return plain


def as_columns(name: str, rows: Tensor) -> Tensor:
    """Numbers as they are; whole numbers are kinds, told apart by their place among a fixed number of them, so that the
    columns are the same on a graph that lacks some kinds."""
    if rows.is_complex():
        raise InputError(f"the edge data '{name}' must hold real numbers (got {rows.dtype}).")
    flat = rows.unsqueeze(1).flatten(1)
    if rows.is_floating_point() or rows.dtype == torch.bool:
        if not bool(flat.float().isfinite().all()):
            raise InputError(f"the edge data '{name}' must be finite (some are NaN or infinity); fill or remove them.")
        return flat.float()
    return torch.nn.functional.one_hot(flat.long() % KINDS, KINDS).flatten(1).float()

"""Edge data outside the game's graph: `edata[EDGE_ID]` holds edge ids, and f gets the data of those edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara.blackbox.call import Model
from dgl_lara.blackbox.input_adapter import EDGE_ID, InputAdapter, as_columns, gather_rows
from dgl_lara.graphs.graph import without_data


class WithEdgeData(InputAdapter):
    """f on a homogeneous graph, called with the edge data of the full graph."""

    data: dict[str, Tensor]  # name -> (num_edges of the full graph, ...)
    edge_data_is_optional = True

    def forward(self, graph: dgl.DGLGraph, features: Tensor, *ends: Tensor) -> Any:
        with graph.local_scope():
            edge_ids = graph.edata.pop(EDGE_ID)
            for name, rows in self.data.items():
                graph.edata[name] = gather_rows(rows, edge_ids)
            return self.model(graph, features, *ends)

    def edge_columns(self) -> Tensor:
        return torch.cat([as_columns(name, rows) for name, rows in sorted(self.data.items())], dim=1)


def detach_edge_data(model: Callable, graph: dgl.DGLGraph) -> tuple[Model, dgl.DGLGraph]:
    """Return f and the graph for the game, unchanged if edges carry no data or the data is detached already."""
    data = {name: rows for name, rows in graph.edata.items() if name not in (dgl.EID, dgl.ETYPE)}
    if not data or EDGE_ID in data:
        return model, graph
    plain = without_data(graph)
    plain.edata[EDGE_ID] = torch.arange(graph.num_edges(), device=graph.device)
    return WithEdgeData(model, data=data), plain


def without_edge_data(model: Callable, graph: dgl.DGLGraph) -> tuple[Model, dgl.DGLGraph]:
    """Return f and the graph with all edge data dropped."""
    return model.model if isinstance(model, WithEdgeData) else model, without_data(graph) if graph.edata else graph

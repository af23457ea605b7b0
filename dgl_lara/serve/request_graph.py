"""The graph of a request, built for the explainer of the run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara.blackbox.edge_data import WithEdgeData
from dgl_lara.blackbox.hetero import HeteroAdapter
from dgl_lara.blackbox.hetero_index import Relation
from dgl_lara.errors import InputError
from dgl_lara.lara import LARA
from dgl_lara.serve.schemas import Edges, Rows, Subgraph


def lara_on_subgraph(lara: LARA, subgraph: Subgraph, pair: tuple[int, int] | None) -> LARA:
    """Return the explainer on the graph of a request, for one link of it if links are explained."""
    features: Any
    if isinstance(lara.model, HeteroAdapter):
        graph, features = _hetero_graph(lara.model, subgraph)
    else:
        graph, features = _plain_graph(lara, subgraph)
    return lara.on_graph(graph, features, None if pair is None else [pair])


def _plain_graph(lara: LARA, subgraph: Subgraph) -> tuple[dgl.DGLGraph, Tensor]:
    if isinstance(subgraph.features, dict) or isinstance(subgraph.edges, dict):
        raise InputError("subgraph.one_type")
    features = _features(subgraph.features, lara.features, "subgraph.features")
    src, dst = _ends(subgraph.edges, len(features), len(features), "subgraph.edges")
    graph = dgl.graph((src, dst), num_nodes=len(features))
    columns = lara.model.data if isinstance(lara.model, WithEdgeData) else {}
    required = columns if lara.explainer_.config.edge_columns else {}
    graph.edata.update(_edge_data(subgraph.edge_data, columns, required, len(src), "subgraph.edge_data"))
    return graph, features


def _hetero_graph(model: HeteroAdapter, subgraph: Subgraph) -> tuple[dgl.DGLGraph, dict[str, Tensor]]:
    types = model.types
    if not isinstance(subgraph.features, dict) or not (isinstance(subgraph.edges, dict) or subgraph.edges == []):
        raise InputError("subgraph.several_types", types=_listed(types.node_types))
    edges = subgraph.edges if isinstance(subgraph.edges, dict) else {}
    relations = dict(zip(types.relation_names, types.relations, strict=True))
    _check_names(subgraph.features, types.node_types, "subgraph.features")
    _check_names(edges, relations, "subgraph.edges")
    _check_names(subgraph.edge_data, relations, "subgraph.edge_data")
    features = {
        name: _features(subgraph.features.get(name, []), model.features[name], f"subgraph.features.{name}")
        for name in types.node_types
    }
    ends: dict[Relation, tuple[Tensor, Tensor]] = {}
    for name, relation in relations.items():
        sizes = len(features[relation[0]]), len(features[relation[2]])
        ends[relation] = _ends(edges.get(name, []), *sizes, f"subgraph.edges.{name}")
    graph = dgl.heterograph(ends, {name: len(rows) for name, rows in features.items()})
    for name, relation in relations.items():
        field, columns = f"subgraph.edge_data.{name}", model.data[relation]
        data = _edge_data(subgraph.edge_data.get(name, {}), columns, columns, len(ends[relation][0]), field)
        graph.edges[relation].data.update(data)
    return graph, features


def _features(rows: Rows, like: Tensor, field: str) -> Tensor:
    width = like.shape[1]
    for index, row in enumerate(rows):
        check_row(row, width, f"{field}.{index}")
    features = torch.tensor(rows, dtype=like.dtype).view(-1, width)
    check_finite(features, field)
    return features


def check_row(row: list[float], width: int, field: str) -> None:
    """Raise if a row of features has another width."""
    if len(row) != width:
        raise InputError("features.width", field=field, width=width, got=len(row))


def check_finite(values: Tensor, field: str) -> None:
    """Raise if a number is too large for the type of the features."""
    if not bool(torch.isfinite(values).all()):
        raise InputError("features.not_finite", field=field)


def _ends(edges: Edges, sources: int, destinations: int, field: str) -> tuple[Tensor, Tensor]:
    ends = torch.tensor(edges, dtype=torch.long).view(-1, 2)
    for column, count in zip(ends.unbind(1), (sources, destinations), strict=True):
        if len(column) and int(column.max()) >= count:
            raise InputError("subgraph.edge_range", field=field, most=count - 1, got=int(column.max()))
    return ends[:, 0], ends[:, 1]


def _edge_data(
    data: Any, columns: Mapping[str, Tensor], required: Mapping[str, Tensor], num_edges: int, field: str
) -> dict[str, Tensor]:
    """Return the data of edges in the types that the model reads."""
    if not isinstance(data, dict):
        raise InputError("subgraph.edge_data_shape", field=field)
    _check_names(data, columns, field)
    for name in required:
        if name not in data and num_edges:
            raise InputError("subgraph.edge_data_missing", field=field, name=name)
    tensors = {}
    for name, like in required.items():
        rows, shape = data.get(name, []), tuple(like.shape[1:])
        try:
            tensors[name] = torch.tensor(rows, dtype=torch.double).view(num_edges, *shape).to(like.dtype)
        except (TypeError, ValueError, RuntimeError) as error:
            expected = f"{num_edges} lists of {shape[0]} numbers" if shape else f"{num_edges} numbers, one an edge"
            raise InputError("subgraph.edge_column", field=f"{field}.{name}", expected=expected) from error
    return tensors


def _check_names(names: Collection[str], valid: Collection[str], field: str) -> None:
    for name in names:
        if name not in valid:
            raise InputError("subgraph.unknown_name", field=field, valid=_listed(valid) or "nothing", got=name)


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(str, names))

"""Models and data of PyTorch Geometric, homogeneous and heterogeneous."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import dgl
import torch
from torch import Tensor, nn

from dgl_lara.blackbox.adapter import ModelAdapter
from dgl_lara.blackbox.call import Model
from dgl_lara.errors import InputError, ModelError


def pyg(model: Callable, task: str = "node") -> PyG:
    """Adapt a PyTorch Geometric model without its data, for `--model` on the command line.

    Args:
        model: Called as model(x, edge_index), with batch=... in a graph task. A model of one argument gets a Data
            object. Edge data (graph.edata) go to arguments of their name, such as edge_attr, edge_weight or edge_type.
            On heterogeneous graphs all of these are dicts, model(x_dict, edge_index_dict), with edge_attr_dict or
            edge_attr. A model of one argument gets a HeteroData. A link model gets edge_label_index, or both ends one
            after the other.
        task: "node" or "graph".

    Returns:
        f(graph, features), for `LARA`.

    Examples:
        >>> def build_model(in_dim, num_classes):
        ...     return pyg(Net(in_dim, num_classes))
    """
    for name, module in model.named_modules() if isinstance(model, nn.Module) else ():
        if getattr(module, "cached", False):
            raise InputError("pyg.cached_layer", layer=name)
        if getattr(module, "flow", None) == "target_to_source":
            raise InputError("pyg.reversed_layer", layer=name)
    arguments = inspect.signature(model.forward if isinstance(model, nn.Module) else model).parameters.values()
    accepted = [one for one in arguments if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    required = [one.name for one in accepted if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    names = tuple(one.name for one in accepted[2:])
    return PyG(model, task=task, takes_data=len(required) == 1, accepted=names, required=tuple(required[2:]))


class PyG(ModelAdapter):
    """A PyTorch Geometric model as f(graph, features)."""

    task: str
    takes_data: bool  # it takes a Data or HeteroData object
    accepted: tuple[str, ...] = ()  # arguments besides x and edge_index
    required: tuple[str, ...] = ()  # those without a default
    calls_pyg = True  # read by `call.py` to detect unwrapped models

    def accepts(self, name: str) -> bool:
        """Return whether the model can read edge data of this name."""
        return self.takes_data or name in self.accepted or f"{name}_dict" in self.accepted

    def forward(self, graph: dgl.DGLGraph, features: Tensor | dict[str, Tensor], *ends: Tensor) -> Any:
        batch = _graph_of_node(graph) if self.task == "graph" else None
        pair = {"edge_label_index": torch.stack(ends)} if ends else {}
        if self.takes_data:
            return self.model(_to_data(graph, features, batch=batch, **pair))
        if "edge_label_index" in self.accepted:
            ends = ()
        else:
            pair = {}
        edge_index: Any = torch.stack(graph.edges()) if isinstance(features, Tensor) else _edge_index_dict(graph)
        named = {} if batch is None else {"batch": batch}
        for name, rows in _edge_data(graph, features).items():
            named |= {argument: rows for argument in (name, f"{name}_dict") if argument in self.accepted}
        missing = [name for name in self.required[len(ends) :] if name not in {*named, *pair, "batch"}]
        if missing:
            carried = ", ".join(f"'{name}'" for name in _edge_data(graph, features)) or "no data"
            raise ModelError("adapter.no_edge_data", column=missing[0], carried=carried)
        return self.model(features, edge_index, *ends, **named, **pair)


def from_pyg(model: Callable, data: Any, task: str = "node") -> tuple[Model, dgl.DGLGraph, Any]:
    """Convert a PyTorch Geometric model and its data.

    Args:
        model: As for `pyg`.
        data: A Data or a HeteroData. For a graph task a Batch or a list of Data. Edge data (edge_attr, edge_weight,
            edge_type) are kept if the model has an argument of that name.
        task: "node" or "graph".

    Returns:
        f, graph and features, for `LARA`. A HeteroData becomes a heterogeneous graph and {type: x}.

    Examples:
        >>> LARA(*from_pyg(model, data)).fit(nodes)
        >>> LARA(*from_pyg(model, hetero_data), target_type="author").fit(authors)
    """
    from torch_geometric.data import Batch, HeteroData
    from torch_geometric.data.data import BaseData

    if isinstance(data, Sequence):
        data = Batch.from_data_list(list(data))
    if not isinstance(data, BaseData):
        raise InputError("pyg.data_type", got=type(data).__name__)
    f = pyg(model, task)
    if isinstance(data, HeteroData):
        return f, *_hetero_graph(data, f.accepts)
    for name in ("x", "edge_index"):
        if getattr(data, name, None) is None:
            raise InputError("pyg.missing", name=name, got=", ".join(data.keys()))
    if data.edge_index.dim() != 2 or len(data.edge_index) != 2:
        raise InputError("pyg.edge_index_shape", got=tuple(data.edge_index.shape))
    if data.edge_index.numel() and int(data.edge_index.max()) >= len(data.x):
        raise InputError("pyg.edge_index_range", most=len(data.x) - 1, got=int(data.edge_index.max()))
    graph = dgl.graph(tuple(data.edge_index), num_nodes=data.num_nodes)
    graph.edata.update(_readable_edge_data(data, f.accepts))
    if task == "graph" and getattr(data, "batch", None) is not None:
        count = int(data.batch.max()) + 1
        graph.set_batch_num_nodes(torch.bincount(data.batch, minlength=count))
        graph.set_batch_num_edges(torch.bincount(data.batch[data.edge_index[0]], minlength=count))
    return f, graph, data.x


def _hetero_graph(data: Any, accepts: Callable[[str], bool]) -> tuple[dgl.DGLGraph, dict[str, Tensor]]:
    for node_type in data.node_types:
        if data[node_type].get("x") is None:
            raise InputError("pyg.missing_x", type=node_type, count=data[node_type].num_nodes)
    for relation in data.edge_types:
        if data[relation].get("edge_index") is None:
            raise InputError("pyg.missing_edge_index", relation=relation)
    x = {node_type: data[node_type].x for node_type in data.node_types}
    edges = {relation: tuple(data[relation].edge_index) for relation in data.edge_types}
    graph = dgl.heterograph(edges, num_nodes_dict={node_type: len(rows) for node_type, rows in x.items()})
    for relation in data.edge_types:
        graph.edges[relation].data.update(_readable_edge_data(data[relation], accepts))
    return graph, x


def _readable_edge_data(store: Any, accepts: Callable[[str], bool]) -> dict[str, Tensor]:
    """Return the edge data of a Data, or of one relation of a HeteroData, that the model can read."""
    count = store.edge_index.shape[1]
    return {
        name: rows
        for name, rows in store.items()
        if isinstance(rows, Tensor) and rows.dim() and len(rows) == count and "index" not in name
        and store.is_edge_attr(name) and accepts(name)
    }  # fmt: skip


def _to_data(graph: dgl.DGLGraph, features: Any, **fields: Any) -> Any:
    from torch_geometric.data import Data, HeteroData

    fields = {name: rows for name, rows in fields.items() if rows is not None}
    if isinstance(features, Tensor):
        return Data(x=features, edge_index=torch.stack(graph.edges()), **_edge_data(graph, features), **fields)
    data = HeteroData(**fields)
    for node_type, rows in features.items():
        data[node_type].x = rows
    for relation, edge_index in _edge_index_dict(graph).items():
        data[relation].edge_index = edge_index
        data[relation].update(dict(graph.edges[relation].data))
    return data


def _edge_index_dict(graph: dgl.DGLGraph) -> dict[tuple[str, str, str], Tensor]:
    return {relation: torch.stack(graph.edges(etype=relation)) for relation in graph.canonical_etypes}


def _edge_data(graph: dgl.DGLGraph, features: Any) -> dict[str, Any]:
    """Return the edge data by name, on heterogeneous graphs {name: {relation: rows}}."""
    if isinstance(features, Tensor):
        return dict(graph.edata)
    by_name: dict[str, Any] = {}
    for relation in graph.canonical_etypes:
        for name, rows in graph.edges[relation].data.items():
            by_name.setdefault(name, {})[relation] = rows
    return by_name


def _graph_of_node(graph: dgl.DGLGraph) -> Tensor:
    sizes = graph.batch_num_nodes()
    return torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)

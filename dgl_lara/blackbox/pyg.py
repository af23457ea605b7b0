"""Models and data of PyTorch Geometric, with one type of node or several."""

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
    """A PyTorch Geometric model without its data: for `--model` on the command line, where the graph is a file.

    Args:
        model: Called as model(x, edge_index), with batch=... in a graph task; a model of one argument gets a Data
            object. What edges carry (graph.edata) is given by name to a model that takes it: edge_attr, edge_weight,
            edge_type. On graphs of several types all of these are dicts, model(x_dict, edge_index_dict), with
            edge_attr_dict or edge_attr; a model of one argument gets a HeteroData. Where links are asked about,
            edge_label_index is given, or both ends one after the other.
        task: "node" or "graph".

    Returns:
        f(graph, features), for `LARA`.

    Examples:
        >>> def build_model(in_dim, num_classes):
        ...     return pyg(Net(in_dim, num_classes))
    """
    cached = [name for name, part in _modules(model) if getattr(part, "cached", False)]
    if cached:
        raise InputError(
            f"the layer '{cached[0]}' was built with cached=True and would not notice that nodes are removed; "
            "build the model with cached=False and load its weights into that."
        )
    backward = [name for name, part in _modules(model) if getattr(part, "flow", None) == "target_to_source"]
    if backward:
        raise InputError(
            f"the layer '{backward[0]}' sends messages from target to source, but what reaches a node is looked for "
            "along edges as they point; build it with flow='source_to_target' and turn the edges (edge_index.flip(0))."
        )
    arguments = inspect.signature(model.forward if isinstance(model, nn.Module) else model).parameters.values()
    taken = [one for one in arguments if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    needed = [one.name for one in taken if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    names = tuple(one.name for one in taken[2:])
    return PyG(model, task=task, takes_data=len(needed) == 1, taken=names, needed=tuple(needed[2:]))


class PyG(ModelAdapter):
    task: str
    takes_data: bool
    taken: tuple[str, ...] = ()  # arguments beside x and edge_index
    needed: tuple[str, ...] = ()  # those of them that have no default
    calls_pyg = True  # for `blackbox`, which tells a model that is not wrapped

    def takes(self, name: str) -> bool:
        """Whether the model makes anything of edge data of this name."""
        return self.takes_data or name in self.taken or f"{name}_dict" in self.taken

    def forward(self, graph: dgl.DGLGraph, features: Tensor | dict[str, Tensor], *ends: Tensor) -> Any:
        batch = _graph_of_node(graph) if self.task == "graph" else None
        pair = {"edge_label_index": torch.stack(ends)} if ends else {}
        if self.takes_data:
            return self.model(_data_of(graph, features, batch=batch, **pair))
        if "edge_label_index" in self.taken:
            ends = ()
        else:
            pair = {}
        edge_index: Any = torch.stack(graph.edges()) if isinstance(features, Tensor) else _by_relation(graph)
        named = {} if batch is None else {"batch": batch}
        for name, rows in _edge_data(graph, features).items():
            named |= {called: rows for called in (name, f"{name}_dict") if called in self.taken}
        lacking = [name for name in self.needed[len(ends) :] if name not in {*named, *pair, "batch"}]
        if lacking:
            held = ", ".join(f"'{name}'" for name in _edge_data(graph, features)) or "nothing"
            raise ModelError(f"the model takes '{lacking[0]}', but the edges carry {held}; name it as the data does.")
        return self.model(features, edge_index, *ends, **named, **pair)


def from_pyg(model: Callable, data: Any, task: str = "node") -> tuple[Model, dgl.DGLGraph, Any]:
    """A PyTorch Geometric model and its data.

    Args:
        model: As for `pyg`.
        data: A Data or a HeteroData; for a graph task a Batch, or a list of Data. What its edges carry (edge_attr,
            edge_weight, edge_type) is handed on to a model that takes an argument of that name.
        task: "node" or "graph".

    Returns:
        f, graph and features, for `LARA`; of a HeteroData, a graph of several types and {type: x}.

    Examples:
        >>> LARA(*from_pyg(model, data)).fit(nodes)
        >>> LARA(*from_pyg(model, hetero_data), target_type="author").fit(authors)
    """
    from torch_geometric.data import Batch, HeteroData
    from torch_geometric.data.data import BaseData

    if isinstance(data, Sequence):
        data = Batch.from_data_list(list(data))
    if not isinstance(data, BaseData):
        raise InputError(f"from_pyg takes a model and PyG data, in this order (got a {type(data).__name__} as data).")
    f = pyg(model, task)
    if isinstance(data, HeteroData):
        return f, *_typed_graph(data, f.takes)
    for name in ("x", "edge_index"):
        if getattr(data, name, None) is None:
            raise InputError(f"the PyG data must have {name} (it has {', '.join(data.keys())}).")
    if data.edge_index.dim() != 2 or len(data.edge_index) != 2:
        raise InputError(f"edge_index must have two rows, from and to (got shape {tuple(data.edge_index.shape)}).")
    if data.edge_index.numel() and int(data.edge_index.max()) >= len(data.x):
        most = int(data.edge_index.max())
        raise InputError(f"edge_index must name nodes 0..{len(data.x) - 1}, the rows of x (got {most}).")
    graph = dgl.graph(tuple(data.edge_index), num_nodes=data.num_nodes)
    graph.edata.update(_carried(data, f.takes))
    if task == "graph":
        _mark_graphs(graph, data)
    return f, graph, data.x


def _typed_graph(data: Any, takes: Callable[[str], bool]) -> tuple[dgl.DGLGraph, dict[str, Tensor]]:
    x = {}
    for kind in data.node_types:
        if data[kind].get("x") is None:
            raise InputError(
                f"the PyG data must have x of every node type, and '{kind}' has none; give it a column of ones, "
                f"data['{kind}'].x = torch.ones({data[kind].num_nodes}, 1), or what the model looks its nodes up by."
            )
        x[kind] = data[kind].x
    edges = {}
    for relation in data.edge_types:
        if data[relation].get("edge_index") is None:
            raise InputError(f"the PyG data must have edge_index of every relation, and {relation} has none.")
        edges[relation] = tuple(data[relation].edge_index)
    graph = dgl.heterograph(edges, num_nodes_dict={kind: len(rows) for kind, rows in x.items()})
    for relation in data.edge_types:
        graph.edges[relation].data.update(_carried(data[relation], takes))
    return graph, x


def _carried(store: Any, takes: Callable[[str], bool]) -> dict[str, Tensor]:
    """What the edges of a Data, or of one relation, carry: one row an edge."""
    count = store.edge_index.shape[1]
    return {
        name: rows
        for name, rows in store.items()
        if isinstance(rows, Tensor) and rows.dim() and len(rows) == count and "index" not in name
        and store.is_edge_attr(name) and takes(name)
    }  # fmt: skip


def _data_of(graph: dgl.DGLGraph, features: Any, **more: Any) -> Any:
    from torch_geometric.data import Data, HeteroData

    more = {name: rows for name, rows in more.items() if rows is not None}
    if isinstance(features, Tensor):
        return Data(x=features, edge_index=torch.stack(graph.edges()), **_edge_data(graph, features), **more)
    data = HeteroData(**more)
    for kind, rows in features.items():
        data[kind].x = rows
    for relation, edge_index in _by_relation(graph).items():
        data[relation].edge_index = edge_index
        data[relation].update(dict(graph.edges[relation].data))
    return data


def _by_relation(graph: dgl.DGLGraph) -> dict[tuple[str, str, str], Tensor]:
    return {relation: torch.stack(graph.edges(etype=relation)) for relation in graph.canonical_etypes}


def _edge_data(graph: dgl.DGLGraph, features: Any) -> dict[str, Any]:
    """By name; on graphs of several types {relation: rows} each."""
    if isinstance(features, Tensor):
        return dict(graph.edata)
    found: dict[str, Any] = {}
    for relation in graph.canonical_etypes:
        for name, rows in graph.edges[relation].data.items():
            found.setdefault(name, {})[relation] = rows
    return found


def _modules(model: Callable) -> list[tuple[str, nn.Module]]:
    return list(model.named_modules()) if isinstance(model, nn.Module) else []


def _mark_graphs(graph: dgl.DGLGraph, data: Any) -> None:
    """The batch vector of PyG as DGL's sizes; data without one is a single graph."""
    if getattr(data, "batch", None) is None:
        return
    count = int(data.batch.max()) + 1
    graph.set_batch_num_nodes(torch.bincount(data.batch, minlength=count))
    graph.set_batch_num_edges(torch.bincount(data.batch[data.edge_index[0]], minlength=count))


def _graph_of_node(graph: dgl.DGLGraph) -> Tensor:
    sizes = graph.batch_num_nodes()
    return torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)

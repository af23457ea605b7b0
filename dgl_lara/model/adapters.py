"""Models that are called otherwise than f(graph, features) -> logits, each adapted in a line.

features_in_graph(model)            model(graph), with the features in graph.ndata['feat']
keywords(model, features="x")       model(graph, x=features), and other fixed arguments
element(model, 0)                   one element of an output tuple, list or dict
head(model, 2), head(model, "mean") one of several heads, (rows, heads, classes)
from_pyg(model, data)               a PyTorch Geometric model and its data

They can be put into one another. Outputs of one number a row need none of them: `value="logit"` takes the number for
the logit of class 1 of two, `value="output"` (regression) for itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import dgl
import torch
from torch import Tensor, nn

from dgl_lara.errors import InputError, ModelError
from dgl_lara.model.blackbox import Model


class Adapted(nn.Module):
    """A model called in another way. It stays a submodule, so that eval mode reaches its dropout."""

    def __init__(self, model: Callable, forward: Callable[[dgl.DGLGraph, Tensor], Any]) -> None:
        super().__init__()
        self.model, self.call = model, forward
        if hasattr(model, "num_hops"):
            self.num_hops = model.num_hops

    def forward(self, graph: dgl.DGLGraph, features: Tensor) -> Tensor:
        return self.call(graph, features)


def unwrapped(model: Callable) -> Callable:
    """The model inside its adapters."""
    while isinstance(model, Adapted):
        model = model.model
    return model


def features_in_graph(model: Callable, name: str = "feat") -> Model:
    """For model(graph) that reads its features from the graph.

    Args:
        model: Called with the graph alone.
        name: Where it looks, graph.ndata[name].

    Returns:
        f(graph, features), for `LARA`.

    Example:
        >>> LARA(features_in_graph(model), graph, graph.ndata["feat"])
    """

    def forward(graph: dgl.DGLGraph, features: Tensor) -> Any:
        with graph.local_scope():
            graph.ndata[name] = features
            return model(graph)

    return Adapted(model, forward)


def keywords(model: Callable, features: str = "features", graph: str | None = None, **others: Any) -> Model:
    """For a model that is called by keywords.

    Args:
        model: Called as model(graph, <features>=..., ...).
        features: What it calls the features.
        graph: What it calls the graph, where that too is given by keyword.
        others: Further arguments, the same in every call.

    Example:
        >>> keywords(model, graph="g", features="inputs", training=False)
    """

    def forward(of: dgl.DGLGraph, x: Tensor) -> Any:
        named = {features: x, **others}
        return model(of, **named) if graph is None else model(**{graph: of}, **named)

    return Adapted(model, forward)


def element(model: Callable, which: int | str) -> Model:
    """For a model that returns several things.

    Args:
        model: Returns a tuple, a list or a dict.
        which: The place or the key of the logits in it.

    Example:
        >>> element(model, "logits")
    """

    def forward(graph: dgl.DGLGraph, features: Tensor) -> Any:
        output = model(graph, features)
        try:
            return output[which]
        except (KeyError, IndexError, TypeError) as error:
            held = list(output) if isinstance(output, dict) else f"{len(output)} elements"
            raise ModelError(f"the model's output has no element {which!r} (it has {held}).") from error

    return Adapted(model, forward)


def head(model: Callable, which: int | str) -> Model:
    """For a model with several heads.

    Args:
        model: Returns (rows, heads, classes).
        which: The number of one of them, or "mean".

    Example:
        >>> head(model, "mean")
    """
    if isinstance(which, str) and which != "mean":
        raise InputError(f"head must be a number or 'mean' (got '{which}').")

    def forward(graph: dgl.DGLGraph, features: Tensor) -> Tensor:
        output = model(graph, features)
        if output.dim() != 3:
            raise ModelError(f"head chooses from (rows, heads, classes) (got {tuple(output.shape)}).")
        if isinstance(which, str):
            return output.mean(dim=1)
        if not -output.shape[1] <= which < output.shape[1]:
            raise ModelError(f"the model has {output.shape[1]} heads, numbered from 0 (asked for {which}).")
        return output[:, which]

    return Adapted(model, forward)


def from_pyg(model: Callable, data: Any, task: str = "node") -> tuple[Model, dgl.DGLGraph, Tensor]:
    """A PyTorch Geometric model and its data.

    Args:
        model: Called as model(x, edge_index), with batch=... in a graph task; a model of one argument gets a Data
            object. Edge attributes are not handed on (see `game/removal.py`).
        data: A Data; for a graph task a Batch, or a list of Data.
        task: "node" or "graph".

    Returns:
        f, graph and features, for `LARA`.

    Example:
        >>> LARA(*from_pyg(model, data)).fit(nodes)
    """
    from torch_geometric.data import Batch, Data

    if isinstance(data, Sequence):
        data = Batch.from_data_list(list(data))
    for name in ("x", "edge_index"):
        if getattr(data, name, None) is None:
            raise InputError(f"the PyG data must have {name} (it has {', '.join(data.keys())}).")
    cached = [name for name, part in _modules(model) if getattr(part, "cached", False)]
    if cached:
        raise InputError(
            f"the layer '{cached[0]}' was built with cached=True and would not notice that nodes are removed; "
            "build the model with cached=False and load its weights into that."
        )
    graph = dgl.graph(tuple(data.edge_index), num_nodes=data.num_nodes)
    if task == "graph":
        _mark_graphs(graph, data)
    arguments = inspect.signature(model.forward if isinstance(model, nn.Module) else model).parameters.values()
    needed = [one for one in arguments if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    takes_data = len(needed) == 1

    def forward(of: dgl.DGLGraph, x: Tensor) -> Any:
        edge_index, batch = torch.stack(of.edges()), _graph_of_node(of) if task == "graph" else None
        if takes_data:
            return model(Data(x=x, edge_index=edge_index, batch=batch))
        return model(x, edge_index) if batch is None else model(x, edge_index, batch=batch)

    return Adapted(model, forward), graph, data.x


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

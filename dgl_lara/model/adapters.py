"""Models that are called otherwise than f(graph, features) -> logits, each adapted in a line.

features_in_graph(model)            model(graph), with the features in graph.ndata['feat']
keywords(model, features="x")       model(graph, x=features), and other fixed arguments
element(model, 0)                   one element of an output tuple, list or dict
head(model, 2), head(model, "mean") one of several heads, (rows, heads, classes)
from_pyg(model, data)               a PyTorch Geometric model and its data
pyg(model)                          the model alone, where the graph comes from a file

They can be put into one another. Outputs of one number a row need none of them: `value="logit"` takes the number for
the logit of class 1 of two, `value="output"` (regression) for itself.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import dgl
import torch
from torch import Tensor, nn

from dgl_lara.errors import InputError, ModelError
from dgl_lara.model.blackbox import Model


class Adapted(nn.Module):
    """A model called in another way. It stays a submodule, so that eval mode reaches its dropout.

    Each way of calling is a class of its own, not a local function, so that an adapted model can be stored whole.
    """

    def __init__(self, model: Callable, **settings: Any) -> None:
        super().__init__()
        self.model = model
        if hasattr(model, "num_hops"):
            self.num_hops = model.num_hops
        for name, value in settings.items():
            setattr(self, name, value)

    def around(self, model: Callable) -> Adapted:
        """The same adapter around another model."""
        other = copy.copy(self)
        vars(other).update(_modules=dict(self._modules))
        other.model = model
        return other


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

    Examples:
        >>> LARA(features_in_graph(model), graph, graph.ndata["feat"])
    """
    return FeaturesInGraph(model, name=name)


class FeaturesInGraph(Adapted):
    name: str

    def forward(self, graph: dgl.DGLGraph, features: Tensor) -> Any:
        with graph.local_scope():
            graph.ndata[self.name] = features
            return self.model(graph)


def keywords(model: Callable, features: str = "features", graph: str | None = None, **others: Any) -> Model:
    """For a model that is called by keywords.

    Args:
        model: Called as model(graph, <features>=..., ...).
        features: What it calls the features.
        graph: What it calls the graph, where that too is given by keyword.
        others: Further arguments, the same in every call.

    Examples:
        >>> keywords(model, graph="g", features="inputs", training=False)
    """
    return Keywords(model, features=features, graph=graph, others=others)


class Keywords(Adapted):
    features: str
    graph: str | None
    others: dict[str, Any]

    def forward(self, graph: dgl.DGLGraph, features: Tensor) -> Any:
        named = {self.features: features, **self.others}
        return self.model(graph, **named) if self.graph is None else self.model(**{self.graph: graph}, **named)


def element(model: Callable, which: int | str) -> Model:
    """For a model that returns several things.

    Args:
        model: Returns a tuple, a list or a dict.
        which: The place or the key of the logits in it.

    Examples:
        >>> element(model, "logits")
    """
    return Element(model, which=which)


class Element(Adapted):
    which: int | str

    def forward(self, graph: dgl.DGLGraph, features: Tensor) -> Any:
        output = self.model(graph, features)
        try:
            return output[self.which]
        except (KeyError, IndexError, TypeError) as error:
            held = list(output) if isinstance(output, dict) else f"{len(output)} elements"
            raise ModelError(f"the model's output has no element {self.which!r} (it has {held}).") from error


def head(model: Callable, which: int | str) -> Model:
    """For a model with several heads.

    Args:
        model: Returns (rows, heads, classes).
        which: The number of one of them, or "mean".

    Examples:
        >>> head(model, "mean")
    """
    if isinstance(which, str) and which != "mean":
        raise InputError(f"head must be a number or 'mean' (got '{which}').")
    return Head(model, which=which)


class Head(Adapted):
    which: int | str

    def forward(self, graph: dgl.DGLGraph, features: Tensor) -> Tensor:
        output = self.model(graph, features)
        if output.dim() != 3:
            raise ModelError(f"head chooses from (rows, heads, classes) (got {tuple(output.shape)}).")
        if isinstance(self.which, str):
            return output.mean(dim=1)
        if not -output.shape[1] <= self.which < output.shape[1]:
            raise ModelError(f"the model has {output.shape[1]} heads, numbered from 0 (asked for {self.which}).")
        return output[:, self.which]


def pyg(model: Callable, task: str = "node") -> Model:
    """A PyTorch Geometric model without its data: for `--model` on the command line, where the graph is a file.

    Args:
        model: Called as model(x, edge_index), with batch=... in a graph task; a model of one argument gets a Data
            object. Edge attributes are not handed on (see `game/removal.py`).
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
    needed = [one for one in arguments if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    return PyG(model, task=task, takes_data=len(needed) == 1)


class PyG(Adapted):
    task: str
    takes_data: bool
    calls_pyg = True  # for `blackbox`, which tells a model that is not wrapped

    def forward(self, graph: dgl.DGLGraph, features: Tensor) -> Any:
        edge_index = torch.stack(graph.edges())
        batch = _graph_of_node(graph) if self.task == "graph" else None
        if self.takes_data:
            from torch_geometric.data import Data

            return self.model(Data(x=features, edge_index=edge_index, batch=batch))
        return self.model(features, edge_index) if batch is None else self.model(features, edge_index, batch=batch)


def from_pyg(model: Callable, data: Any, task: str = "node") -> tuple[Model, dgl.DGLGraph, Tensor]:
    """A PyTorch Geometric model and its data.

    Args:
        model: As for `pyg`.
        data: A Data; for a graph task a Batch, or a list of Data.
        task: "node" or "graph".

    Returns:
        f, graph and features, for `LARA`.

    Examples:
        >>> LARA(*from_pyg(model, data)).fit(nodes)
    """
    from torch_geometric.data import Batch

    if isinstance(data, Sequence):
        data = Batch.from_data_list(list(data))
    for name in ("x", "edge_index"):
        if getattr(data, name, None) is None:
            raise InputError(f"the PyG data must have {name} (it has {', '.join(data.keys())}).")
    f, graph = pyg(model, task), dgl.graph(tuple(data.edge_index), num_nodes=data.num_nodes)
    if task == "graph":
        _mark_graphs(graph, data)
    return f, graph, data.x


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

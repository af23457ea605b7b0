"""Calls of f, with one error message for each thing that can be wrong with its output."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.errors import InputError, ModelError
from dgl_lara.graphs.graph import Graph

Model = Callable[..., Tensor]  # f(graph, features), or f(graph, features, u, v) for pairs of nodes
RELATIVE_TOLERANCE = 1e-4  # of the largest output: sums on a GPU come in any order


@runtime_checkable
class LayerwiseModel(Protocol):
    """A model whose f(graph, features) is `read_out` of the states after each layer. User models may implement it."""

    num_hops: int  # the number of layers

    def layer(self, index: int, graph: Graph, h: Tensor) -> Tensor:
        """Return (num_nodes, width) states after layer `index`, which may read in-neighbours and degrees."""

    def read_out(self, states: list[Tensor]) -> Tensor:
        """Return (num_nodes, num_classes) logits from the states after each layer."""


def call_model(f: Model, graph: Graph, features: Tensor, rows: int, target: str, *ends: Tensor) -> Tensor:
    """Return (rows, columns) float outputs of f. Raise ModelError if they are anything else.

    Args:
        f: The model.
        graph: Its graph.
        features: (num_nodes, columns) node features.
        rows: Number of targets in the graph.
        target: "node", "graph" or "link", for the error message.
        ends: Indices of both ends of each link.
    """
    try:
        outputs = f(graph, features, *ends)
    except ModelError:
        raise
    except Exception as error:  # a user's model may raise anything
        raise _explain_failure(f, error, graph, features) from error
    if isinstance(outputs, np.ndarray):
        raise ModelError("model.numpy_output")
    if not isinstance(outputs, Tensor):
        raise ModelError("model.output_type", got=_describe(outputs))
    if outputs.layout != torch.strided:
        raise ModelError("model.sparse_output", got=outputs.layout)
    outputs = outputs.unsqueeze(1) if outputs.dim() == 1 else outputs
    if outputs.is_complex():
        raise ModelError("model.complex_output", got=outputs.dtype)
    if outputs.dim() == 3 and len(outputs) == rows:
        raise ModelError("model.heads", target=target, rows=rows, got=tuple(outputs.shape))
    if outputs.dim() != 2 or len(outputs) != rows or not outputs.shape[1]:
        raise ModelError("model.rows", target=target, rows=rows, got=tuple(outputs.shape))
    if outputs.device != features.device:
        raise ModelError("model.output_device", expected=features.device, got=outputs.device)
    if not bool(torch.isfinite(outputs).all()):
        code = "model.not_finite" if bool(torch.isfinite(features).all()) else "model.features_not_finite"
        raise ModelError(code, nodes=graph.num_nodes(), edges=graph.num_edges())
    return outputs.float()


def _explain_failure(f: Model, error: Exception, graph: Graph, features: Tensor) -> ModelError:
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    cause = f"{type(error).__name__}: {text}"
    if _is_unwrapped_pyg(f):
        return ModelError("model.unwrapped_pyg", cause=cause)
    widths = re.search(r"cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)", text)
    if widths and int(widths[1]) == features.shape[1]:
        return ModelError("model.feature_columns", got=int(widths[1]), expected=int(widths[2]))
    if "0-in-degree" in text:
        return ModelError("model.zero_in_degree")
    if "dtype" in text and features.dtype != torch.float32:
        return ModelError("model.feature_dtype", got=str(features.dtype).removeprefix("torch."), cause=text)
    if "same device" in text:
        return ModelError("model.mixed_devices", features=features.device)
    if isinstance(error, KeyError):
        return ModelError("model.missing_key", key=text, carried=_edge_data_names(f))
    shapes = {"nodes": graph.num_nodes(), "edges": graph.num_edges(), "features": tuple(features.shape)}
    return ModelError("model.failed", **shapes, cause=cause)


def _edge_data_names(f: Model) -> str:
    """List the edge data that an input adapter gives to f."""
    data = getattr(f, "data", {})
    names = {name for key, value in data.items() for name in (value if isinstance(value, dict) else [key])}
    return ", ".join(f"'{name}'" for name in sorted(names)) or "no data"


def _is_unwrapped_pyg(f: Model) -> bool:
    """Return whether f has layers of PyTorch Geometric, but no adapter that calls them."""
    modules = list(f.modules()) if isinstance(f, nn.Module) else []
    if any(getattr(module, "calls_pyg", False) for module in modules):
        return False
    return any(base.__module__.startswith("torch_geometric.") for module in modules for base in type(module).__mro__)


def _describe(outputs: object) -> str:
    if isinstance(outputs, dict):
        return f"a dict of {', '.join(map(repr, outputs))}"
    if isinstance(outputs, tuple | list):
        return f"a {type(outputs).__name__} of {len(outputs)} elements"
    return type(outputs).__name__


def same_predictions(f: Model, graph: Graph, features: Tensor, expected: Tensor, target: str, *ends: Tensor) -> bool:
    """Return whether f runs on this graph and returns the expected outputs."""
    with eval_mode(f):
        try:
            outputs = call_model(f, graph, features, len(expected), target, *ends)
        except ModelError:
            return False
    return outputs.shape == expected.shape and _largest(outputs - expected) <= RELATIVE_TOLERANCE * _largest(expected)


def _largest(values: Tensor) -> float:
    return float(values.abs().max())


def predict_and_validate(f: Model, graph: Graph, features: Tensor, rows: int, target: str, *ends: Tensor) -> Tensor:
    """Return the outputs of f on the full graph after checking devices, determinism and side effects.

    Args:
        f: The model.
        graph: The full graph.
        features: (num_nodes, columns) node features.
        rows: Number of targets.
        target: "node", "graph" or "link", for error messages.
        ends: Indices of both ends of each link.
    """
    if len(features) != graph.num_nodes():
        raise InputError("features.rows", count=graph.num_nodes(), got=len(features))
    if graph.device != features.device:
        raise InputError("features.device", graph=graph.device, got=features.device)
    parameters = f.parameters() if isinstance(f, nn.Module) and not isinstance(f, OnDevice) else []
    other_devices = {str(parameter.device) for parameter in parameters} - {str(features.device)}
    if other_devices:
        raise InputError("model.device", got=min(other_devices), features=features.device)

    def state() -> tuple[int, tuple[int, int]]:
        return features._version, (graph.num_nodes(), graph.num_edges())

    before = state()
    with eval_mode(f):
        first, second = (call_model(f, graph, features, rows, target, *ends) for _ in range(2))
    after = state()
    if after != before:
        features_changed = after[0] != before[0]
        changed, copy = ("features", "x.clone()") if features_changed else ("graph", "graph.clone()")
        raise ModelError("model.changes_inputs", changed=changed, copy=copy)
    difference = _largest(first - second)
    if difference > RELATIVE_TOLERANCE * _largest(first):
        raise ModelError("model.not_deterministic", difference=difference)
    return first


class OnDevice(nn.Module):
    """f that moves its arguments to the device of the model and its outputs back."""

    def __init__(self, model: Callable, device: torch.device) -> None:
        super().__init__()
        self.model = model.to(device) if isinstance(model, nn.Module) else model
        self.device = device
        if hasattr(model, "num_hops"):
            self.num_hops = model.num_hops

    def forward(self, graph: Graph, features: Tensor | Mapping[str, Tensor], *ends: Tensor) -> Any:
        home = graph.device
        moved = features.to(self.device) if isinstance(features, Tensor) else _move(features, self.device)
        outputs = self.model(graph.to(self.device), moved, *(end.to(self.device) for end in ends))
        return outputs.to(home) if isinstance(outputs, Tensor) else _move(outputs, home)


def _move(by_type: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: rows.to(device) for name, rows in by_type.items()}

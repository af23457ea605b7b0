"""f as a black box: one call of it, and one sentence for whatever is wrong with it.

Whoever brings a model of their own meets these sentences first, so each says what was expected, what came, and what
to do about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import dgl
import numpy as np
import torch
from torch import Tensor, nn

from dgl_lara.blackbox.device import OnDevice
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.errors import InputError, ModelError

Model = Callable[..., Tensor]  # f(graph, features), or f(graph, features, u, v) where pairs are asked about
SAME = 1e-4  # answers may differ by so much of the largest one: sums on a GPU come in any order


def call_model(f: Model, graph: dgl.DGLGraph, features: Tensor, rows: int, what: str, *ends: Tensor) -> Tensor:
    """(rows, columns) float: what f says of each target (`what`: a node, a graph, a link). One number a row is a
    column. `ends`: what f is given besides, both ends of each link."""
    try:
        output = f(graph, features, *ends)
    except ModelError:
        raise
    except Exception as error:  # the model is not ours: it may raise anything
        raise ModelError(_failure(f, error, graph, features)) from error
    if isinstance(output, np.ndarray):
        raise ModelError("the model must return a torch tensor (got an array of NumPy); torch.from_numpy makes one.")
    if not isinstance(output, Tensor):
        raise ModelError(
            f"the model must return a tensor of logits (got {_described(output)}); choose a part of its output with "
            "dgl_lara.blackbox.adapters.element(model, WHICH)."
        )
    if output.layout != torch.strided:
        raise ModelError(f"the model must return a dense tensor (got {output.layout}); let it give output.to_dense().")
    output = output.unsqueeze(1) if output.dim() == 1 else output
    if output.dim() == 2 and not output.shape[1]:
        raise ModelError(f"the model must return at least one number a {what} (got {tuple(output.shape)}).")
    if output.is_complex():
        raise ModelError(f"the model must return real numbers (got {output.dtype}).")
    if output.dim() == 3 and len(output) == rows:
        raise ModelError(
            f"the model must return one row of logits a {what}, ({rows}, classes) (got {tuple(output.shape)}); choose "
            "one of its heads with dgl_lara.blackbox.adapters.head(model, NUMBER), or 'mean'."
        )
    if output.dim() != 2 or len(output) != rows:
        raise ModelError(
            f"the model must return one row of logits a {what}, ({rows}, classes) (got {tuple(output.shape)})."
        )
    if output.device != features.device:
        raise ModelError(f"the model answers on {output.device}, the features are on {features.device}.")
    if not bool(torch.isfinite(output).all()):
        cause = "" if bool(torch.isfinite(features).all()) else " (the features hold such values themselves)"
        raise ModelError(
            f"the model returned NaN or infinity on a graph of {graph.num_nodes()} nodes and {graph.num_edges()} "
            f"edges{cause}; such a prediction cannot be explained."
        )
    return output.float()


def _failure(f: Model, error: Exception, graph: dgl.DGLGraph, features: Tensor) -> str:
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    if _is_unwrapped_pyg(f):
        return (
            "the model is one of PyTorch Geometric, which takes (x, edge_index) and not (graph, features): wrap it, "
            "LARA(*dgl_lara.blackbox.adapters.from_pyg(model, data)), or for --model let its function return "
            f"dgl_lara.blackbox.adapters.pyg(model) (it said: {type(error).__name__}: {said})."
        )
    widths = re.search(r"cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)", said)
    if widths and int(widths[1]) == features.shape[1]:
        return f"the features have {widths[1]} columns, but the model takes {widths[2]}."
    if "0-in-degree" in said:
        return (
            "the model refuses nodes without incoming edges, which removing their neighbours makes; build its layers "
            "with allow_zero_in_degree=True, or give the graph self-loops (dgl.add_self_loop)."
        )
    if "dtype" in said and features.dtype != torch.float32:
        kind = str(features.dtype).removeprefix("torch.")
        return f"the features are of type {kind}, and the model takes others ({said}): give it features.float()."
    if "same device" in said:
        return (
            f"the model holds tensors on another device than the features, which are on {features.device}; a torch "
            "module is moved there, a plain function must make its tensors where the graph is (graph.device), or be "
            "run with --device cpu."
        )
    if isinstance(error, KeyError):
        return (
            f"the model looks for {said} and does not find it; it is given the features and the graph, whose edges "
            f"carry {_carried(f)} (features in graph.ndata: dgl_lara.blackbox.adapters.features_in_graph(model))."
        )
    shapes = f"{graph.num_nodes()} nodes, {graph.num_edges()} edges and features {tuple(features.shape)}"
    return f"the model failed on {shapes} ({type(error).__name__}: {said})."


def _carried(f: Model) -> str:
    """What f finds on edges, as its adapter gives it (`whole.py`, `typed.py`)."""
    data = getattr(f, "data", {})
    names = {name for one, held in data.items() for name in (held if isinstance(held, dict) else [one])}
    return ", ".join(f"'{name}'" for name in sorted(names)) or "nothing"


def _is_unwrapped_pyg(f: Model) -> bool:
    """It has layers of PyTorch Geometric, and no adapter that calls it as such models are called."""
    parts = list(f.modules()) if isinstance(f, nn.Module) else []
    if any(getattr(part, "calls_pyg", False) for part in parts):
        return False
    return any(kind.__module__.startswith("torch_geometric.") for part in parts for kind in type(part).__mro__)


def _described(output: object) -> str:
    if isinstance(output, dict):
        return f"a dict of {', '.join(map(repr, output))}"
    if isinstance(output, tuple | list):
        return f"a {type(output).__name__} of {len(output)} elements"
    return type(output).__name__


def same_predictions(f: Model, graph: dgl.DGLGraph, features: Tensor, answer: Tensor, what: str, *ends: Tensor) -> bool:
    """Whether that is f's answer here too; not where it fails."""
    with eval_mode(f):
        try:
            other = call_model(f, graph, features, len(answer), what, *ends)
        except ModelError:
            return False
    return other.shape == answer.shape and bool((other - answer).abs().max() <= SAME * answer.abs().max())


def predict_and_validate(
    f: Model, graph: dgl.DGLGraph, features: Tensor, rows: int, what: str, *ends: Tensor
) -> Tensor:
    """What f says of the whole graph, once everything that can be checked there is in order."""
    if len(features) != graph.num_nodes():
        raise InputError(f"features must have one row a node, {graph.num_nodes()} (got {len(features)}).")
    if graph.device != features.device:
        raise InputError(f"the graph is on {graph.device} and the features are on {features.device}; move one of them.")
    lent = isinstance(f, OnDevice)  # moves what it is given to where the model is
    parameters = f.parameters() if isinstance(f, nn.Module) and not lent else []
    elsewhere = {str(parameter.device) for parameter in parameters} - {str(features.device)}
    if elsewhere:
        raise InputError(
            f"the model is on {min(elsewhere)} and the features are on {features.device}; move one of them, "
            f"e.g. model.to('{features.device}')."
        )
    before = features._version, graph.num_nodes(), graph.num_edges()
    with eval_mode(f):
        first, second = (call_model(f, graph, features, rows, what, *ends) for _ in range(2))
    after = features._version, graph.num_nodes(), graph.num_edges()
    if after != before:
        changed = "features" if after[0] != before[0] else "graph"
        raise ModelError(
            f"the model changes the {changed} that it is given, in place, so that answers depend on those before; let "
            f"it work on a copy, {'x.clone()' if changed == 'features' else 'graph.clone()'}."
        )
    difference = (first - second).abs().max()
    if difference > SAME * first.abs().max():  # an explanation of noise would be noise
        raise ModelError(
            f"the model answers differently when asked twice (by up to {difference:.3g}); if dropout does it, pass the "
            "torch module itself (it is put into eval mode), or call .eval() on it first."
        )
    return first

"""Models of users: `--model my_module:build_model --weights my.pt`.

build_model() or build_model(in_dim, num_classes) returns a torch module or any callable f(graph, features) -> logits,
wrapped by an adapter if it has another signature (`adapters.py`). A run stores the path of the module and a copy of the
weights, so that it can be opened from any folder as long as the module's file exists.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from torch import Tensor, nn

from dgl_lara._util.atomic import load_tensors
from dgl_lara.blackbox.adapter import unwrap_to_weights
from dgl_lara.blackbox.call import Model
from dgl_lara.errors import InputError, LaraError


@dataclass(frozen=True)
class UserModelRef:
    """The function that builds a model."""

    module: str
    function: str
    file: str  # full path, to find the module from another folder

    @property
    def root(self) -> Path:
        """The folder that the module is imported from, above all its packages."""
        file = Path(self.file)
        file = file.parent if file.name == "__init__.py" else file
        return file.parents[self.module.count(".")]


def find_model(name: str) -> UserModelRef:
    """Find "my_module:build_model" in the current folder or on Python's path."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise InputError("user_model.name", got=name)
    if module.endswith(".py"):
        raise InputError("user_model.file_name", expected=f"{module[:-3]}:{function}", got=name)
    path = Path.cwd().joinpath(*module.split("."))
    for file in (path.with_name(path.name + ".py"), path / "__init__.py"):
        if file.is_file():
            return UserModelRef(module, function, str(file))
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or not spec.origin:
        raise InputError("user_model.no_module", got=module, folder=Path.cwd())
    return UserModelRef(module, function, spec.origin)


def build_model(ref: UserModelRef, in_dim: int | dict[str, int], num_classes: int) -> Model:
    """Call the user's function and return its model.

    Args:
        ref: The function.
        in_dim: Number of feature columns, by node type on heterogeneous graphs.
        num_classes: 0 if the data set has no labels.
    """
    place = {"function": ref.function, "file": ref.file}
    if not Path(ref.file).is_file():
        raise InputError("user_model.file_gone", file=ref.file)
    with _first_on_path(ref.root):
        function = getattr(_import(ref), ref.function, None)
        if not callable(function):
            raise InputError("user_model.no_function", **place)
        required = [one.name for one in inspect.signature(function).parameters.values() if one.default is one.empty]
        if len(required) not in (0, 2):
            raise InputError("user_model.arguments", **place, got=", ".join(required))
        if required and not num_classes:
            raise InputError("user_model.no_classes", **place)
        try:
            model = function(*((in_dim, num_classes) if required else ()))
        except Exception as error:  # a user's function may raise anything
            raise LaraError("user_model.failed", **place, cause=_cause(error)) from error
    if not callable(model):
        raise InputError("user_model.not_callable", **place, got=model)
    return model


def _cause(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _import(ref: UserModelRef) -> ModuleType:
    loaded = sys.modules.get(ref.module)
    if loaded is not None and getattr(loaded, "__file__", None) != ref.file:
        del sys.modules[ref.module]  # a module of that name from another folder
    importlib.invalidate_caches()
    try:
        return importlib.import_module(ref.module)
    except Exception as error:
        raise LaraError("user_model.import_failed", file=ref.file, cause=_cause(error)) from error


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _read_weights(path: Path) -> dict[str, Tensor]:
    """Read a state dict without unpickling anything else."""
    if not path.is_file():
        raise InputError("weights.missing", path=path)
    try:
        content = load_tensors(path)
    except LaraError as error:
        raise InputError("weights.unreadable", path=path) from error
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        keys = f"a dict with {', '.join(map(repr, list(content)[:5]))}" if isinstance(content, dict) else ""
        raise InputError("weights.not_a_state_dict", path=path, got=keys or type(content).__name__)
    return content


def _load_weights(model: Callable, path: Path) -> None:
    """Load a file of weights into the model inside its adapters. Raise InputError if they do not fit."""
    weights, inner = _read_weights(path), unwrap_to_weights(model)
    if not isinstance(inner, nn.Module):
        raise InputError("weights.no_module", path=path, got=type(inner).__name__)
    expected = inner.state_dict()
    if expected.keys() != weights.keys():
        differences = (expected.keys() - weights.keys(), weights.keys() - expected.keys())
        missing, unexpected = (", ".join(sorted(names)[:3]) or "none" for names in differences)
        raise InputError("weights.names", path=path, missing=missing, unexpected=unexpected)
    for name, tensor in expected.items():
        if tensor.shape != weights[name].shape:
            shapes = {"expected": tuple(tensor.shape), "got": tuple(weights[name].shape)}
            raise InputError("weights.shape", path=path, name=name, **shapes)
    inner.load_state_dict(weights)


def open_model(
    ref: UserModelRef, weights: Path | None, features: Tensor | Mapping[str, Tensor], num_classes: int
) -> Model:
    """Return the user's model with its weights, on the device of the features.

    Args:
        ref: The function that builds it.
        weights: File of a state dict.
        features: Of the nodes, by type on heterogeneous graphs.
        num_classes: 0 if the data set has no labels.
    """
    if isinstance(features, Tensor):
        model, device = build_model(ref, features.shape[1], num_classes), features.device
    else:
        model = build_model(ref, {node_type: rows.shape[1] for node_type, rows in features.items()}, num_classes)
        device = next(iter(features.values())).device
    if weights is not None:
        _load_weights(model, weights)
    if isinstance(model, nn.Module) and not any(parameter.is_meta for parameter in model.parameters()):
        model.to(device)
    return model

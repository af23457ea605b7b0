"""A model of the user's own on the command line: `--model my_module:build_model --weights my.pt`.

build_model() or build_model(in_dim, num_classes) returns a torch module or any callable f(graph, features) -> logits
(adapted where it is called otherwise, see `adapters.py`). A run stores where the function lies and a copy of the
weights, so that it can be opened from anywhere, as long as the module's file is there.
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
from dgl_lara.blackbox.adapter import holding_weights
from dgl_lara.blackbox.call import Model
from dgl_lara.errors import InputError, LaraError


@dataclass(frozen=True)
class UserModelRef:
    """Where the function is that builds the model."""

    module: str
    function: str
    file: str  # full path, to find the module again from another folder

    @property
    def root(self) -> Path:
        """The folder from which the module is imported: above all packages that its name goes through."""
        file = Path(self.file)
        file = file.parent if file.name == "__init__.py" else file
        return file.parents[self.module.count(".")]


def find_model(name: str) -> UserModelRef:
    """ "my_module:build_model" in the current folder, or else wherever Python finds the module."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise InputError(f"--model must name a module and a function, e.g. my_module:build_model (got '{name}').")
    if module.endswith(".py"):
        raise InputError(f"--model takes the name of a module, without .py: {module[:-3]}:{function} (got '{name}').")
    here = Path.cwd().joinpath(*module.split("."))
    for file in (here.with_name(here.name + ".py"), here / "__init__.py"):
        if file.is_file():
            return UserModelRef(module, function, str(file))
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None or not found.origin:
        raise InputError(f"there is no module '{module}' in {Path.cwd()} or on Python's path; is --model spelt right?")
    return UserModelRef(module, function, found.origin)


def build_model(own: UserModelRef, in_dim: int | dict[str, int], num_classes: int) -> Model:
    """Call the user's function."""
    if not Path(own.file).is_file():
        raise InputError(f"the model's code, {own.file}, is not there any more; put it back to use this model.")
    with _first_on_path(own.root):
        function = getattr(_imported(own), own.function, None)
        if not callable(function):
            raise InputError(f"{own.file} has no function '{own.function}'; --model must name one that it has.")
        needed = [one for one in inspect.signature(function).parameters.values() if one.default is one.empty]
        if len(needed) not in (0, 2):
            raise InputError(
                f"{own.function} in {own.file} must take no arguments or (in_dim, num_classes) "
                f"(it takes {', '.join(one.name for one in needed)})."
            )
        if needed and not num_classes:
            raise InputError(
                f"{own.function} in {own.file} asks for num_classes, which the labels of a graph tell, and this graph "
                "has none: let it take no arguments."
            )
        arguments = (in_dim, num_classes) if needed else ()
        try:
            model = function(*arguments)
        except Exception as error:  # not our code: it may raise anything
            raise LaraError(f"{own.function} in {own.file} failed ({type(error).__name__}: {error}).") from error
    if not callable(model):
        raise InputError(f"{own.function} in {own.file} must return a model that can be called (got {model!r}).")
    return model


def _imported(own: UserModelRef) -> ModuleType:
    known = sys.modules.get(own.module)
    if known is not None and getattr(known, "__file__", None) != own.file:
        del sys.modules[own.module]  # another file of that name, from another folder
    importlib.invalidate_caches()
    try:
        return importlib.import_module(own.module)
    except Exception as error:
        raise LaraError(f"{own.file} cannot be imported ({type(error).__name__}: {error}).") from error


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def read_weights(path: Path) -> dict[str, Tensor]:
    """A state dict; nothing else is unpickled."""
    if not path.is_file():
        raise InputError(f"the weights '{path}' do not exist.")
    try:
        content = load_tensors(path)
    except LaraError as error:
        raise InputError(
            f"{path} is not a file of weights; store them with torch.save(model.state_dict(), '{path.name}')."
        ) from error
    if not isinstance(content, dict) or not all(isinstance(part, Tensor) for part in content.values()):
        raise InputError(
            f"{path} must hold a state dict, names with tensors (got {_held(content)}); store one with "
            f"torch.save(model.state_dict(), '{path.name}')."
        )
    return content


def _held(content: object) -> str:
    if isinstance(content, dict):
        return f"a dict with {', '.join(map(repr, list(content)[:5]))}"
    return type(content).__name__


def load_weights(model: Callable, weights: dict[str, Tensor], path: Path) -> None:
    """Into the model inside its adapters; one sentence where they do not fit."""
    inner = holding_weights(model)
    if not isinstance(inner, nn.Module):
        raise InputError(f"{path} cannot be loaded: the model is a {type(inner).__name__}, not a torch module.")
    own = inner.state_dict()
    missing, unexpected = [name for name in own if name not in weights], [name for name in weights if name not in own]
    if missing or unexpected:
        parts = [
            f"{word} {', '.join(names[:3])}" for word, names in (("lacks", missing), ("also has", unexpected)) if names
        ]
        raise InputError(f"{path} does not fit the model: it {' and '.join(parts)}.")
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            raise InputError(
                f"{path} does not fit the model: {name} is {tuple(weights[name].shape)}, the model's is "
                f"{tuple(tensor.shape)}."
            )
    inner.load_state_dict(weights)


def open_model(
    own: UserModelRef, weights: Path | None, features: Tensor | Mapping[str, Tensor], num_classes: int
) -> Model:
    """The user's model with these weights, on the device of the features. Of several node types, it is told how many
    features each has."""
    if isinstance(features, Tensor):
        model, device = build_model(own, features.shape[1], num_classes), features.device
    else:
        model = build_model(own, {kind: rows.shape[1] for kind, rows in features.items()}, num_classes)
        device = next(iter(features.values())).device
    if weights is not None:
        load_weights(model, read_weights(weights), weights)
    if isinstance(model, nn.Module) and not any(parameter.is_meta for parameter in model.parameters()):
        model.to(device)
    return model

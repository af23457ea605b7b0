"""The numbers of a model, whatever adapters it wears, and what tells two models apart."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from dgl_lara.blackbox.adapter import holding_weights, unwrap


def weights_of(model: Callable) -> dict[str, Tensor]:
    """The state dict of the model inside its adapters; a plain function has none."""
    inner = holding_weights(model)
    return inner.state_dict() if isinstance(inner, nn.Module) else {}


def weights_hash(model: Callable) -> str:
    """Tells models apart by their numbers; models of the user's own also by the file of their code."""
    digest = hashlib.sha256()
    for name, numbers in _numbers(model):
        digest.update(name.encode())
        digest.update(numbers)
    digest.update(_code(model))
    return digest.hexdigest()[:16]


def identity(model: Callable, built_by: str = "") -> dict[str, str]:
    """The same in two: the numbers, however a wrapper names them, decide what f says; code may only be worded anew.
    Empty is what cannot be seen: the numbers behind a plain function, the code of what was typed at a prompt.
    `built_by`: the function in that code, of which a file may hold several."""
    weights = b"".join(hashlib.sha256(numbers).digest() for _, numbers in _numbers(model))
    parts = {"model": weights, "code": (code := _code(model)) and code + built_by.encode()}
    return {name: hashlib.sha256(part).hexdigest()[:16] if part else "" for name, part in parts.items()}


def is_other(part: str, stored: dict, now: dict[str, str]) -> bool:
    """The `identity` that was stored is another one, as far as both are known (older files have none)."""
    return bool(stored.get(part) and now[part]) and stored[part] != now[part]


def _numbers(model: Callable) -> Iterator[tuple[str, bytes]]:
    for name, tensor in sorted(weights_of(model).items()):
        if isinstance(tensor, Tensor):  # a state may hold more
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            yield name, flat.view(torch.uint8).numpy().tobytes()  # NumPy has no bfloat16


def _code(model: Callable) -> bytes:
    """Ours changes with the version, not with the user's file; what was typed at a prompt has none."""
    inner = unwrap(model)
    kind = inner if inspect.isroutine(inner) else type(inner)
    if kind.__module__.startswith("dgl_lara."):
        return b""
    try:
        return Path(inspect.getfile(kind)).read_bytes()
    except (OSError, TypeError):
        return b""


def load_exactly(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """As `load_state_dict`, but other types are refused too, and numbers that are none: copying would hide them."""
    own = module.state_dict()
    for name, part in weights.items():
        if name in own and part.dtype != own[name].dtype:
            raise RuntimeError(f"{name} must be {own[name].dtype} (got {part.dtype})")
        if bool(part.isnan().any()) or (part.dim() and bool(part.isinf().any())):  # a bound may be infinite
            raise RuntimeError(f"{name} holds NaN or infinity")
    module.load_state_dict(weights)

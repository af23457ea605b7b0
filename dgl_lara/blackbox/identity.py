"""Fingerprints of models: their weights and the file of their code."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from dgl_lara.blackbox.adapter import unwrap, unwrap_to_weights


def weights_of(model: Callable) -> dict[str, Tensor]:
    """Return the state dict of the model inside its adapters, empty for a plain function."""
    inner = unwrap_to_weights(model)
    return inner.state_dict() if isinstance(inner, nn.Module) else {}


def weights_hash(model: Callable) -> str:
    """Return a hash of the weights with their names, and of the code file of a user model."""
    digest = hashlib.sha256()
    for name, content in _contents(model):
        digest.update(name.encode())
        digest.update(content)
    digest.update(_code(model))
    return digest.hexdigest()[:16]


def identity(model: Callable, built_by: str = "") -> dict[str, str]:
    """Return hashes of the weights ("model", whatever their names) and of the code ("code").

    Args:
        model: f.
        built_by: Name of the function that built it, because a file may define several.

    Returns:
        Empty strings for what is not visible: weights behind a plain function, code typed at a prompt.
    """
    weights = b"".join(hashlib.sha256(content).digest() for _, content in _contents(model))
    parts = {"model": weights, "code": (code := _code(model)) and code + built_by.encode()}
    return {name: hashlib.sha256(part).hexdigest()[:16] if part else "" for name, part in parts.items()}


def is_other(part: str, stored: dict, now: dict[str, str]) -> bool:
    """Return whether a part of the stored identity differs, if both are visible."""
    return bool(stored.get(part) and now[part]) and stored[part] != now[part]


def _contents(model: Callable) -> Iterator[tuple[str, bytes]]:
    for name, tensor in sorted(weights_of(model).items()):
        if isinstance(tensor, Tensor):  # a state dict may hold more
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            yield name, flat.view(torch.uint8).numpy().tobytes()  # NumPy has no bfloat16


def _code(model: Callable) -> bytes:
    inner = unwrap(model)
    source = inner if inspect.isroutine(inner) else type(inner)
    if source.__module__.startswith("dgl_lara."):  # changes with the version, not with the user's file
        return b""
    try:
        return Path(inspect.getfile(source)).read_bytes()
    except (OSError, TypeError):
        return b""


def load_exactly(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load a state dict. Raise RuntimeError for other dtypes, NaN or infinity, which copying would hide."""
    expected = module.state_dict()
    for name, tensor in weights.items():
        if name in expected and tensor.dtype != expected[name].dtype:
            raise RuntimeError(f"{name} must be {expected[name].dtype} (got {tensor.dtype})")
        if bool(tensor.isnan().any()) or (tensor.dim() and bool(tensor.isinf().any())):  # a bound may be infinite
            raise RuntimeError(f"{name} holds NaN or infinity")
    module.load_state_dict(weights)

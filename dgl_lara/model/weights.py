"""The numbers of a model, whatever adapters it wears, and what tells two models apart."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn

from dgl_lara.model.adapted import holding_weights, unwrapped


def weights_of(model: Callable) -> dict[str, Tensor]:
    """The state dict of the model inside its adapters; a plain function has none."""
    inner = holding_weights(model)
    return inner.state_dict() if isinstance(inner, nn.Module) else {}


def weights_hash(model: Callable) -> str:
    """Tells models apart by their numbers; models of the user's own also by the file of their code."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights_of(model).items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    inner = unwrapped(model)
    kind = inner if inspect.isroutine(inner) else type(inner)
    if not kind.__module__.startswith("dgl_lara."):  # ours change with the version, not with the user's file
        digest.update(Path(inspect.getfile(kind)).read_bytes())
    return digest.hexdigest()[:16]


def load_exactly(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """As `load_state_dict`, but other types are refused too, and numbers that are none: copying would hide them."""
    own = module.state_dict()
    for name, part in weights.items():
        if name in own and part.dtype != own[name].dtype:
            raise RuntimeError(f"{name} must be {own[name].dtype} (got {part.dtype})")
        if bool(part.isnan().any()) or (part.dim() and bool(part.isinf().any())):  # a bound may be infinite
            raise RuntimeError(f"{name} holds NaN or infinity")
    module.load_state_dict(weights)

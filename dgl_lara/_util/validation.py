"""What people give in Python, checked where it enters: numbers (NumPy's too, but no truth values, texts or halves),
objects of a kind."""

from __future__ import annotations

from numbers import Integral
from typing import Any, TypeVar

import torch

from dgl_lara._util.schema import abbreviated
from dgl_lara.errors import InputError

T = TypeVar("T")


def whole_number(name: str, given: object, low: int = 1, high: int = 10**9) -> int:
    """The number itself; InputError where it is none, or out of bounds."""
    if not isinstance(given, Integral) or isinstance(given, bool) or not low <= int(given) <= high:
        raise InputError(f"{name} must be a whole number from {low:,} to {high:,} (got {abbreviated(given)}).")
    return int(given)


def checked(name: str, given: Any, kind: type[T]) -> T | None:
    """What is given, if it is of that kind or nothing."""
    if given is not None and not isinstance(given, kind):
        raise InputError(f"{name} must be a {kind.__name__} (got {abbreviated(given)}).")
    return given


def checked_device(given: object) -> torch.device | None:
    try:
        return None if given is None else torch.device(given)  # type: ignore[call-overload]
    except (RuntimeError, TypeError) as error:
        raise InputError(f"a device must be like 'cpu', 'cuda' or 'cuda:1' (got {abbreviated(given)}).") from error

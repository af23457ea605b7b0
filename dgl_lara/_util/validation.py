"""Checks of arguments of the Python API."""

from __future__ import annotations

from numbers import Integral
from typing import Any, TypeVar

import torch

from dgl_lara._util.schema import abbreviated
from dgl_lara.errors import InputError

T = TypeVar("T")


def whole_number(name: str, value: object, low: int = 1, high: int = 10**9) -> int:
    """Return a whole number as an int. NumPy's are fine, booleans are not.

    Raises:
        InputError: If it is another type or out of bounds.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or not low <= int(value) <= high:
        expected = f"a whole number from {low:,} to {high:,}"
        raise InputError("settings.invalid", name=name, expected=expected, got=abbreviated(value))
    return int(value)


def checked(name: str, value: Any, kind: type[T]) -> T | None:
    """Return an argument if it has the type or is None, else raise InputError."""
    if value is not None and not isinstance(value, kind):
        raise InputError("settings.invalid", name=name, expected=f"a {kind.__name__}", got=abbreviated(value))
    return value


def checked_device(value: object) -> torch.device | None:
    """Return an argument as a device, or None."""
    try:
        return None if value is None else torch.device(value)  # type: ignore[call-overload]
    except (RuntimeError, TypeError) as error:
        raise InputError("device.invalid", got=abbreviated(value)) from error

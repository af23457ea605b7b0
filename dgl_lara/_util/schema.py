"""Checks of stored tables with tensors: a check for each value, by name.

A check returns what it expects if a value is invalid, else None. Tables without tensors use `settings` instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from dgl_lara.errors import LaraError

Check = Callable[[object], str | None]
BLOCK_SIZE = 2**24


def whole(low: int = 0, high: int = 2**63 - 1) -> Check:
    def check(value: object) -> str | None:
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return None if fits else f"a whole number from {low} to {high}"

    return check


def number(value: object) -> str | None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
    return None if fits else "a number"


def between(low: float, high: float) -> Check:
    def check(value: object) -> str | None:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
        return None if fits else f"a number from {low:g} to {high:g}"

    return check


def text(value: object) -> str | None:
    return None if isinstance(value, str) and "\0" not in value else "a text"


def flag(value: object) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def word(*known: str) -> Check:
    return lambda value: None if isinstance(value, str) and value in known else f"one of {', '.join(known)}"


def table(value: object) -> str | None:
    fits = isinstance(value, dict) and all(isinstance(name, str) for name in value)
    return None if fits else "a table of names and values"


def tensors(value: object) -> str | None:
    fits = isinstance(value, dict) and all(
        isinstance(name, str) and isinstance(part, Tensor) for name, part in value.items()
    )
    return None if fits else "a table of tensors"


def matrix(rows: int, columns: int | None = None) -> Check:
    """Return a check for a matrix of finite numbers."""

    def check(value: object) -> str | None:
        fits = isinstance(value, Tensor) and value.is_floating_point() and value.dim() == 2 and len(value) == rows
        if isinstance(value, Tensor) and fits:
            fits = value.shape[1] == columns if columns is not None else value.shape[1] > 0
            fits = fits and _is_finite(value)
        return None if fits else f"a matrix of {rows} rows" + (f" and {columns} columns" if columns else "")

    return check


def tensor(kind: torch.dtype, *shape: int | None, gaps: bool = False) -> Check:
    """Return a check for a tensor of finite numbers.

    Args:
        kind: Its type.
        shape: Its shape. None means any length but 0.
        gaps: Allow NaN for missing values.
    """

    def check(value: object) -> str | None:
        fits = isinstance(value, Tensor) and value.dtype == kind and value.dim() == len(shape)
        if isinstance(value, Tensor) and fits:
            sizes = zip(value.shape, shape, strict=True)
            fits = all(found == size if size is not None else found > 0 for found, size in sizes)
            fits = fits and (not kind.is_floating_point or _is_finite(value, gaps))
        expected = ", ".join("any" if size is None else str(size) for size in shape)
        return None if fits else f"a tensor of finite {str(kind).removeprefix('torch.')} of shape ({expected})"

    return check


def _is_finite(value: Tensor, gaps: bool = False) -> bool:
    """Return whether all numbers are finite, a block at a time, because a mapped tensor may exceed the memory."""
    blocks = value.reshape(-1).split(BLOCK_SIZE)
    return all(sums_up(block) or bool((block.isfinite() | (block.isnan() & gaps)).all()) for block in blocks)


def sums_up(numbers: Tensor) -> bool:
    """Return whether the sum is finite. Then each number is, and a sum takes a twentieth of the time."""
    return bool(torch.isfinite(numbers.sum()))


def rows_of(fields: Mapping[str, Check]) -> Check:
    """Return a check for a list of tables."""

    def check(value: object) -> str | None:
        fits = isinstance(value, list) and all(validation_error(row, fields) is None for row in value)
        return None if fits else f"a list of rows with {', '.join(fields)}"

    return check


def maybe(other: Check) -> Check:
    return lambda value: None if value is None else other(value)


def validation_error(content: object, fields: Mapping[str, Check], optional: tuple[str, ...] = ()) -> str | None:
    """Return what is wrong with a table, or None."""
    if not isinstance(content, dict):
        return f"It must be a table with {', '.join(fields)} (got {type(content).__name__})."
    for name, check in fields.items():
        if name not in content:
            if name in optional:
                continue
            return f"It lacks {name}."
        expected = check(content[name])
        if expected:
            return f"{name} must be {expected} (got {abbreviated(content[name])})."
    return None


def validate(content: Any, fields: Mapping[str, Check], where: object, optional: tuple[str, ...] = ()) -> Any:
    """Return a table if it is valid.

    Args:
        content: What was read.
        fields: A check for each name.
        where: The file, for the error.
        optional: Names that may be missing.

    Raises:
        LaraError: "file.content" with the first problem.
    """
    problem = validation_error(content, fields, optional)
    if problem:
        raise LaraError("file.content", where=str(where), problem=problem)
    return content


def abbreviated(value: object) -> str:
    """Return a value as a short text for a message."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)}"
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        return "a very large number"
    return text if len(text) <= 60 else text[:57] + "..."

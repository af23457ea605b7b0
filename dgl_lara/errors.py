"""Errors that users can meet. Each has a code and fields; its text stands in the catalogue (`messages/`)."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

CATALOGUE = Path(__file__).parent / "messages"


class LaraError(Exception):
    """Raised when a run fails (exit code 1).

    Args:
        code: Key of the text in the catalogue, such as "hops.range".
        fields: Values of the placeholders in that text.

    Examples:
        >>> raise InputError("hops.range", got=-1, most=20)
    """

    exit_code = 1

    def __init__(self, code: str, **fields: object) -> None:
        self.code, self.fields = code, fields
        super().__init__(message(code, **fields))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.code, self.fields)


class InputError(LaraError, ValueError):
    """Raised when an argument, an option or a file is invalid (exit code 2)."""

    exit_code = 2


class ModelError(LaraError, RuntimeError):
    """Raised when the model fails or returns something that cannot be explained (exit code 1)."""


def _rebuild(kind: type[LaraError], code: str, fields: dict[str, object]) -> LaraError:
    return kind(code, **fields)


def message(code: str, **fields: object) -> str:
    """Return the text of a code with its fields filled in."""
    text = catalogue().get(code)
    return code if text is None else text.format(**fields)


@cache
def catalogue() -> dict[str, str]:
    """Return all texts by code."""
    texts: dict[str, str] = {}
    for room in sorted(CATALOGUE.glob("[a-z]*.py")):
        texts |= importlib.import_module(f"dgl_lara.messages.{room.stem}").MESSAGES
    return texts

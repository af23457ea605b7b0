"""Catalogue of the texts of errors and notices, one file for each room, by code.

An error is `<name> must be <range> (got <value>). <one remedy>`. A notice states what happened, what it means and what
to do. Placeholders are filled by `str.format`, so `{count:,}` and `{got!r}` work.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache


def message(code: str, **fields: object) -> str:
    """Return the text of a code with its fields filled in."""
    text = catalogue().get(code)
    return code if text is None else text.format(**fields)


@cache
def catalogue() -> dict[str, str]:
    """Return all texts by code."""
    texts: dict[str, str] = {}
    for room in pkgutil.iter_modules(__path__):
        texts |= importlib.import_module(f"{__name__}.{room.name}").MESSAGES
    return texts

"""A folder of alternatives: one file each, called on the command line as the file is called.

The names come from the file names, so `--help` lists them without importing anything; an alternative is imported
when it is asked for. Adding one is adding a file that defines the registry's constant.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Generic, TypeVar

from dgl_lara.errors import InputError

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """The modules of `package`, each of which defines `constant`. `first`: what lists begin with, in this order."""

    def __init__(self, package: str, constant: str, first: tuple[str, ...] = ()) -> None:
        self.package, self.constant, self.first = package, constant, first

    @cached_property
    def names(self) -> tuple[str, ...]:
        folder = importlib.import_module(self.package).__path__
        files = (module.name for module in pkgutil.iter_modules(folder) if not module.ispkg)
        found = {name.replace("_", "-") for name in files if not name.startswith("_")}
        return (*(name for name in self.first if name in found), *sorted(found - set(self.first)))

    def __getitem__(self, name: str) -> T:
        if name not in self.names:
            raise KeyError(name)
        return getattr(importlib.import_module(f"{self.package}.{name.replace('-', '_')}"), self.constant)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def check(self, name: str) -> str:
        """The name itself, if it is known; otherwise one sentence with the list and the closest match."""
        return one_of(self.constant.lower(), name, self.names)


def closest(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?', or nothing where no known word is like it."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def one_of(what: str, given: object, known: tuple[str, ...]) -> str:
    """`given`, if it is one of the known words; otherwise the list and the closest match."""
    if isinstance(given, str) and given in known:
        return given
    close = difflib.get_close_matches(str(given), known, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    raise InputError("choice.unknown", name=what, known=", ".join(known), got=given, hint=hint)

"""Registries: folders with one file for each alternative, whose file name is its name.

`--help` lists the names without importing the files. To add an alternative, add a file that defines the constant.
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
    """Alternatives by name.

    Args:
        package: Package whose modules define them.
        constant: Name of the object in each module.
        first: Names that lists start with.
    """

    def __init__(self, package: str, constant: str, first: tuple[str, ...] = ()) -> None:
        self.package, self.constant, self.first = package, constant, first

    @cached_property
    def names(self) -> tuple[str, ...]:
        folder = importlib.import_module(self.package).__path__
        files = (module.name for module in pkgutil.iter_modules(folder) if not module.ispkg)
        names = {name.replace("_", "-") for name in files if not name.startswith("_")}
        return (*(name for name in self.first if name in names), *sorted(names - set(self.first)))

    def __getitem__(self, name: str) -> T:
        if name not in self.names:
            raise KeyError(name)
        return getattr(importlib.import_module(f"{self.package}.{name.replace('-', '_')}"), self.constant)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def check(self, name: str) -> str:
        """Return a name, or raise InputError with the list and the closest match."""
        return one_of(self.constant.lower(), name, self.names)


def closest(name: str, words: Iterable[str]) -> str:
    """Return " Did you mean ...?", or nothing if no word is similar."""
    close = difflib.get_close_matches(name, list(words), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def one_of(name: str, value: object, words: tuple[str, ...]) -> str:
    """Return a word, or raise InputError with the list and the closest match."""
    if isinstance(value, str) and value in words:
        return value
    raise InputError("choice.unknown", name=name, known=", ".join(words), got=value, hint=closest(str(value), words))

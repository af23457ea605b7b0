"""Compiled functions: kept on disk where there is a place for them, and never two parallel ones at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
import torch
from numba.core.caching import NullCache

_alone = threading.RLock()  # numba's default threading layer ends the process when two threads launch kernels at once


def kernel(**options: Any) -> Callable[[Callable], Any]:
    """`numba.njit` without the interpreter's lock, its result kept on disk."""

    def compiled(function: Callable) -> Any:
        made = numba.njit(nogil=True, **options)(function)
        try:
            made.enable_caching()
        except RuntimeError:  # neither the package nor the home can be written: compiled anew in every process
            return made
        made._cache = _Forgiving(made._cache)
        return made

    return compiled


class _Forgiving:
    """A cache that cannot be written or read (a full disk, a damaged file) costs time, nothing else."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, *arguments: Any) -> Any:
        try:
            return self._cache.load_overload(*arguments)
        except Exception:  # whatever unpickling a damaged file raises
            return None

    def save_overload(self, *arguments: Any) -> None:
        try:
            self._cache.save_overload(*arguments)
        except OSError:
            self._cache = NullCache()


@contextmanager
def threads(num_targets: int) -> Iterator[int]:
    """How many workers to use, as many as torch does; parallel kernels run inside, one at a time."""
    with _alone:
        ours = torch.get_num_threads()
        numba.set_num_threads(min(ours, numba.config.NUMBA_NUM_THREADS))
        try:
            yield min(numba.get_num_threads(), num_targets)
        finally:
            torch.set_num_threads(ours)  # numba's first call sets OpenMP to all cores, for everybody


def _after_fork() -> None:
    """A child begins without the lock that some thread of its parent may have held."""
    global _alone
    _alone = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)

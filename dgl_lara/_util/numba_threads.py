"""Compiled functions: kept on disk where there is a place for them, spread over threads, the same in every process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import torch
from numba.core.caching import NullCache


def kernel(**options: Any) -> Callable[[Callable], Any]:
    """`numba.njit` without the interpreter's lock, its result kept on disk.

    What a kernel calls is an `inner` function, and no kernel is parallel by itself: what numba compiles apart and links
    again is optimised twice, and a process that has just compiled it runs the first version where later ones load the
    second, with sums in another order.
    """

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


def inner(**options: Any) -> Callable[[Callable], Any]:
    """A function that becomes part of every kernel that calls it."""
    return numba.njit(nogil=True, forceinline=True, **options)


def run_in_threads(function: Any, num_targets: int, *arguments: Any) -> None:
    """function(worker, workers, *arguments) in as many threads as torch takes; each has every `workers`-th target."""
    workers = max(1, min(torch.get_num_threads(), num_targets))
    if workers == 1:
        function(0, 1, *arguments)
        return
    with ThreadPoolExecutor(workers - 1) as others:
        waiting = [others.submit(function, worker, workers, *arguments) for worker in range(1, workers)]
        function(0, workers, *arguments)
    for one in waiting:
        one.result()

"""Compiled functions, cached on disk and run in threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import torch
from numba.core.caching import NullCache


def kernel(**options: Any) -> Callable[[Callable], Any]:
    """Return a decorator: `numba.njit` without the GIL, cached on disk.

    Kernels call `inner` functions only and are not parallel themselves. Otherwise numba optimises linked code twice,
    and a process that compiles it and one that loads it sum in different orders.
    """

    def compiled(function: Callable) -> Any:
        made = numba.njit(nogil=True, **options)(function)
        try:
            made.enable_caching()
        except RuntimeError:  # no folder can be written, so every process compiles
            return made
        made._cache = _SafeCache(made._cache)
        return made

    return compiled


class _SafeCache:
    """A cache whose failures (a full disk, a damaged file) cost time only."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, *arguments: Any) -> Any:
        try:
            return self._cache.load_overload(*arguments)
        except Exception:  # unpickling a damaged file can raise anything
            return None

    def save_overload(self, *arguments: Any) -> None:
        try:
            self._cache.save_overload(*arguments)
        except OSError:
            self._cache = NullCache()


def inner(**options: Any) -> Callable[[Callable], Any]:
    """Return a decorator of functions that are inlined into kernels."""
    return numba.njit(nogil=True, forceinline=True, **options)


def run_in_threads(function: Any, num_targets: int, *arguments: Any) -> None:
    """Run function(worker, num_workers, *arguments) in as many threads as torch uses."""
    workers = max(1, min(torch.get_num_threads(), num_targets))
    if workers == 1:
        function(0, 1, *arguments)
        return
    with ThreadPoolExecutor(workers - 1) as others:
        futures = [others.submit(function, worker, workers, *arguments) for worker in range(1, workers)]
        function(0, workers, *arguments)
    for future in futures:
        future.result()

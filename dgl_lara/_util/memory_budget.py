"""Memory of one step: how many nodes f is asked about in one call, and how many targets are explained at once.

One budget bounds everything (`--memory`, `LARA(memory=...)`); a fixed share of it goes to each kind of work. On a
machine with a few free gigabytes the shares are at their caps, so that the same seed gives the same numbers there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara._util.memory import free_memory
from dgl_lara.errors import InputError

NODES_A_CALL = 200_000  # of f, at the most
CALL_BYTES = 2**30  # what a call of f may take, at the most
STATES = 1000  # numbers a node that f holds besides its features, a guess on the safe side
UNASKED = 256 * 2**20  # what anything may take: less than python and torch themselves
CHUNK_BYTES = 2 * 2**30  # what one chunk of targets may take, at the most
BYTES_A_WALK = 200  # measured: what scoring holds at its peak for each walk that ends at a target


@dataclass(frozen=True)
class Budget:
    """Bytes, all in all."""

    memory: int

    @staticmethod
    def of(memory: int | None, device: torch.device | None = None) -> Budget:
        """The given number of bytes; without one, most of what is free where the data is."""
        return Budget(free_memory(device) if memory is None else memory)

    def check(self, needed: int | float, what: str) -> None:
        """Before it is allocated: an InputError where so many bytes cannot be had."""
        if needed > max(self.memory, UNASKED):
            raise InputError(
                f"{what} would take about {needed / 2**30:,.1f} GB, and {self.memory / 2**30:,.1f} GB may be used "
                "(--memory, LARA(memory=...)); ask for less."
            )

    def nodes_per_call(self, columns: int) -> int:
        """How many nodes with so many features one call of f may have."""
        return max(1, min(NODES_A_CALL, min(CALL_BYTES, self.memory // 4) // (4 * (2 * columns + STATES))))

    @property
    def walks_per_chunk(self) -> float:
        """How many walks the targets of one chunk may have together."""
        return min(CHUNK_BYTES, self.memory // 2) / BYTES_A_WALK


def slices_within_budget(counts: Tensor, budget: float) -> list[slice]:
    """Consecutive targets whose players together stay within the budget (a larger one stands alone)."""
    slices, start, total = [], 0, 0
    for row, count in enumerate(counts.tolist()):
        if total and total + count > budget:
            slices.append(slice(start, row))
            start, total = row, 0
        total += count
    return [*slices, slice(start, len(counts))]

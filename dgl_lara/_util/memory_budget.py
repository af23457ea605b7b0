"""Memory budget of one step: nodes in a call of f, targets that are explained at once.

`--memory` or `LARA(memory=...)` sets the budget, and each kind of work gets a fixed share of it. With a few free
gigabytes the shares are at their caps, so that equal seeds give equal numbers on all machines.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara._util.memory import free_memory
from dgl_lara.errors import InputError

MAX_NODES_PER_CALL = 200_000
CALL_BYTES = 2**30  # of a call of f, at most
STATES = 1000  # numbers of f for each node besides its features, a safe guess
UNCHECKED_BYTES = 256 * 2**20  # always allowed, less than python and torch need
CHUNK_BYTES = 2 * 2**30  # of one chunk of targets, at most
WALK_BYTES = 200  # measured peak of scoring for each walk that ends at a target


@dataclass(frozen=True)
class Budget:
    """A limit of working memory.

    Args:
        memory: Bytes.
    """

    memory: int

    @staticmethod
    def of(memory: int | None, device: torch.device | None = None) -> Budget:
        """Return the budget of this many bytes. None means most of what is free on the device."""
        return Budget(free_memory(device) if memory is None else memory)

    def check(self, needed: int | float, what: str) -> None:
        """Raise InputError if something needs more bytes than the budget.

        Args:
            needed: Bytes.
            what: What needs them, for the error.
        """
        if needed > max(self.memory, UNCHECKED_BYTES):
            raise InputError("memory.exceeded", what=what, needed=needed / 2**30, limit=self.memory / 2**30)

    def nodes_per_call(self, columns: int) -> int:
        """Return how many nodes with this many feature columns fit into one call of f."""
        return max(1, min(MAX_NODES_PER_CALL, min(CALL_BYTES, self.memory // 4) // (4 * (2 * columns + STATES))))

    @property
    def walks_per_chunk(self) -> float:
        """Return how many walks the targets of one chunk may have together."""
        return min(CHUNK_BYTES, self.memory // 2) / WALK_BYTES


def slices_within_budget(counts: Tensor, budget: float) -> list[slice]:
    """Divide targets into slices whose players fit the budget. A larger target is a slice of its own."""
    slices, start, total = [], 0, 0
    for row, count in enumerate(counts.tolist()):
        if total and total + count > budget:
            slices.append(slice(start, row))
            start, total = row, 0
        total += count
    return [*slices, slice(start, len(counts))]

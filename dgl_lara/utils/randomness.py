"""Seeds as arguments. Nothing in this package draws from a generator that it was not given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """For what only draws from torch's global generator (initialisers, dropout, samplers): lent, then given back."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        torch.random.manual_seed(seed)
        yield

"""Seeds as arguments. Nothing in this package draws from a generator that it was not given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """For what only draws from torch's global generator (initialisers, dropout, samplers): lent, then given back."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        torch.random.manual_seed(seed)
        yield


def sample_targets(targets: Tensor, most: int, seed: int) -> Tensor:
    """All of them, or `most` drawn at random."""
    if len(targets) <= most:
        return targets
    return targets[torch.randperm(len(targets), generator=generator(seed))[:most].to(targets.device)].sort().values

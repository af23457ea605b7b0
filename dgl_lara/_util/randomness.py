"""Random generators from seeds. The package draws from generators that are arguments only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def generator(seed: int) -> torch.Generator:
    """Return a generator with a seed."""
    return torch.Generator().manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generator within a block and restore it, for initialisers, dropout and samplers."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        torch.random.manual_seed(seed)
        yield


def sample_targets(targets: Tensor, most: int, seed: int) -> Tensor:
    """Return all targets, or `most` of them drawn at random."""
    if len(targets) <= most:
        return targets
    return targets[torch.randperm(len(targets), generator=generator(seed))[:most].to(targets.device)].sort().values

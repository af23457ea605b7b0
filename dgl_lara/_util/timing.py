"""Seconds, on any device."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch


def clock(device: torch.device) -> float:
    """Seconds, when all work given to the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 3) -> float:
    """Median over repeats, after one warm-up."""
    work()
    times = []
    for _ in range(repeats):
        start = clock(device)
        work()
        times.append(clock(device) - start)
    return median(times)

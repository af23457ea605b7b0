"""Timing on any device."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch


def clock(device: torch.device) -> float:
    """Return the time in seconds, after waiting for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 3) -> float:
    """Return the median seconds of a function over repeats, after one warm-up."""
    work()
    times = []
    for _ in range(repeats):
        start = clock(device)
        work()
        times.append(clock(device) - start)
    return median(times)

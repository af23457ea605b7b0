"""Throughput (targets / time) and latency (time for n targets), as the paper defines them."""

from __future__ import annotations

import time
from collections.abc import Callable

import pandas as pd
import torch
from torch import Tensor

from dgl_lara.explanation import Explanations

COUNTS = (1, 10, 100, 1_000, 10_000, 100_000)


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
    return sorted(times)[len(times) // 2]


def speed(explain: Callable[[Tensor], Explanations], targets: Tensor) -> pd.DataFrame:
    """A row for each number of targets, as far as there are that many: latency in seconds, throughput a second."""
    counts = [count for count in COUNTS if count <= len(targets)]
    if len(targets) not in counts:
        counts.append(len(targets))
    rows = []
    for count in counts:
        some = targets[:count]
        latency = seconds(lambda some=some: explain(some), targets.device)  # type: ignore[misc]
        rows.append({"targets": count, "latency (s)": latency, "throughput (1/s)": count / latency})
    return pd.DataFrame(rows)

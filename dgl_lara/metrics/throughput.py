"""Throughput (targets / time) and latency (time for n targets), as the paper defines them."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from torch import Tensor

from dgl_lara._util.timing import seconds
from dgl_lara.explanation import Explanations
from dgl_lara.metrics.common.metric import Metric

COUNTS = (1, 10, 100, 1_000, 10_000, 100_000)


class Speed(Metric):
    """Of a run: `speed` of LARA in several ways. Of a comparison: in turns with LARA (`evaluation/timing.py`)."""

    of_speed = True
    columns = {"targets/s": 1, "LARA is x times faster": 0, "LARA, stored, is x times faster": 0}

    def note(self, table: pd.DataFrame) -> str:
        return "Of 1, 10, 100 ... targets, up to all there are, whatever --targets says."


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


METRIC = Speed()

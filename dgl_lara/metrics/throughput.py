"""Throughput (targets / time) and latency (time for n targets), as the paper defines them."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
from torch import Tensor

from dgl_lara._util.timing import seconds
from dgl_lara.explanation import Explanations
from dgl_lara.metrics.common.metric import Metric

COUNTS = (1, 10, 100, 1_000, 10_000, 100_000)  # targets


class Speed(Metric):
    """The speed of LARA in several ways (`speed`), or in a benchmark that of a method relative to LARA."""

    measures_speed = True
    note_code = "speed.note"
    columns = {"targets/s": 1, "LARA is x times faster": 0, "LARA, stored, is x times faster": 0}


def speed(explain: Callable[[Tensor], Explanations], targets: Tensor) -> pd.DataFrame:
    """Measure latency in seconds and throughput per second, a row for each number of targets.

    Args:
        explain: Explains targets.
        targets: All targets. The last row has all of them.
    """
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

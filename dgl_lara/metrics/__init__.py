"""Metrics, one file each. `common/metric.py` has what they share. Importing this loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgl_lara._util.registry import Registry

if TYPE_CHECKING:
    from dgl_lara.metrics.common.metric import Metric

METRICS: Registry[Metric] = Registry(
    __name__, "METRIC", first=("fidelity", "agreement", "auc", "throughput", "latency")
)

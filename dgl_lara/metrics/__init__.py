"""Metrics, one file each, called as the file is called; `common/metric.py` says what they share.

Light: the command line reads the names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgl_lara._util.registry import Registry

if TYPE_CHECKING:
    from dgl_lara.metrics.common.metric import Metric

METRICS: Registry[Metric] = Registry(
    __name__, "METRIC", first=("fidelity", "agreement", "auc", "throughput", "latency")
)

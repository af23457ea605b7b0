"""The same table as `throughput`, which has both."""

from dgl_lara.metrics.throughput import METRIC

__all__ = ["METRIC"]

"""Latency, in one table with `throughput`."""

from dgl_lara.metrics.throughput import METRIC

__all__ = ["METRIC"]

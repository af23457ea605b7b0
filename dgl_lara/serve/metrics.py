"""Prometheus metrics. Each worker counts in files of its own, and `/metrics` adds them up."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

BUCKETS_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)

requests = Counter("dgl_lara_requests_total", "Requests answered.", ["route", "status"])
latency = Histogram("dgl_lara_request_seconds", "Time to an answer.", ["route"], buckets=BUCKETS_SECONDS)
explanations = Counter("dgl_lara_explanations_total", "Explanations returned, by origin.", ["origin"])
model_calls = Counter("dgl_lara_model_calls_total", "Calls of the explained model.")
updates = Counter("dgl_lara_graph_updates_total", "Graph updates accepted.", ["model"])
sequence = Gauge("dgl_lara_graph_sequence", "Last graph update that is applied.", ["model"], multiprocess_mode="max")
reloads = Gauge("dgl_lara_generation", "How often the runs were loaded.", multiprocess_mode="max")


def metrics_text() -> bytes:
    """Return the metrics of all workers, or of this process if it is alone."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest()
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    return generate_latest(registry)

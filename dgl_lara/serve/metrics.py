"""What Prometheus is told. Each worker counts for itself, in files of a folder that `/metrics` adds up."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

BUCKETS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)

requests = Counter("dgl_lara_requests_total", "Requests answered.", ["route", "status"])
latency = Histogram("dgl_lara_request_seconds", "Time to an answer.", ["route"], buckets=BUCKETS)
explanations = Counter("dgl_lara_explanations_total", "Explanations given, by where they came from.", ["origin"])
model_calls = Counter("dgl_lara_model_calls_total", "Calls of the explained model.")
updates = Counter("dgl_lara_graph_updates_total", "Graph updates accepted.", ["model"])
sequence = Gauge("dgl_lara_graph_sequence", "The last graph update that counts.", ["model"], multiprocess_mode="max")
reloads = Gauge("dgl_lara_generation", "How often the runs were loaded.", multiprocess_mode="max")


def text() -> bytes:
    """Of all workers together; of this process, where it is the only one."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest()
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    return generate_latest(registry)

"""Data sets on disk in parts: cut up where they fit into memory, generated part by part where they do not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import dgl
import numpy as np

from dgl_lara._util.environment import versions
from dgl_lara._util.progress import Progress, status
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import InputError
from dgl_lara.graphs.partition_format import SPLITS
from dgl_lara.graphs.partition_writer import GraphInfo, PartitionData, check_free, write_parts

ROWS = 100_000  # of features that are copied at a time


def partition(
    dataset: Dataset, parts: int, out: Path, method: str = "metis", seed: int = 0, kind: str = "float32"
) -> None:
    """Cut a data set up by METIS, at random, or in its own order, into parts of about as many nodes."""
    graph = dataset.graph
    if dataset.task != "node" or not graph.is_homogeneous or graph.edata:
        raise InputError(
            f"{dataset.name} cannot be partitioned: that is for nodes of one graph, of one type, whose edges carry "
            "nothing."
        )
    if not 1 <= parts <= graph.num_nodes():
        raise InputError(f"parts must be a number from 1 to {graph.num_nodes():,}, that of the nodes (got {parts}).")
    check_free(out)
    with status(f"cutting the graph into {parts} parts"):
        owner = _owners(graph, parts, method, seed)
    about = GraphInfo(
        dataset.name, dataset.source, graph.num_nodes(), dataset.features.shape[1], dataset.num_classes, dataset.key,
        {name: dataset.split(name).numpy() for name in SPLITS}, method, versions(),
    )  # fmt: skip
    write_parts(out, about, _contents(dataset, owner, parts, method), kind)


def _owners(graph: dgl.DGLGraph, parts: int, method: str, seed: int) -> np.ndarray:
    """(num_nodes,) the part of each node."""
    count = graph.num_nodes()
    in_order = np.arange(count) * parts // count
    if method == "random":
        return np.random.default_rng(seed).permutation(in_order)
    if method == "metis" and parts > 1:
        with _unheard():
            return dgl.metis_partition_assignment(graph, parts).numpy()
    return in_order


@contextmanager
def _unheard() -> Iterator[None]:
    """DGL tells of METIS on both streams, past Python's own."""
    sys.stdout.flush()
    kept = [os.dup(stream) for stream in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        with redirect_stdout(None):
            yield
    finally:
        for stream, own in zip((1, 2), kept, strict=True):
            os.dup2(own, stream)
            os.close(own)
        os.close(nowhere)


def _contents(dataset: Dataset, owner: np.ndarray, parts: int, method: str) -> Iterator[PartitionData]:
    indptr, sources, _ = (part.numpy() for part in dataset.graph.adj_tensors("csc"))
    features, labels = dataset.features.numpy(), dataset.labels.numpy()
    for number in Progress(range(parts), "writing parts", unit="part"):
        nodes = np.flatnonzero(owner == number)
        counts = indptr[nodes + 1] - indptr[nodes]
        ends = np.concatenate([[0], counts.cumsum()])
        within = np.arange(ends[-1]) + np.repeat(indptr[nodes] - ends[:-1], counts)
        blocks = (features[some] for some in np.array_split(nodes, max(1, len(nodes) // ROWS)))
        yield PartitionData(None if method == "order" else nodes, ends, sources[within], labels[nodes], blocks)

"""Partitioning of a data set into a folder of parts."""

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

FEATURE_ROWS = 100_000  # copied at a time


def partition(
    dataset: Dataset, parts: int, out: Path, method: str = "metis", seed: int = 0, dtype: str = "float32"
) -> None:
    """Write a data set in parts of about equal size.

    Args:
        dataset: One homogeneous graph without edge data.
        parts: Number of parts.
        out: A new folder.
        method: "metis", "random" or "order" (consecutive nodes).
        seed: Of a random partition.
        dtype: Of the stored features, "float32" or "float16".
    """
    graph = dataset.graph
    if dataset.task != "node" or not graph.is_homogeneous or graph.edata:
        raise InputError("partition.dataset", name=dataset.name)
    if not 1 <= parts <= graph.num_nodes():
        raise InputError("partition.parts", most=graph.num_nodes(), got=parts)
    check_free(out)
    with status(f"partitioning the graph into {parts} parts"):
        owner = _owners(graph, parts, method, seed)
    info = GraphInfo(
        dataset.name, dataset.source, graph.num_nodes(), dataset.features.shape[1], dataset.num_classes, dataset.key,
        {name: dataset.split(name).numpy() for name in SPLITS}, method, versions(),
    )  # fmt: skip
    write_parts(out, info, _contents(dataset, owner, parts, method), dtype)


def _owners(graph: dgl.DGLGraph, parts: int, method: str, seed: int) -> np.ndarray:
    """Return (num_nodes,) the part of each node."""
    count = graph.num_nodes()
    in_order = np.arange(count) * parts // count
    if method == "random":
        return np.random.default_rng(seed).permutation(in_order)
    if method == "metis" and parts > 1:
        with _silence():
            return dgl.metis_partition_assignment(graph, parts).numpy()
    return in_order


@contextmanager
def _silence() -> Iterator[None]:
    """Redirect file descriptors 1 and 2, because METIS prints to both past Python's streams."""
    sys.stdout.flush()
    copies = [os.dup(stream) for stream in (1, 2)]
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (1, 2):
            os.dup2(null, stream)
        with redirect_stdout(None):
            yield
    finally:
        for stream, copy in zip((1, 2), copies, strict=True):
            os.dup2(copy, stream)
            os.close(copy)
        os.close(null)


def _contents(dataset: Dataset, owner: np.ndarray, parts: int, method: str) -> Iterator[PartitionData]:
    indptr, sources, _ = (part.numpy() for part in dataset.graph.adj_tensors("csc"))
    features, labels = dataset.features.numpy(), dataset.labels.numpy()
    for number in Progress(range(parts), "writing parts", unit="part"):
        nodes = np.flatnonzero(owner == number)
        counts = indptr[nodes + 1] - indptr[nodes]
        ends = np.concatenate([[0], counts.cumsum()])
        edges = np.arange(ends[-1]) + np.repeat(indptr[nodes] - ends[:-1], counts)
        blocks = (features[chunk] for chunk in np.array_split(nodes, max(1, len(nodes) // FEATURE_ROWS)))
        yield PartitionData(None if method == "order" else nodes, ends, sources[edges], labels[nodes], blocks)

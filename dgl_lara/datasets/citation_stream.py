"""`citation` of any size, generated part by part with the distribution of `synthetic_citation.generate`.

Memory holds 25 bytes per paper: the class, and running sums of fitness. Citations are drawn for a chunk of papers at a
time and written to files by the cited paper. Each file is then sorted. Every chunk has a seed of its own, so that the
graph does not depend on the number of parts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dgl_lara._util.environment import versions
from dgl_lara._util.progress import Progress, status
from dgl_lara.datasets.synthetic_citation import (
    CLASSES,
    DIM,
    FITNESS_TAIL,
    MEAN_CITATIONS,
    OWN_CLASS,
    SIGNAL,
    SPREAD,
    check_nodes,
    split_ends,
)
from dgl_lara.errors import InputError
from dgl_lara.graphs.partition_writer import GraphInfo, PartitionData, check_free, write_parts

STREAMED_FROM = 1_000_000  # nodes, smaller graphs are generated in memory
CHUNK = 1_000_000  # papers whose citations are drawn, or sorted, at a time
FEATURE_ROWS = 100_000  # drawn at a time


def stream_citation(
    nodes: int, parts: int, out: Path, seed: int = 0, dtype: str = "float32", chunk: int = CHUNK
) -> None:
    """Write the graph in parts, in the order of time.

    Args:
        nodes: Number of papers.
        parts: Number of parts.
        out: A new folder.
        seed: Of the graph.
        dtype: Of the stored features.
        chunk: Papers at a time. The graph depends on it.
    """
    check_nodes(nodes)
    if not 1 <= parts <= nodes:
        raise InputError("partition.parts", most=nodes, got=parts)
    check_free(out)
    train, val = split_ends(nodes)
    splits = {"train": np.arange(train), "val": np.arange(train, val), "test": np.arange(val, nodes)}
    source = f"generated in parts, a stand-in for ogbn-arxiv, {nodes} nodes, seed {seed}"
    key = {"dataset": "citation", "seed": seed, "nodes": nodes, "streamed": 1, "chunk": chunk}
    info = GraphInfo("citation", source, nodes, DIM, CLASSES, key, splits, "order", versions())
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".drawn-") as drawn:
        write_parts(out, info, _contents(_Papers(nodes, seed, chunk), parts, Path(drawn)), dtype)


class _Papers:
    """Classes and running sums of fitness of all papers, from which citations are drawn."""

    def __init__(self, nodes: int, seed: int, chunk: int) -> None:
        self.nodes, self.seed, self.chunk = nodes, seed, chunk
        rng = np.random.default_rng(seed)
        shares = 0.9 * rng.dirichlet(np.full(CLASSES, 1.0)) + 0.1 / CLASSES
        centroids = rng.standard_normal((CLASSES, DIM))
        self.centroids = (SIGNAL * centroids / np.linalg.norm(centroids, axis=1, keepdims=True)).astype(np.float32)
        self.labels, fitness = np.empty(nodes, np.int8), np.empty(nodes)
        for number, first in enumerate(range(0, nodes, chunk)):
            rng, size = self._rng(number, 0), min(chunk, nodes - first)
            self.labels[first : first + size] = rng.choice(CLASSES, size, p=shares)
            fitness[first : first + size] = 1 + rng.pareto(FITNESS_TAIL, size)
        self.labels[:CLASSES] = np.arange(CLASSES)
        np.minimum(fitness, nodes / 20, out=fitness)  # no paper is cited by all others
        self.running = _running_sum(fitness)
        self.by_class = np.argsort(self.labels, kind="stable").astype(np.int32)  # by age within a class
        self.class_running = _running_sum(fitness[self.by_class])
        self.rank = np.empty(nodes, np.int32)  # of each paper in `by_class`
        self.rank[self.by_class] = np.arange(nodes, dtype=np.int32)
        self.starts = np.searchsorted(self.labels[self.by_class], np.arange(CLASSES))  # of each class in `by_class`

    def _rng(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *numbers])

    def citations(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw citing and cited papers of one chunk, with repetitions."""
        rng, first = self._rng(number, 1), number * self.chunk
        papers = np.arange(first, min(first + self.chunk, self.nodes))
        means = rng.lognormal(np.log(MEAN_CITATIONS) - SPREAD**2 / 2, SPREAD, len(papers))
        src = np.repeat(papers, np.floor(means + rng.random(len(papers))).astype(int))
        own, drawn = rng.random(len(src)) < OWN_CLASS, rng.random(len(src))
        dst = np.empty_like(src)
        dst[~own] = _draw_below(self.running, 0, src[~own], drawn[~own])
        citing = src[own]
        first_rank, newest_rank = self.starts[self.labels[citing]], self.rank[citing].astype(np.int64)
        dst[own] = self.by_class[_draw_below(self.class_running, first_rank, newest_rank, drawn[own])]
        older = dst < src  # the first paper of a class has none to cite
        return src[older], dst[older]

    def features(self, first: int, last: int) -> Iterator[np.ndarray]:
        """Yield blocks of the features of papers first ... last - 1."""
        for number in range(first // FEATURE_ROWS, -(-last // FEATURE_ROWS)):
            begin, end = number * FEATURE_ROWS, min((number + 1) * FEATURE_ROWS, self.nodes)
            noise = self._rng(number, 2).standard_normal((end - begin, DIM), dtype=np.float32)
            rows = slice(max(first - begin, 0), min(last, end) - begin)
            yield noise[rows] + self.centroids[self.labels[begin:end][rows]]


def _running_sum(values: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(values)])


def _draw_below(running: np.ndarray, first: np.ndarray | int, newest: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Return an index from `first` to below each `newest` in proportion to fitness, or `newest` if there is none."""
    low, high = running[first], running[newest]
    order = np.argsort(keys := low + drawn * (high - low))  # a search in rising order is several times faster
    index = np.empty(len(newest), np.int64)
    index[order] = np.searchsorted(running, keys[order], side="right") - 1
    return np.clip(index, first, np.maximum(newest - 1, first))


def _contents(papers: _Papers, parts: int, drawn: Path) -> Iterator[PartitionData]:
    nodes = papers.nodes
    firsts = [nodes * number // parts for number in range(parts + 1)]
    pieces = [list(range(a, b, papers.chunk)) for a, b in zip(firsts, firsts[1:], strict=False)]
    bounds = np.array([first for starts in pieces for first in starts])
    chunks = range(-(-nodes // papers.chunk))
    files = [drawn / str(first) for first in bounds]
    for number in Progress(chunks, "drawing citations", unit="chunk"):
        src, dst = papers.citations(number)
        piece = (np.searchsorted(bounds, dst, side="right") - 1).astype(np.int16)
        order = np.argsort(piece, kind="stable")
        ends = np.searchsorted(piece[order], np.arange(len(bounds) + 1))
        pairs = np.stack([dst[order], src[order]], axis=1)
        for index in np.flatnonzero(np.diff(ends)):
            with files[index].open("ab") as file:
                file.write(pairs[ends[index] : ends[index + 1]].data)
    for number in Progress(range(parts), "writing parts", unit="part"):
        first, last = firsts[number], firsts[number + 1]
        with status("sorting citations"):
            chunks_of_part = [_sorted(drawn / str(a), a, min(a + papers.chunk, last), nodes) for a in pieces[number]]
        counts = np.concatenate([counts for counts, _ in chunks_of_part])
        sources = np.concatenate([citing for _, citing in chunks_of_part])
        indptr = np.concatenate([[0], counts.cumsum()])
        yield PartitionData(None, indptr, sources, papers.labels[first:last], papers.features(first, last))


def _sorted(path: Path, first: int, last: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the citation counts of papers first ... last - 1, and the citing papers, without repetitions."""
    pairs = np.fromfile(path, np.int64).reshape(-1, 2) if path.exists() else np.empty((0, 2), np.int64)
    path.unlink(missing_ok=True)
    keys = (pairs[:, 0] - first) * nodes + pairs[:, 1]
    keys.sort()
    keys = keys[np.concatenate([keys[:1] >= 0, keys[1:] != keys[:-1]])]  # np.unique takes longer
    cited, citing = np.divmod(keys, nodes)
    return np.bincount(cited, minlength=last - first), citing.astype(np.int32 if nodes < 2**31 else np.int64)

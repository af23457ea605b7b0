"""`citation` of any size, drawn part by part: the same law as `citation.generate`, never the whole graph at once.

What is held of all papers is 25 bytes each: the class, and running sums of fitness to draw from. Citations are drawn
for a chunk of papers at a time and put into files by whom they cite; each file is then sorted by itself. Every chunk
has a seed of its own, so that the graph does not depend on the number of parts.
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
    ends_of_splits,
)
from dgl_lara.errors import InputError
from dgl_lara.graphs.partition_writer import GraphInfo, PartitionData, check_free, write_parts

STREAMED_FROM = 1_000_000  # nodes; smaller graphs are made whole, and cut up
CHUNK = 1_000_000  # papers whose citations are drawn, or sorted, at a time
ROWS = 100_000  # of features that are drawn at a time


def stream_citation(
    nodes: int, parts: int, out: Path, seed: int = 0, kind: str = "float32", chunk: int = CHUNK
) -> None:
    """Write the graph into `out`, in the order of time. A smaller `chunk` gives another graph of the same kind."""
    check_nodes(nodes)
    if not 1 <= parts <= nodes:
        raise InputError(f"parts must be a number from 1 to {nodes:,}, that of the nodes (got {parts}).")
    check_free(out)
    train, val = ends_of_splits(nodes)
    splits = {"train": np.arange(train), "val": np.arange(train, val), "test": np.arange(val, nodes)}
    source = f"generated in parts, a stand-in for ogbn-arxiv, {nodes} nodes, seed {seed}"
    key = {"dataset": "citation", "seed": seed, "nodes": nodes, "streamed": 1, "chunk": chunk}
    about = GraphInfo("citation", source, nodes, DIM, CLASSES, key, splits, "order", versions())
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".drawn-") as drawn:
        write_parts(out, about, _contents(Papers(nodes, seed, chunk), parts, Path(drawn)), kind)


class Papers:
    """What must be known of all papers to draw the citations of any of them."""

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
        np.minimum(fitness, nodes / 20, out=fitness)  # no single paper is cited by everybody
        self.everyone = _running_sum(fitness)
        self.by_class = np.argsort(self.labels, kind="stable").astype(np.int32)  # and by age within a class
        self.at_home = _running_sum(fitness[self.by_class])
        self.rank = np.empty(nodes, np.int32)  # the place of each paper in `by_class`
        self.rank[self.by_class] = np.arange(nodes, dtype=np.int32)
        self.starts = np.searchsorted(self.labels[self.by_class], np.arange(CLASSES))  # of each class, there

    def _rng(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *numbers])

    def citations(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """(who cites, who is cited) of one chunk of papers; some twice."""
        rng, first = self._rng(number, 1), number * self.chunk
        papers = np.arange(first, min(first + self.chunk, self.nodes))
        many = rng.lognormal(np.log(MEAN_CITATIONS) - SPREAD**2 / 2, SPREAD, len(papers))
        src = np.repeat(papers, np.floor(many + rng.random(len(papers))).astype(int))
        at_home, drawn = rng.random(len(src)) < OWN_CLASS, rng.random(len(src))
        dst = np.empty_like(src)
        abroad = ~at_home
        dst[abroad] = _below(self.everyone, 0, src[abroad], drawn[abroad])
        mine = src[at_home]
        place = _below(self.at_home, self.starts[self.labels[mine]], self.rank[mine].astype(np.int64), drawn[at_home])
        dst[at_home] = self.by_class[place]
        older = dst < src  # the first paper of a class has nobody to cite
        return src[older], dst[older]

    def features(self, first: int, last: int) -> Iterator[np.ndarray]:
        """Blocks of rows of the papers first ... last - 1."""
        for number in range(first // ROWS, -(-last // ROWS)):
            begin, end = number * ROWS, min((number + 1) * ROWS, self.nodes)
            noise = self._rng(number, 2).standard_normal((end - begin, DIM), dtype=np.float32)
            rows = slice(max(first - begin, 0), min(last, end) - begin)
            yield noise[rows] + self.centroids[self.labels[begin:end][rows]]


def _running_sum(values: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(values)])


def _below(running: np.ndarray, first: np.ndarray | int, newest: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """For each entry a place from `first` to below `newest`, with probability proportional to fitness; `newest` itself
    where there is none."""
    low, high = running[first], running[newest]
    order = np.argsort(wanted := low + drawn * (high - low))  # a search in rising order is several times faster
    place = np.empty(len(newest), np.int64)
    place[order] = np.searchsorted(running, wanted[order], side="right") - 1
    return np.clip(place, first, np.maximum(newest - 1, first))


def _contents(papers: Papers, parts: int, drawn: Path) -> Iterator[PartitionData]:
    nodes = papers.nodes
    firsts = [nodes * number // parts for number in range(parts + 1)]
    pieces = [list(range(a, b, papers.chunk)) for a, b in zip(firsts, firsts[1:], strict=False)]
    bounds = np.array([first for some in pieces for first in some])
    chunks = range(-(-nodes // papers.chunk))
    files = [drawn / str(first) for first in bounds]
    for number in Progress(chunks, "drawing citations", unit="chunk"):
        src, dst = papers.citations(number)
        piece = (np.searchsorted(bounds, dst, side="right") - 1).astype(np.int16)
        order = np.argsort(piece, kind="stable")
        ends = np.searchsorted(piece[order], np.arange(len(bounds) + 1))
        pairs = np.stack([dst[order], src[order]], axis=1)
        for place in np.flatnonzero(np.diff(ends)):
            with files[place].open("ab") as file:
                file.write(pairs[ends[place] : ends[place + 1]].data)
    for number in Progress(range(parts), "writing parts", unit="part"):
        first, last = firsts[number], firsts[number + 1]
        with status("sorting citations"):
            found = [_sorted(drawn / str(a), a, min(a + papers.chunk, last), nodes) for a in pieces[number]]
        counts = np.concatenate([many for many, _ in found])
        sources = np.concatenate([cites for _, cites in found])
        indptr = np.concatenate([[0], counts.cumsum()])
        yield PartitionData(None, indptr, sources, papers.labels[first:last], papers.features(first, last))


def _sorted(path: Path, first: int, last: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """(how often each of the papers first ... last - 1 is cited, who cites), each once and rising."""
    pairs = np.fromfile(path, np.int64).reshape(-1, 2) if path.exists() else np.empty((0, 2), np.int64)
    path.unlink(missing_ok=True)
    keys = (pairs[:, 0] - first) * nodes + pairs[:, 1]
    keys.sort()
    keys = keys[np.concatenate([keys[:1] >= 0, keys[1:] != keys[:-1]])]  # each once; np.unique takes longer
    cited, cites = np.divmod(keys, nodes)
    return np.bincount(cited, minlength=last - first), cites.astype(np.int32 if nodes < 2**31 else np.int64)

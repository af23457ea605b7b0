"""`MappedGraph`: a partitioned graph on this machine, read through memory maps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.progress import Progress
from dgl_lara.errors import LaraError
from dgl_lara.graphs.checksums import check
from dgl_lara.graphs.partition_format import SPLITS, mapped_array, part_folder, read_meta
from dgl_lara.graphs.source import GraphSource

ORDERED_ROWS = 1_000_000  # nodes whose in-edges are read at a time


@dataclass(frozen=True, eq=False)
class _PartitionArrays:
    """The arrays of one part. `nodes` are ascending ids."""

    indptr: np.ndarray
    sources: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    nodes: np.ndarray | range


class MappedGraph(GraphSource):
    """All parts on this machine. Memory maps take memory only for what is read, and give it back if needed."""

    def __init__(self, folder: Path | str, only: int | None = None) -> None:
        """Open and check the files.

        Args:
            folder: Folder of the partitioned graph.
            only: Number of the one part that is here. Nodes of other parts cannot be read then.
        """
        self.folder = Path(folder)
        self.meta = read_meta(self.folder)
        self.num_nodes, self.num_edges, self.columns = self.meta.nodes, self.meta.edges, self.meta.columns
        self.has_loops, self.all_loops = self.meta.loops, self.meta.all_loops
        self.firsts = self.meta.firsts
        check(self.folder, self.meta.files)
        position = self.folder / "place.npy"
        self.place = mapped_array(position, "i", self.num_nodes) if self.meta.method != "order" else None
        numbers = range(len(self.meta.parts)) if only is None else [only]
        self.parts = {number: self._part(number) for number in numbers}

    def _part(self, number: int) -> _PartitionArrays:
        inner, info = part_folder(self.folder, number), self.meta.parts[number]
        check(inner, info["files"])
        count, edges, first = info["nodes"], info["edges"], int(self.firsts[number])
        nodes = range(first, first + count) if self.place is None else mapped_array(inner / "original.npy", "i", count)
        return _PartitionArrays(
            mapped_array(inner / "indptr.npy", "i", count + 1),
            mapped_array(inner / "sources.npy", "i", edges),
            mapped_array(inner / "features.npy", "f", count, self.columns),
            mapped_array(inner / "labels.npy", "i", count),
            nodes,
        )

    def split(self, name: str) -> Tensor:
        """Return the nodes of a split: train, val or test."""
        assert name in SPLITS
        path = self.folder / f"{name}.npy"
        try:
            return torch.from_numpy(np.load(path, allow_pickle=False).astype(np.int64))
        except (OSError, ValueError, EOFError) as error:
            raise LaraError("partition.damaged", path=path, cause=str(error).splitlines()[0]) from error

    # --- rows

    def part_of(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (part of each node, its row there)."""
        position = nodes if self.place is None else np.asarray(self.place[nodes], np.int64)
        part = np.searchsorted(self.firsts, position, side="right") - 1
        return part, position - self.firsts[part]

    def _each(self, nodes: np.ndarray) -> Iterator[tuple[int, np.ndarray | slice, np.ndarray]]:
        """Yield (part, indices in `nodes` of its nodes, their rows there) for every part with such nodes."""
        part, row = self.part_of(nodes)
        numbers = np.unique(part).tolist()
        if len(numbers) == 1:
            yield numbers[0], slice(None), row
            return
        for number in numbers:
            index = np.flatnonzero(part == number)
            yield number, index, row[index]

    def in_edges(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        ids = nodes.numpy()
        start, counts = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        found = list(self._each(ids))
        for number, index, row in found:
            begin = np.asarray(self.parts[number].indptr[row], np.int64)
            start[index], counts[index] = begin, self.parts[number].indptr[row + 1] - begin
        indptr = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
        sources = np.empty(indptr[-1], np.int64)
        for number, index, _ in found:
            length = counts[index]
            within = np.arange(length.sum()) - np.repeat(length.cumsum() - length, length)
            from_ = np.repeat(start[index], length) + within
            rows = self.parts[number].sources[from_]
            sources[slice(None) if isinstance(index, slice) else np.repeat(indptr[:-1][index], length) + within] = rows
        return torch.from_numpy(indptr), torch.from_numpy(sources)

    def in_degrees(self, nodes: Tensor) -> Tensor:
        ids = nodes.numpy()
        counts = np.empty(len(ids), np.int64)
        for number, index, row in self._each(ids):
            indptr = self.parts[number].indptr
            counts[index] = indptr[row + 1] - indptr[row]
        return torch.from_numpy(counts)

    def features(self, nodes: Tensor) -> Tensor:
        ids = nodes.numpy()
        rows = np.empty((len(ids), self.columns), np.float32)
        for number, index, row in self._each(ids):
            rows[index] = self.parts[number].features[row]
        return torch.from_numpy(rows)

    def ordered_edges(self, path: Path) -> tuple[np.ndarray, np.ndarray]:
        path.parent.mkdir(parents=True, exist_ok=True)
        sources = np.lib.format.open_memmap(path, mode="w+", dtype=np.int32, shape=(self.num_edges,))
        indptr, first = np.zeros(self.num_nodes + 1, np.int64), 0
        for nodes in Progress(torch.arange(self.num_nodes).split(ORDERED_ROWS), "ordering edges", unit="batch"):
            ends, found = self.in_edges(nodes)
            sources[first : first + len(found)] = found
            indptr[nodes.numpy() + 1] = first + ends[1:].numpy()
            first += len(found)
        return indptr, sources

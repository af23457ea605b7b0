"""A graph in parts as those who work on it see it: in-edges, degrees and features of any nodes, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dgl_lara.errors import LaraError
from dgl_lara.graphs.checksums import check
from dgl_lara.graphs.partition_format import SPLITS, mapped_array, part_folder, read_meta


class GraphView(Protocol):
    """What a graph must say of itself to be worked on in cuts (`cutting.py`), wherever its rows are. Nodes are int64
    numbers of the user's graph, in any order; answers stand in that order."""

    num_nodes: int
    num_edges: int
    columns: int  # of the features
    has_loops: bool  # a node has an edge to itself
    all_loops: bool  # every node has

    def in_edges(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """(len(nodes) + 1,) where the edges that enter each node begin, and (edges,) where they come from."""

    def in_degrees(self, nodes: Tensor) -> Tensor:
        """(len(nodes),) of the whole graph."""

    def features(self, nodes: Tensor) -> Tensor:
        """(len(nodes), columns) float32."""

    @property
    def marks(self) -> np.ndarray:
        """(num_nodes,) int32 of -1, for whoever cuts; to be given back as it was."""


@dataclass(frozen=True, eq=False)
class PartitionArrays:
    """The files of one part."""

    indptr: np.ndarray
    sources: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    nodes: np.ndarray | range  # rising


class MmapGraphView:
    """All parts on this machine, through memory maps: what is not looked at takes no memory, what was is given back
    when others need it."""

    def __init__(self, folder: Path | str, only: int | None = None) -> None:
        """`only`: the number of the one part that is here; of others' nodes nothing can be asked then."""
        self.folder = Path(folder)
        self.meta = read_meta(self.folder)
        self.num_nodes, self.num_edges, self.columns = self.meta.nodes, self.meta.edges, self.meta.columns
        self.has_loops, self.all_loops = self.meta.loops, self.meta.all_loops
        self.firsts = self.meta.firsts
        check(self.folder, self.meta.files)
        place = self.folder / "place.npy"
        self.place = mapped_array(place, "i", self.num_nodes) if self.meta.method != "order" else None
        here = range(len(self.meta.parts)) if only is None else [only]
        self.parts = {number: self._part(number) for number in here}

    def _part(self, number: int) -> PartitionArrays:
        inner, about = part_folder(self.folder, number), self.meta.parts[number]
        check(inner, about["files"])
        count, edges, first = about["nodes"], about["edges"], int(self.firsts[number])
        nodes = range(first, first + count) if self.place is None else mapped_array(inner / "original.npy", "i", count)
        return PartitionArrays(
            mapped_array(inner / "indptr.npy", "i", count + 1),
            mapped_array(inner / "sources.npy", "i", edges),
            mapped_array(inner / "features.npy", "f", count, self.columns),
            mapped_array(inner / "labels.npy", "i", count),
            nodes,
        )

    @cached_property
    def marks(self) -> np.ndarray:
        return np.full(self.num_nodes, -1, np.int32)

    def split(self, name: str) -> Tensor:
        """Numbers of nodes: train, val or test."""
        assert name in SPLITS
        path = self.folder / f"{name}.npy"
        try:
            return torch.from_numpy(np.load(path, allow_pickle=False).astype(np.int64))
        except (OSError, ValueError, EOFError) as error:
            raise LaraError(f"{path} is missing, truncated or damaged; partition the graph again.") from error

    # --- rows

    def part_of(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(which part each node is in, its row there)."""
        place = nodes if self.place is None else np.asarray(self.place[nodes], np.int64)
        part = np.searchsorted(self.firsts, place, side="right") - 1
        return part, place - self.firsts[part]

    def _each(self, nodes: np.ndarray) -> Iterator[tuple[int, np.ndarray | slice, np.ndarray]]:
        """(part, places in `nodes` that are its, their rows there) for every part that has any of them."""
        part, row = self.part_of(nodes)
        held = np.unique(part).tolist()
        if len(held) == 1:
            yield held[0], slice(None), row
            return
        for number in held:
            here = np.flatnonzero(part == number)
            yield number, here, row[here]

    def in_edges(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        asked = nodes.numpy()
        start, counts = np.empty(len(asked), np.int64), np.empty(len(asked), np.int64)
        found = list(self._each(asked))
        for number, here, row in found:
            begin = np.asarray(self.parts[number].indptr[row], np.int64)
            start[here], counts[here] = begin, self.parts[number].indptr[row + 1] - begin
        indptr = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
        sources = np.empty(indptr[-1], np.int64)
        for number, here, _ in found:
            length = counts[here]
            within = np.arange(length.sum()) - np.repeat(length.cumsum() - length, length)
            from_ = np.repeat(start[here], length) + within
            rows = self.parts[number].sources[from_]
            sources[slice(None) if isinstance(here, slice) else np.repeat(indptr[:-1][here], length) + within] = rows
        return torch.from_numpy(indptr), torch.from_numpy(sources)

    def in_degrees(self, nodes: Tensor) -> Tensor:
        asked = nodes.numpy()
        counts = np.empty(len(asked), np.int64)
        for number, here, row in self._each(asked):
            indptr = self.parts[number].indptr
            counts[here] = indptr[row + 1] - indptr[row]
        return torch.from_numpy(counts)

    def features(self, nodes: Tensor) -> Tensor:
        asked = nodes.numpy()
        rows = np.empty((len(asked), self.columns), np.float32)
        for number, here, row in self._each(asked):
            rows[here] = self.parts[number].features[row]
        return torch.from_numpy(rows)

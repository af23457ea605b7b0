"""Extraction of subgraphs from a graph that is never loaded as a whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.numba_threads import kernel
from dgl_lara.graphs.graph import graph_from_csc
from dgl_lara.graphs.subgraph import SharedSubgraph

InEdges = Callable[[Tensor], tuple[Tensor, Tensor]]  # nodes -> indptr, sources


def extract_subgraph(in_edges: InEdges, marks: np.ndarray, targets: Tensor, hops: int, inner: bool) -> SharedSubgraph:
    """Return the subgraph that `GraphSource.subgraph` describes.

    Args:
        in_edges: Returns the in-edges of nodes.
        marks: (num_nodes,) int32 of -1 as working memory. It is restored.
        targets: Ids of nodes.
        hops: K.
        inner: Leave out edges into the outermost nodes.
    """
    found: list[np.ndarray] = []  # nodes by distance
    entered: list[tuple[Tensor, Tensor, Tensor]] = []  # (nodes, indptr, sources) by distance
    try:
        found.append(_unmarked(targets.numpy(), marks))
        for hop in range(hops + 1):
            if hop == hops and inner:
                break
            frontier = torch.from_numpy(found[-1])
            indptr, sources = in_edges(frontier)
            entered.append((frontier, indptr, sources))
            if hop < hops:
                found.append(_unmarked(sources.numpy(), marks))
        nodes = np.sort(np.concatenate(found))
        marks[nodes] = np.arange(len(nodes), dtype=np.int32)
        ends = np.zeros(len(nodes) + 1, np.int64)
        for each in entered:
            _count(*(part.numpy() for part in each), marks, ends)
        np.cumsum(ends, out=ends)
        inside = np.empty(ends[-1], np.int64)
        for each in entered:
            _list(*(part.numpy() for part in each), marks, ends, inside)
        rows = torch.from_numpy(marks[targets.numpy()].astype(np.int64))
    finally:
        for some in found:
            marks[some] = -1
    graph = graph_from_csc(torch.from_numpy(ends), torch.from_numpy(inside))  # sorted, which DGL would do otherwise
    return SharedSubgraph(graph, torch.from_numpy(nodes), targets, rows)


@kernel()
def _unmarked(nodes, marks):  # type: ignore[no-untyped-def]
    """Return the nodes without a mark, each once, and mark them."""
    found = np.empty(len(nodes), np.int64)
    count = 0
    for node in nodes:
        if marks[node] < 0:
            marks[node] = 0
            found[count] = node
            count += 1
    return found[:count].copy()


@kernel()
def _count(nodes, indptr, sources, marks, ends):  # type: ignore[no-untyped-def]
    """Count the in-edges of each node whose source has a mark, at the node's own index."""
    for row in range(len(nodes)):
        for edge in range(indptr[row], indptr[row + 1]):
            ends[marks[nodes[row]] + 1] += marks[sources[edge]] >= 0


@kernel()
def _list(nodes, indptr, sources, marks, ends, inside):  # type: ignore[no-untyped-def]
    """Write the indices of their sources."""
    for row in range(len(nodes)):
        slot = ends[marks[nodes[row]]]
        for edge in range(indptr[row], indptr[row + 1]):
            index = marks[sources[edge]]
            if index >= 0:
                inside[slot] = index
                slot += 1

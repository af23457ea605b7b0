"""Cutting a part out of a graph that is never whole: what f, g and the scores need around some targets."""

from __future__ import annotations

import dgl
import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.numba_threads import kernel
from dgl_lara.graphs.mmap import GraphView
from dgl_lara.graphs.subgraph import SharedSubgraph


def extract_subgraph(view: GraphView, targets: Tensor, hops: int, inner: bool = False) -> SharedSubgraph:
    """The K-hop in-neighbourhoods of the targets together, as `khop_batch` cuts them: nodes rising, and all edges among
    them. `inner`: without the edges into the outermost nodes, which need not be looked up then."""
    marks = view.marks
    found: list[np.ndarray] = []  # nodes by distance
    entered: list[tuple[Tensor, Tensor, Tensor]] = []  # (nodes, indptr, sources) by distance
    try:
        found.append(_unmarked(targets.numpy(), marks))
        for hop in range(hops + 1):
            if hop == hops and inner:
                break
            frontier = torch.from_numpy(found[-1])
            indptr, sources = view.in_edges(frontier)
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
        places = torch.from_numpy(marks[targets.numpy()].astype(np.int64))
    finally:
        for some in found:
            marks[some] = -1
    by_node = (torch.from_numpy(ends), torch.from_numpy(inside), torch.empty(0, dtype=torch.long))
    graph = dgl.graph(("csc", by_node), num_nodes=len(nodes))  # sorted already, as DGL would have to
    return SharedSubgraph(graph, torch.from_numpy(nodes), targets, places)


@kernel()
def _unmarked(nodes, marks):  # type: ignore[no-untyped-def]
    """Those that have no mark, each once; they get one."""
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
    """How many of the edges that enter each node come from one that has a place: behind the node's own place."""
    for row in range(len(nodes)):
        for edge in range(indptr[row], indptr[row + 1]):
            ends[marks[nodes[row]] + 1] += marks[sources[edge]] >= 0


@kernel()
def _list(nodes, indptr, sources, marks, ends, inside):  # type: ignore[no-untyped-def]
    """The places of their sources."""
    for row in range(len(nodes)):
        slot = ends[marks[nodes[row]]]
        for edge in range(indptr[row], indptr[row + 1]):
            place = marks[sources[edge]]
            if place >= 0:
                inside[slot] = place
                slot += 1

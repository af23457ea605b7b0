"""Cutting a part out of a graph that is never whole: what f, g and the scores need around some targets."""

from __future__ import annotations

import dgl
import numpy as np
import torch
from torch import Tensor

from dgl_lara.game.batch import Batch
from dgl_lara.parts.mapped import View
from dgl_lara.utils.kernels import kernel


def cut(view: View, targets: Tensor, hops: int, inner: bool = False) -> Batch:
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
        edges = [_among(*(part.numpy() for part in each), marks) for each in entered]
        places = torch.from_numpy(marks[targets.numpy()].astype(np.int64))
    finally:
        for some in found:
            marks[some] = -1
    src, dst = (np.concatenate([np.empty(0, np.int64), *(ends[side] for ends in edges)]) for side in (0, 1))
    graph = dgl.graph((torch.from_numpy(src), torch.from_numpy(dst)), num_nodes=len(nodes))
    return Batch(graph, torch.from_numpy(nodes), targets, places)


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
def _among(nodes, indptr, sources, marks):  # type: ignore[no-untyped-def]
    """(places of the sources, places of the nodes) of the edges whose both ends have places."""
    src, dst = np.empty(len(sources), np.int64), np.empty(len(sources), np.int64)
    count = 0
    for row in range(len(nodes)):
        for edge in range(indptr[row], indptr[row + 1]):
            place = marks[sources[edge]]
            if place >= 0:
                src[count], dst[count] = place, marks[nodes[row]]
                count += 1
    return src[:count].copy(), dst[:count].copy()

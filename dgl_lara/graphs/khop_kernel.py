"""K-hop in-neighbourhoods of many targets on the CPU, listed by compiled code.

Each worker searches breadth first from one target at a time. Only the players of a target are sorted. The lists equal
those of `in_neighborhood`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.numba_threads import inner, kernel, run_in_threads
from dgl_lara.graphs.graph import Graph


def list_players(graph: Graph, targets: Tensor, hops: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return (number of players of each target, their node ids in ascending order, their distances)."""
    indptr, sources, _ = graph.adj_tensors("csc")
    indptr, sources, rows = indptr.numpy(), sources.numpy(), targets.numpy()
    counts = np.empty(len(rows), np.int64)
    run_in_threads(count, len(rows), indptr, sources, rows, hops, counts)
    ends = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
    player, hop = np.empty(ends[-1], np.int64), np.empty(ends[-1], np.int64)
    run_in_threads(_list, len(rows), indptr, sources, rows, hops, ends, player, hop)
    return torch.from_numpy(counts), torch.from_numpy(player), torch.from_numpy(hop)


@kernel()
def count(worker, workers, indptr, sources, targets, hops, counts):  # type: ignore[no-untyped-def]
    """Count the players of each target."""
    nodes = len(indptr) - 1
    seen_by, queue = np.full(nodes, -1, np.int64), np.empty(nodes, np.int64)
    for row in range(worker, len(targets), workers):
        counts[row] = _reach(indptr, sources, targets[row], row, hops, seen_by, queue, None)


@kernel()
def _list(worker, workers, indptr, sources, targets, hops, ends, player, hop):  # type: ignore[no-untyped-def]
    """Write players in ascending order and their distances, from index ends[row] on."""
    nodes = len(indptr) - 1
    seen_by, queue = np.full(nodes, -1, np.int64), np.empty(nodes, np.int64)
    distance = np.empty(nodes, np.int64)
    for row in range(worker, len(targets), workers):
        found = _reach(indptr, sources, targets[row], row, hops, seen_by, queue, distance)
        queue[:found].sort()
        place = ends[row]
        for node in queue[:found]:
            player[place], hop[place] = node, distance[node]
            place += 1


@inner()
def _reach(indptr, sources, target, row, hops, seen_by, queue, distance):  # type: ignore[no-untyped-def]
    """Put the target and all nodes that reach it into the queue, with their distances unless None."""
    queue[0], seen_by[target] = target, row
    if distance is not None:
        distance[target] = 0
    begin, end = 0, 1
    for step in range(1, hops + 1):
        stop = end
        for place in range(begin, stop):
            node = queue[place]
            for edge in range(indptr[node], indptr[node + 1]):
                other = sources[edge]
                if seen_by[other] != row:
                    seen_by[other] = row
                    if distance is not None:
                        distance[other] = step
                    queue[end] = other
                    end += 1
        begin = stop
    return end

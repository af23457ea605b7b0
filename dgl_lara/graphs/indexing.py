"""Look-ups in sorted keys, ragged lists and the incoming edges of nodes, as tensor operations."""

from __future__ import annotations

import dgl
import torch
from torch import Tensor


def in_edges(graph: dgl.DGLGraph, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """(index into `nodes`, source node) of every edge that enters one of them."""
    indptr, sources, _ = graph.adj_tensors("csc")
    start = indptr[nodes]
    pair, within = ragged(indptr[nodes + 1] - start)
    return pair, sources[start[pair] + within]


def in_edge_ids(graph: dgl.DGLGraph, nodes: Tensor) -> Tensor:
    """The places in `graph.edges()` of those edges, in the same order."""
    indptr, _, numbers = graph.adj_tensors("csc")
    start = indptr[nodes]
    pair, within = ragged(indptr[nodes + 1] - start)
    return numbers[start[pair] + within]


def ragged(counts: Tensor) -> tuple[Tensor, Tensor]:
    """(which list, place within it) of every entry of lists of these lengths, one after the other."""
    pair = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    before = counts.cumsum(0) - counts
    return pair, torch.arange(len(pair), device=counts.device) - before[pair]


def lookup_sorted(keys: Tensor, in_sorted: Tensor) -> tuple[Tensor, Tensor]:
    """(place of each key in a sorted list, whether it is there)."""
    place = torch.searchsorted(in_sorted, keys.contiguous()).clamp(max=max(len(in_sorted) - 1, 0))
    return place, in_sorted[place] == keys


def is_member(keys: Tensor, in_sorted: Tensor) -> Tensor:
    return lookup_sorted(keys, in_sorted)[1]

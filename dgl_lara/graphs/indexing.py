"""Lookups in sorted keys, ragged lists and in-edges of nodes, as tensor operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dgl_lara.graphs.graph import Graph


def in_edges(graph: Graph, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Return (index in `nodes`, source node) of every edge into one of the nodes."""
    indptr, sources, _ = graph.adj_tensors("csc")
    start = indptr[nodes]
    pair, within = ragged(indptr[nodes + 1] - start)
    return pair, sources[start[pair] + within]


def in_edge_ids(graph: Graph, nodes: Tensor) -> Tensor:
    """Return the index in `graph.edges()` of each of these edges, in that order."""
    indptr, _, numbers = graph.adj_tensors("csc")
    start = indptr[nodes]
    pair, within = ragged(indptr[nodes + 1] - start)
    return numbers[start[pair] + within]


def ragged(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return (list, index in it) of every entry of lists of these lengths, one after the other."""
    pair = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    before = counts.cumsum(0) - counts
    return pair, torch.arange(len(pair), device=counts.device) - before[pair]


def lookup_sorted(keys: Tensor, in_sorted: Tensor) -> tuple[Tensor, Tensor]:
    """Return (index of each key in a sorted list, whether it is there)."""
    index = torch.searchsorted(in_sorted, keys.contiguous()).clamp(max=max(len(in_sorted) - 1, 0))
    return index, in_sorted[index] == keys


def is_member(keys: Tensor, in_sorted: Tensor) -> Tensor:
    return lookup_sorted(keys, in_sorted)[1]

"""Graph updates applied to a graph, and the nodes that they can affect.

f sees K hops, so its outputs change within K hops of an update. The encoder of g sees f's outputs through as many hops
as it has layers, so p and t change within 2K hops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara.graphs.graph import Graph, graph_from_edges
from dgl_lara.serve.update_log import Entry


@dataclass(frozen=True, eq=False)
class UpdatedGraph:
    """A graph after some updates."""

    graph: Graph
    features: Tensor
    removed: Tensor  # (num_nodes,) bool: a removed node keeps its number and has no edges
    touched: Tensor  # (num_nodes,) bool: new, removed, or an end of a new or removed edge


def apply_updates(graph: Graph, features: Tensor, removed: Tensor, entries: Sequence[Entry]) -> UpdatedGraph:
    """Apply entries of the log in their order.

    Edges are a set. Adding an edge twice or removing a missing edge changes nothing.
    """
    rows = [row for entry in entries for row in entry["features"]]
    count = graph.num_nodes() + len(rows)
    if rows:
        features = torch.cat([features, torch.tensor(rows, dtype=features.dtype)])
        removed = torch.cat([removed, removed.new_zeros(len(rows))])
    removed, touched = removed.clone(), torch.zeros(count, dtype=torch.bool)
    touched[graph.num_nodes() :] = True
    src, dst = graph.edges()
    keys = src * count + dst
    for entry in entries:
        nodes = torch.tensor(entry["removed_nodes"], dtype=torch.long)
        removed[nodes] = True
        touched[nodes] = True
        dropped = (
            torch.isin(keys, _keys(entry["removed_edges"], count)) | removed[keys // count] | removed[keys % count]
        )
        new = _keys(entry["edges"], count).unique()
        new = new[~torch.isin(new, keys[~dropped]) & ~removed[new // count] & ~removed[new % count]]
        for changed in (keys[dropped], new):
            touched[changed // count] = True
            touched[changed % count] = True
        keys = torch.cat([keys[~dropped], new])
    return UpdatedGraph(graph_from_edges(keys // count, keys % count, count), features, removed, touched)


def _keys(edges: list[list[int]], count: int) -> Tensor:
    ends = torch.tensor(edges, dtype=torch.long).view(-1, 2)
    return ends[:, 0] * count + ends[:, 1]


def downstream(graph: Graph, nodes: Tensor, hops: int) -> Tensor:
    """Return (num_nodes,) bool: these nodes and all that they can reach within `hops`."""
    src, dst = graph.edges()
    return _reach(src, dst, nodes, hops)


def upstream(graph: Graph, nodes: Tensor, hops: int) -> Tensor:
    """Return (num_nodes,) bool: these nodes and all that can reach them within `hops`."""
    src, dst = graph.edges()
    return _reach(dst, src, nodes, hops)


def _reach(start: Tensor, end: Tensor, nodes: Tensor, hops: int) -> Tensor:
    reached = nodes.clone()
    for _ in range(hops):
        reached[end[reached[start]]] = True
    return reached

"""What a graph update changes: the graph itself, and how far the change reaches.

f looks K hops far, so its answer is another one within K hops of a changed edge or node; g sees f's answer and looks as
many hops as it has layers, so p and t are others within 2K hops, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import dgl
import torch
from torch import Tensor

from dgl_lara.serve.update_log import Entry


@dataclass(frozen=True, eq=False)
class UpdatedGraph:
    """A graph after some updates."""

    graph: dgl.DGLGraph
    features: Tensor
    gone: Tensor  # (num_nodes,) bool: removed; such a node keeps its number, without any edge
    touched: Tensor  # (num_nodes,) bool: new, gone, or at an end of an edge that is


def changed(graph: dgl.DGLGraph, features: Tensor, gone: Tensor, entries: Sequence[Entry]) -> UpdatedGraph:
    """After entries of the log, in their order. An edge that is there is not added again, and one that is not there
    cannot be removed: both leave the graph as it is."""
    rows = [row for entry in entries for row in entry["features"]]
    count = graph.num_nodes() + len(rows)
    if rows:
        features = torch.cat([features, torch.tensor(rows, dtype=features.dtype)])
        gone = torch.cat([gone, gone.new_zeros(len(rows))])
    gone, touched = gone.clone(), torch.zeros(count, dtype=torch.bool)
    touched[graph.num_nodes() :] = True
    src, dst = graph.edges()
    keys = src * count + dst
    for entry in entries:
        named = torch.tensor(entry["removed_nodes"], dtype=torch.long)
        gone[named] = True
        touched[named] = True
        lost = torch.isin(keys, _keys(entry["removed_edges"], count)) | gone[keys // count] | gone[keys % count]
        new = _keys(entry["edges"], count).unique()
        new = new[~torch.isin(new, keys[~lost]) & ~gone[new // count] & ~gone[new % count]]
        for moved in (keys[lost], new):
            touched[moved // count] = True
            touched[moved % count] = True
        keys = torch.cat([keys[~lost], new])
    return UpdatedGraph(dgl.graph((keys // count, keys % count), num_nodes=count), features, gone, touched)


def _keys(edges: list[list[int]], count: int) -> Tensor:
    ends = torch.tensor(edges, dtype=torch.long).view(-1, 2)
    return ends[:, 0] * count + ends[:, 1]


def downstream(graph: dgl.DGLGraph, nodes: Tensor, hops: int) -> Tensor:
    """(num_nodes,) bool: these nodes, and whom they can reach in so many hops."""
    src, dst = graph.edges()
    return _spread(src, dst, nodes, hops)


def upstream(graph: dgl.DGLGraph, nodes: Tensor, hops: int) -> Tensor:
    """(num_nodes,) bool: these nodes, and who can reach them in so many hops."""
    src, dst = graph.edges()
    return _spread(dst, src, nodes, hops)


def _spread(start: Tensor, end: Tensor, nodes: Tensor, hops: int) -> Tensor:
    reached = nodes.clone()
    for _ in range(hops):
        reached[end[reached[start]]] = True
    return reached

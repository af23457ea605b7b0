"""Graphs with every edge in both directions."""

from __future__ import annotations

import dgl
import torch
from torch import Tensor


def undirected_graph(
    src: Tensor, dst: Tensor, num_nodes: int, edge_data: dict[str, Tensor] | None = None
) -> dgl.DGLGraph:
    """Return the simple graph with each edge in both directions, ordered by source then target.

    An edge without a reverse gives its data to it. Of parallel edges, the first one counts.
    """
    both = torch.cat([src * num_nodes + dst, dst * num_nodes + src])
    pairs, inverse = torch.unique(both, return_inverse=True)
    graph = dgl.graph((pairs // num_nodes, pairs % num_nodes), num_nodes=num_nodes)
    if edge_data:
        index = torch.arange(len(both), device=both.device)
        first = torch.full_like(pairs, len(both)).scatter_reduce(0, inverse, index, "amin") % len(src)
        graph.edata.update({name: values[first] for name, values in edge_data.items()})
    return graph


def add_reverse_relations(graph: dgl.DGLGraph) -> dgl.DGLGraph:
    """Add the reverse of each relation, "rev_<name>", unless a relation with the reversed edges exists."""
    edges = {relation: graph.edges(etype=relation) for relation in graph.canonical_etypes}
    data = {relation: dict(graph.edges[relation].data) for relation in edges}

    def pairs(src: Tensor, dst: Tensor) -> Tensor:
        return torch.unique(torch.stack([src, dst]), dim=1)

    for (start, name, end), (src, dst) in list(edges.items()):
        reverse, reversed_pairs = (end, f"rev_{name}", start), pairs(dst, src)
        candidates = [other for other in edges if (other[0], other[2]) == (end, start)]
        if not any(torch.equal(pairs(*edges[other]), reversed_pairs) for other in candidates):
            edges[reverse], data[reverse] = (dst, src), data[start, name, end]
    doubled = dgl.heterograph(edges, {name: graph.num_nodes(name) for name in graph.ntypes})
    for relation, values in data.items():
        doubled.edges[relation].data.update(values)
    return doubled

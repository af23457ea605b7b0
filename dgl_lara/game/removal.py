"""What it means to remove players. Graphs are edited in this module only.

- Removing nodes leaves the induced subgraph, whose degrees f computes again.
- Removing edges leaves all nodes. Columns of features (`feature_players.py`) leave the graph unchanged.
- A removed target, or a graph without nodes, has the null prediction: f on an isolated node with zero features.
- Many coalitions are evaluated in one call of f, on a graph with one copy for each of them.
- Edges keep their ids in the full graph, if f uses edge data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara.blackbox.input_adapter import EDGE_ID
from dgl_lara.errors import InputError
from dgl_lara.game.player_index import Players, nodes_of_graphs
from dgl_lara.graphs.graph import Graph, graph_from_edges, node_subgraph, without_data
from dgl_lara.graphs.indexing import in_edge_ids, in_edges, lookup_sorted

if TYPE_CHECKING:
    from dgl_lara.blackbox.call import Model


@dataclass(frozen=True, eq=False)
class MaskedGraphs:
    """What masks leave of a graph: one copy per mask, side by side, for one call of f.

    Attributes:
        graph: The copies, without batch sizes.
        features: Features of their nodes.
        kept: (num_masks, num_nodes) bool, nodes of the graph that are kept.
    """

    graph: Graph
    features: Tensor
    kept: Tensor


def strip_data(graph: Graph) -> Graph:
    """Return the edges and batch sizes of a graph without its data, so that copies are cheap."""
    if not graph.is_homogeneous:
        raise InputError("graph.heterogeneous")
    if not graph.ndata and set(graph.edata) <= {EDGE_ID} and graph.idtype == torch.int64:
        return graph
    plain = without_data(graph)
    if EDGE_ID in graph.edata:
        plain.edata[EDGE_ID] = graph.edata[EDGE_ID]
    return plain


def _some_edges(of: Graph, src: Tensor, dst: Tensor, nodes: int, edges: Tensor | None) -> Graph:
    """Return a graph of some edges of another one (mask or indices, None for new edges), with their ids."""
    graph = graph_from_edges(src, dst, nodes)
    if EDGE_ID in of.edata:
        graph.edata[EDGE_ID] = torch.full_like(src, -1) if edges is None else of.edata[EDGE_ID][edges]
    return graph


def _has_all_loops(graph: Graph) -> bool:
    """Return whether every node has a self-loop, which some models need."""
    src, dst = graph.edges()
    loops = src[src == dst]
    return 0 < graph.num_nodes() <= len(loops) and len(torch.unique(loops)) == graph.num_nodes()


def null_prediction(f: Model, graph: Graph, null_features: Tensor, *endpoints: Tensor) -> Tensor:
    """Return (num_classes,) f on isolated nodes with null features. `endpoints` are those of a pair."""
    return f(isolated(graph, len(null_features)), null_features, *endpoints)[0]


def isolated(graph: Graph, count: int) -> Graph:
    """Return nodes without edges, with a self-loop each if every node of the graph has one."""
    own = torch.arange(count if _has_all_loops(graph) else 0, device=graph.device)
    return _some_edges(graph, own, own, count, None)


def loops_of(graph: Graph) -> Tensor:
    """Return (num_nodes,) the number of self-loops of each node."""
    src, dst = graph.edges()
    return torch.bincount(src[src == dst], minlength=graph.num_nodes())


def edgeless(graph: Graph, nodes: Tensor) -> Graph:
    """Return these nodes with their self-loops and no other edges."""
    src, dst = graph.edges()
    loops = (src == dst).nonzero().flatten()
    index = torch.full((graph.num_nodes(),), -1, device=graph.device)
    index[nodes] = torch.arange(len(nodes), device=graph.device)
    loops = loops[index[src[loops]] >= 0]
    own = index[src[loops]]
    return _some_edges(graph, own, own, len(nodes), loops)


def induced(graph: Graph, keep: Tensor) -> Graph:
    """Return the subgraph of the kept nodes (bool mask) in their order, without batch sizes.

    It equals `dgl.node_subgraph`, without its hash tables. This is several times faster on many small copies.
    """
    src, dst = graph.edges()
    alive = keep[src] & keep[dst]
    index = keep.cumsum(0) - 1
    return _some_edges(graph, index[src[alive]], index[dst[alive]], int(keep.sum()), alive)


def copies(graph: Graph, count: int) -> Graph:
    """Return `count` copies side by side, as one graph without batch sizes."""
    src, dst = graph.edges()
    shift = graph.num_nodes() * torch.arange(count, device=src.device).unsqueeze(1)
    copied = graph_from_edges((src + shift).flatten(), (dst + shift).flatten(), graph.num_nodes() * count)
    if EDGE_ID in graph.edata:
        copied.edata[EDGE_ID] = graph.edata[EDGE_ID].repeat(count)
    return copied


def remove_nodes(graph: Graph, features: Tensor, keep: Tensor) -> MaskedGraphs:
    """Return the kept nodes (num_masks, num_nodes) with their features and the edges among them.

    Features are gathered mask by mask, because a copy for all nodes under all masks does not fit for wide features.
    """
    return MaskedGraphs(induced(copies(graph, len(keep)), keep.flatten()), features[keep.nonzero()[:, 1]], keep)


def remove_edges(graph: Graph, features: Tensor, keep: Tensor) -> MaskedGraphs:
    """Return all nodes and the kept edges (num_masks, num_edges)."""
    copied = copies(graph, len(keep))
    src, dst = copied.edges()
    alive = keep.flatten()
    masked = _some_edges(copied, src[alive], dst[alive], copied.num_nodes(), alive)
    all_nodes = torch.ones(len(keep), graph.num_nodes(), dtype=torch.bool, device=keep.device)
    return MaskedGraphs(masked, features.repeat(len(keep), 1), all_nodes)


def without_pairs(graph: Graph, pairs: Tensor) -> Graph:
    """Return the graph without the edges between these pairs of nodes, in either direction."""
    src, dst = graph.edges()
    count = graph.num_nodes()
    removed = torch.cat([pairs[:, 0] * count + pairs[:, 1], pairs[:, 1] * count + pairs[:, 0]])
    stays = ~torch.isin(src * count + dst, removed)
    return _some_edges(graph, src[stays], dst[stays], count, stays)


def take_graphs(batch: Graph, chosen: Tensor) -> tuple[Graph, Tensor]:
    """Return the chosen graphs of a batch, in that order, and their nodes in the batch."""
    players = nodes_of_graphs(batch, chosen)
    graph = node_subgraph(batch, players.player)
    graph.set_batch_num_nodes(players.counts)
    graph.set_batch_num_edges(batch.batch_num_edges()[chosen])
    return graph, players.player


def ego_graphs(graph: Graph, context: Players, inner: int | None = None) -> Graph:
    """Return the graphs induced by the context of each target, side by side, with one node per pair.

    Args:
        graph: The full graph.
        context: The nodes around each target.
        inner: Edges into nodes this far away or further are left out. They are most edges of a large neighbourhood.
    """
    keys = context.key
    entered = torch.arange(len(keys), device=keys.device)
    if inner is not None:
        entered = entered[context.hop < inner]
    pair, sources = in_edges(graph, context.player[entered])
    edge_ids = in_edge_ids(graph, context.player[entered]) if EDGE_ID in graph.edata else None
    pair = entered[pair]
    index, inside = lookup_sorted(context.row[pair] * context.num_ids + sources, keys)
    edges = None if edge_ids is None else edge_ids[inside]
    return _some_edges(graph, index[inside], pair[inside], len(keys), edges)

"""What it means to remove something. The only place that edits graphs.

- Removing nodes leaves the induced subgraph: nodes, features and incident edges are gone, f recomputes degrees.
- Removing edges leaves all nodes. (Columns of features: `feature_players.py`; they leave the graph as it is.)
- A removed target, or a graph without nodes, has the *null prediction*: f on one isolated node with zero features.
- Many coalitions are evaluated in one call of f, on a graph that holds one copy for each of them.
- Edges keep the number that they have in the whole graph, where it is wanted (`blackbox/edge_data.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import dgl
import torch
from torch import Tensor

from dgl_lara.blackbox.call import Model
from dgl_lara.blackbox.edge_data import without_data
from dgl_lara.blackbox.input_adapter import EDGE_ID
from dgl_lara.errors import InputError
from dgl_lara.game.player_index import Players, nodes_of_graphs
from dgl_lara.graphs.indexing import in_edge_ids, in_edges, lookup_sorted


@dataclass(frozen=True, eq=False)
class MaskedGraphs:
    """What masks have left of a graph: one copy a mask, side by side, ready for one call of f."""

    graph: dgl.DGLGraph  # without batch information
    features: Tensor  # of its nodes
    kept: Tensor  # (num_masks, num_nodes) bool: which nodes of the graph are still there, in its order


def strip_data(graph: dgl.DGLGraph) -> dgl.DGLGraph:
    """The edges and the batch, without node or edge data: f is given features, and copies of the graph stay cheap."""
    if not graph.is_homogeneous:
        raise InputError("the graph must have one kind of node and one of edge (dgl.to_homogeneous makes it so).")
    if not graph.ndata and set(graph.edata) <= {EDGE_ID} and graph.idtype == torch.int64:
        return graph
    plain = without_data(graph)
    if EDGE_ID in graph.edata:
        plain.edata[EDGE_ID] = graph.edata[EDGE_ID]
    return plain


def _some_edges(of: dgl.DGLGraph, src: Tensor, dst: Tensor, nodes: int, edges: Tensor | None) -> dgl.DGLGraph:
    """A graph of some edges of another (mask or places there; None: of none), which keep their numbers."""
    graph = dgl.graph((src, dst), num_nodes=nodes)
    if EDGE_ID in of.edata:
        graph.edata[EDGE_ID] = torch.full_like(src, -1) if edges is None else of.edata[EDGE_ID][edges]
    return graph


def has_all_loops(graph: dgl.DGLGraph) -> bool:
    """Every node has a self-loop: the graph was made for models that count on one."""
    src, dst = graph.edges()
    loops = src[src == dst]
    return 0 < graph.num_nodes() <= len(loops) and len(torch.unique(loops)) == graph.num_nodes()


def null_prediction(f: Model, graph: dgl.DGLGraph, nobody: Tensor, *ends: Tensor) -> Tensor:
    """(num_classes,) what f says of nothing at all: of isolated nodes with the features of nobody. `ends`: which of
    them are asked about, where that is said."""
    return f(isolated(graph, len(nobody)), nobody, *ends)[0]


def isolated(graph: dgl.DGLGraph, count: int) -> dgl.DGLGraph:
    """Nodes without edges, which are nobody of the graph; with a self-loop each, if every node of the graph has one."""
    own = torch.arange(count if has_all_loops(graph) else 0, device=graph.device)
    return _some_edges(graph, own, own, count, None)


def loops_of(graph: dgl.DGLGraph) -> Tensor:
    """(num_nodes,) how many edges each node has to itself."""
    src, dst = graph.edges()
    return torch.bincount(src[src == dst], minlength=graph.num_nodes())


def edgeless(graph: dgl.DGLGraph, nodes: Tensor) -> dgl.DGLGraph:
    """These nodes, each by itself; own loops stay."""
    src, dst = graph.edges()
    loops = (src == dst).nonzero().flatten()
    place = torch.full((graph.num_nodes(),), -1, device=graph.device)
    place[nodes] = torch.arange(len(nodes), device=graph.device)
    loops = loops[place[src[loops]] >= 0]
    own = place[src[loops]]
    return _some_edges(graph, own, own, len(nodes), loops)


def induced(graph: dgl.DGLGraph, keep: Tensor) -> dgl.DGLGraph:
    """The subgraph of the kept nodes (bool mask), in their old order. Graphs of a batch stay separate graphs.

    The same as `dgl.node_subgraph`, without its hash tables: several times faster on many small copies.
    """
    src, dst = graph.edges()
    alive = keep[src] & keep[dst]
    place = keep.cumsum(0) - 1
    return _some_edges(graph, place[src[alive]], place[dst[alive]], int(keep.sum()), alive)


def copies(graph: dgl.DGLGraph, count: int) -> dgl.DGLGraph:
    """`count` copies side by side, as one graph without batch information."""
    src, dst = graph.edges()
    shift = graph.num_nodes() * torch.arange(count, device=src.device).unsqueeze(1)
    many = dgl.graph(((src + shift).flatten(), (dst + shift).flatten()), num_nodes=graph.num_nodes() * count)
    if EDGE_ID in graph.edata:
        many.edata[EDGE_ID] = graph.edata[EDGE_ID].repeat(count)
    return many


def remove_nodes(graph: dgl.DGLGraph, features: Tensor, keep: Tensor) -> MaskedGraphs:
    """The kept nodes (num_masks, num_nodes), with their features and the edges among them.

    Features are gathered mask after mask, never for all nodes under all masks, which wide features forbid.
    """
    return MaskedGraphs(induced(copies(graph, len(keep)), keep.flatten()), features[keep.nonzero()[:, 1]], keep)


def remove_edges(graph: dgl.DGLGraph, features: Tensor, keep: Tensor) -> MaskedGraphs:
    """All nodes, and the kept edges (num_masks, num_edges)."""
    many = copies(graph, len(keep))
    src, dst = many.edges()
    alive = keep.flatten()
    left = _some_edges(many, src[alive], dst[alive], many.num_nodes(), alive)
    everyone = torch.ones(len(keep), graph.num_nodes(), dtype=torch.bool, device=keep.device)
    return MaskedGraphs(left, features.repeat(len(keep), 1), everyone)


def without_pairs(graph: dgl.DGLGraph, pairs: Tensor) -> dgl.DGLGraph:
    """The graph without the edges between these pairs of nodes, in either direction."""
    src, dst = graph.edges()
    count = graph.num_nodes()
    gone = torch.cat([pairs[:, 0] * count + pairs[:, 1], pairs[:, 1] * count + pairs[:, 0]])
    stays = ~torch.isin(src * count + dst, gone)
    return _some_edges(graph, src[stays], dst[stays], count, stays)


def take_graphs(batch: dgl.DGLGraph, chosen: Tensor) -> tuple[dgl.DGLGraph, Tensor]:
    """The chosen graphs of a batch, in that order, as a batch; and which nodes they have in the old one."""
    players = nodes_of_graphs(batch, chosen)
    graph = dgl.node_subgraph(batch, players.player, store_ids=False)
    graph.set_batch_num_nodes(players.counts)
    graph.set_batch_num_edges(batch.batch_num_edges()[chosen])
    return graph, players.player


def ego_graphs(graph: dgl.DGLGraph, context: Players, inner: int | None = None) -> dgl.DGLGraph:
    """The graphs induced by each target's context, side by side: node p of the result is pair p of `context`.

    With `inner`, edges into nodes `inner` hops away or further are left out: most edges of a large neighbourhood.
    """
    keys = context.key
    entered = torch.arange(len(keys), device=keys.device)
    if inner is not None:
        entered = entered[context.hop < inner]
    pair, sources = in_edges(graph, context.player[entered])
    numbers = in_edge_ids(graph, context.player[entered]) if EDGE_ID in graph.edata else None
    pair = entered[pair]
    place, inside = lookup_sorted(context.row[pair] * context.num_ids + sources, keys)
    edges = None if numbers is None else numbers[inside]
    return _some_edges(graph, place[inside], pair[inside], len(keys), edges)

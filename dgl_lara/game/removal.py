"""What it means to remove something. The only place that edits graphs.

- Removing nodes leaves the induced subgraph: nodes, features and incident edges are gone, f recomputes degrees.
- Removing edges leaves all nodes. (Columns of features: `feature_players.py`; they leave the graph as it is.)
- A removed target, or a graph without nodes, has the *null prediction*: f on one isolated node with zero features.
- Many coalitions are evaluated in one call of f, on a graph that holds one copy for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import dgl
import torch
from torch import Tensor

from dgl_lara.errors import InputError
from dgl_lara.game.players import Players, find, in_edges, nodes_of_graphs
from dgl_lara.model.blackbox import Model


@dataclass(frozen=True, eq=False)
class Remainder:
    """What masks have left of a graph: one copy a mask, side by side, ready for one call of f."""

    graph: dgl.DGLGraph  # without batch information
    features: Tensor  # of its nodes
    kept: Tensor  # (num_masks, num_nodes) bool: which nodes of the graph are still there, in its order


def bare(graph: dgl.DGLGraph) -> dgl.DGLGraph:
    """The edges and the batch, without node or edge data: f is given features, and copies of the graph stay cheap."""
    if not graph.is_homogeneous:
        raise InputError("the graph must have one kind of node and one of edge (dgl.to_homogeneous makes it so).")
    if not graph.ndata and not graph.edata and graph.idtype == torch.int64:
        return graph
    plain = dgl.graph(graph.edges(), num_nodes=graph.num_nodes()).long()  # dgl 2: sizes are of the same type as ids
    plain.set_batch_num_nodes(graph.batch_num_nodes().long())
    plain.set_batch_num_edges(graph.batch_num_edges().long())
    return plain


def has_all_loops(graph: dgl.DGLGraph) -> bool:
    """Every node has a self-loop: the graph was made for models that count on one."""
    src, dst = graph.edges()
    loops = src[src == dst]
    return 0 < graph.num_nodes() <= len(loops) and len(torch.unique(loops)) == graph.num_nodes()


def null_prediction(f: Model, features: Tensor, looped: bool = False) -> Tensor:
    """(num_classes,) what f says of nothing at all (`looped`: with the self-loop that every node of the graph has)."""
    own = torch.zeros(int(looped), dtype=torch.long, device=features.device)
    lonely = dgl.graph((own, own), num_nodes=1)
    return f(lonely, features.new_zeros(1, features.shape[1]))[0]


def loops_of(graph: dgl.DGLGraph) -> Tensor:
    """(num_nodes,) how many edges each node has to itself."""
    src, dst = graph.edges()
    return torch.bincount(src[src == dst], minlength=graph.num_nodes())


def edgeless(graph: dgl.DGLGraph, nodes: Tensor) -> dgl.DGLGraph:
    """These nodes, each by itself; own loops stay."""
    src, dst = graph.edges()
    loops = src[src == dst]
    place = torch.full((graph.num_nodes(),), -1, device=graph.device)
    place[nodes] = torch.arange(len(nodes), device=graph.device)
    loops = place[loops][place[loops] >= 0]
    return dgl.graph((loops, loops), num_nodes=len(nodes))


def induced(graph: dgl.DGLGraph, keep: Tensor) -> dgl.DGLGraph:
    """The subgraph of the kept nodes (bool mask), in their old order. Graphs of a batch stay separate graphs.

    The same as `dgl.node_subgraph`, without its hash tables: several times faster on many small copies.
    """
    src, dst = graph.edges()
    alive = keep[src] & keep[dst]
    place = keep.cumsum(0) - 1
    return dgl.graph((place[src[alive]], place[dst[alive]]), num_nodes=int(keep.sum()))


def copies(graph: dgl.DGLGraph, count: int) -> dgl.DGLGraph:
    """`count` copies side by side, as one graph without batch information."""
    src, dst = graph.edges()
    shift = graph.num_nodes() * torch.arange(count, device=src.device).unsqueeze(1)
    return dgl.graph(((src + shift).flatten(), (dst + shift).flatten()), num_nodes=graph.num_nodes() * count)


def remove_nodes(graph: dgl.DGLGraph, features: Tensor, keep: Tensor) -> Remainder:
    """The kept nodes (num_masks, num_nodes), with their features and the edges among them.

    Features are gathered mask after mask, never for all nodes under all masks, which wide features forbid.
    """
    return Remainder(induced(copies(graph, len(keep)), keep.flatten()), features[keep.nonzero()[:, 1]], keep)


def remove_edges(graph: dgl.DGLGraph, features: Tensor, keep: Tensor) -> Remainder:
    """All nodes, and the kept edges (num_masks, num_edges)."""
    many = copies(graph, len(keep))
    src, dst = many.edges()
    alive = keep.flatten()
    left = dgl.graph((src[alive], dst[alive]), num_nodes=many.num_nodes())
    everyone = torch.ones(len(keep), graph.num_nodes(), dtype=torch.bool, device=keep.device)
    return Remainder(left, features.repeat(len(keep), 1), everyone)


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
    pair = entered[pair]
    place, inside = find(context.row[pair] * context.num_ids + sources, keys)
    return dgl.graph((place[inside], pair[inside]), num_nodes=len(keys))

"""What it means to remove nodes. The only place that edits graphs.

- Removing nodes leaves the induced subgraph: nodes, features and incident edges are gone, f recomputes degrees.
- A removed target, or a graph without nodes, has the *null prediction*: f on one isolated node with zero features.
- Many coalitions are evaluated in one call of f, on a graph that holds one copy for each of them.
"""

from __future__ import annotations

import dgl
import torch
from torch import Tensor

from dgl_lara.errors import InputError
from dgl_lara.game.players import Neighborhood, find, in_edges
from dgl_lara.model.blackbox import Model


def bare(graph: dgl.DGLGraph) -> dgl.DGLGraph:
    """The edges and the batch, without node or edge data: f is given features, and copies of the graph stay cheap."""
    if not graph.is_homogeneous:
        raise InputError("the graph must have one kind of node and one of edge (dgl.to_homogeneous makes it so).")
    if not graph.ndata and not graph.edata:
        return graph.long()
    plain = dgl.graph(graph.edges(), num_nodes=graph.num_nodes()).long()
    plain.set_batch_num_nodes(graph.batch_num_nodes().long())
    plain.set_batch_num_edges(graph.batch_num_edges().long())
    return plain


def has_all_loops(graph: dgl.DGLGraph) -> bool:
    """Every node has a self-loop: the graph was made for models that count on one."""
    src, dst = graph.edges()
    return graph.num_nodes() > 0 and len(torch.unique(src[src == dst])) == graph.num_nodes()


def null_prediction(f: Model, features: Tensor, looped: bool = False) -> Tensor:
    """(num_classes,) what f says of nothing at all (`looped`: with the self-loop that every node of the graph has)."""
    own = torch.zeros(int(looped), dtype=torch.long, device=features.device)
    lonely = dgl.graph((own, own), num_nodes=1)
    return f(lonely, features.new_zeros(1, features.shape[1]))[0]


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


def _of_kept(features: Tensor, keep: Tensor) -> Tensor:
    """Features of the kept nodes, mask after mask; never of all nodes under all masks, which wide features forbid."""
    return features[keep.nonzero()[:, 1]]


def take_graphs(batch: dgl.DGLGraph, chosen: Tensor) -> tuple[dgl.DGLGraph, Tensor]:
    """The chosen graphs of a batch, in that order, as a batch; and which nodes they have in the old one."""
    sizes = batch.batch_num_nodes()
    first = sizes.cumsum(0) - sizes
    counts = sizes[chosen]
    within = torch.arange(int(counts.sum()), device=sizes.device) - torch.repeat_interleave(
        counts.cumsum(0) - counts, counts
    )
    nodes = torch.repeat_interleave(first[chosen], counts) + within
    graph = dgl.node_subgraph(batch, nodes, store_ids=False)
    graph.set_batch_num_nodes(counts)
    graph.set_batch_num_edges(batch.batch_num_edges()[chosen])
    return graph, nodes


def predict_nodes(f: Model, graph: dgl.DGLGraph, features: Tensor, keep: Tensor, null: Tensor) -> Tensor:
    """(num_masks, num_nodes, num_classes): f on the graph of each row of `keep`; null where a node is removed."""
    num_masks, num_nodes = keep.shape
    flat = keep.flatten()
    predictions = null.expand(num_masks * num_nodes, -1).clone()
    if flat.any():
        predictions[flat] = f(induced(copies(graph, num_masks), flat), _of_kept(features, keep))
    return predictions.view(num_masks, num_nodes, -1)


def predict_graphs(f: Model, batch: dgl.DGLGraph, features: Tensor, keep: Tensor, null: Tensor) -> Tensor:
    """(num_masks, num_graphs, num_classes): f on each graph of the batch, less the removed nodes; null where empty."""
    num_masks = len(keep)
    sizes = batch.batch_num_nodes()
    graph_of_node = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
    left = keep.new_zeros(num_masks, len(sizes), dtype=torch.long)
    left.index_add_(1, graph_of_node, keep.long())
    left = left.flatten()
    predictions = null.expand(len(left), -1).clone()
    flat = keep.flatten()
    if flat.any():
        # graphs that lost every node drop out of the batch, so that no readout meets an empty segment
        remaining = induced(copies(batch, num_masks), flat)
        occupied = left > 0
        src, _ = remaining.edges()
        graph_of_kept = torch.repeat_interleave(torch.arange(int(occupied.sum()), device=left.device), left[occupied])
        remaining.set_batch_num_nodes(left[occupied])
        remaining.set_batch_num_edges(torch.bincount(graph_of_kept[src], minlength=int(occupied.sum())))
        predictions[occupied] = f(remaining, _of_kept(features, keep))
    return predictions.view(num_masks, len(sizes), -1)


def ego_graphs(graph: dgl.DGLGraph, context: Neighborhood, inner: int | None = None) -> dgl.DGLGraph:
    """The graphs induced by each target's context, side by side: node p of the result is pair p of `context`.

    With `inner`, edges into nodes `inner` hops away or further are left out: most edges of a large neighbourhood.
    """
    keys = context.key
    entered = torch.arange(len(keys), device=keys.device)
    if inner is not None:
        entered = entered[context.hop < inner]
    pair, sources = in_edges(graph, context.player[entered])
    pair = entered[pair]
    place, inside = find(context.row[pair] * context.num_nodes + sources, keys)
    return dgl.graph((place[inside], pair[inside]), num_nodes=len(keys))


def alone(f: Model, graph: dgl.DGLGraph, features: Tensor, task: str, nodes: Tensor | None = None) -> Tensor:
    """(num_nodes, num_classes): f on every node by itself (own loops stay); for a graph task a graph of one node."""
    src, dst = graph.edges()
    loops = src[src == dst]
    if nodes is not None:
        place = torch.full((graph.num_nodes(),), -1, device=graph.device)
        place[nodes] = torch.arange(len(nodes), device=graph.device)
        loops, features = place[loops][place[loops] >= 0], features[nodes]
    edgeless = dgl.graph((loops, loops), num_nodes=len(features))
    if task == "graph":
        edgeless.set_batch_num_nodes(torch.ones(len(features), dtype=torch.long, device=graph.device))
        edgeless.set_batch_num_edges(torch.bincount(loops, minlength=len(features)))
    return f(edgeless, features)

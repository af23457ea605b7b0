"""The encoder of g: GraphConv layers on the graph with self-loops, with the GCN scale of the full graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from dgl.nn.pytorch import GraphConv
from torch import Tensor, nn

from dgl_lara.blackbox.input_adapter import EDGE_ID
from dgl_lara.game.walks import scale_of
from dgl_lara.graphs.graph import Graph, add_self_loops, graph_from_edges, node_subgraph
from dgl_lara.graphs.indexing import in_edge_ids, in_edges, lookup_sorted


@dataclass(frozen=True, eq=False)
class EncoderGraph:
    """A graph as the encoder sees it.

    The scale is that of the full graph, so a subgraph gives its inner nodes the embeddings of the full graph.

    Attributes:
        looped: The graph with self-loops added, as in `walk_scale`.
        scale: (num_nodes, 1).
        sizes: Nodes of each graph of the batch.
        inputs: (num_nodes, in_dim) before normalisation.
    """

    looped: Graph  # self-loops on top of the graph's own, as in `walk_scale`
    scale: Tensor  # (num_nodes, 1)
    sizes: Tensor  # nodes of each graph of the batch
    inputs: Tensor  # (num_nodes, in_dim) before normalisation

    @staticmethod
    def of(graph: Graph, inputs: Tensor, in_degrees: Tensor | None = None) -> EncoderGraph:
        """Return the encoder graph of a whole graph.

        Args:
            graph: The graph.
            inputs: (num_nodes, in_dim).
            in_degrees: In-degrees of the nodes in the full graph, if this is a part of it.
        """
        scale = scale_of(graph.in_degrees() if in_degrees is None else in_degrees).unsqueeze(1)
        return EncoderGraph(add_self_loops(graph), scale, graph.batch_num_nodes(), inputs)

    def at_sources(self, rows: Tensor) -> Tensor:
        """Return the rows of the nodes that edges come from. Distributed graphs fetch some of them."""
        return rows

    def part(self, nodes: Tensor, sizes: Tensor) -> EncoderGraph:
        """Return the subgraph that these nodes induce."""
        induced = node_subgraph(self.looped, nodes)
        return EncoderGraph(induced, self.scale[nodes], sizes, self.inputs[nodes])

    @staticmethod
    def around(graph: Graph, nodes: Tensor, inputs: Tensor, in_degrees: Tensor | None = None) -> EncoderGraph:
        """Return the subgraph of a few nodes without adding self-loops to the full graph.

        Args:
            graph: The full graph.
            nodes: Nodes in rising order.
            inputs: Their inputs.
            in_degrees: In-degrees of all nodes.
        """
        pair, sources = in_edges(graph, nodes)
        place, inside = lookup_sorted(sources, nodes)
        induced = graph_from_edges(place[inside], pair[inside], len(nodes))
        if EDGE_ID in graph.edata:
            induced.edata[EDGE_ID] = graph.edata[EDGE_ID][in_edge_ids(graph, nodes)[inside]]
        scale = scale_of((graph.in_degrees() if in_degrees is None else in_degrees)[nodes]).unsqueeze(1)
        return EncoderGraph(add_self_loops(induced), scale, induced.batch_num_nodes(), inputs)


class Encoder(nn.Module):
    """GraphConv layers.

    Args:
        in_dim: Inputs of each node.
        width: Width of each layer.
        layers: Number of layers.
        residual: Add skip connections and LayerNorm, and pass the states of all layers to the heads.
    """

    def __init__(self, in_dim: int, width: int, layers: int, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        self.first = nn.Linear(in_dim, width)
        # norm="none": the scale is folded into the features, so that it can come from the whole graph
        # every node has a loop, so no check for nodes without edges is needed
        self.convs = nn.ModuleList(
            GraphConv(width, width, norm="none", allow_zero_in_degree=True) for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) if residual else nn.Identity() for _ in self.convs)
        self.out_dim = width * (layers + 1) if residual else width

    def forward(self, graph: EncoderGraph, x: Tensor) -> Tensor:
        h = self.first(x).relu_()
        states = [h]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            # LayerNorm before the convolution: behind it, wide or deep encoders failed to train on MUTAG
            message = conv(graph.looped, graph.at_sources(norm(h) * graph.scale)).mul_(graph.scale).relu_()
            h = h + message if self.residual else message
            states.append(h)
        return torch.cat(states, dim=1) if self.residual else h

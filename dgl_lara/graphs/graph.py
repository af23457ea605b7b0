"""`Graph` and the operations on graphs that the package needs from DGL."""

from __future__ import annotations

import dgl
import torch
from dgl import DGLGraph as Graph
from dgl import ops
from dgl.dataloading import MultiLayerFullNeighborSampler
from torch import Tensor

__all__ = [
    "Graph", "add_self_loops", "bipartite_block", "csc_block", "dot_edges", "graph_from_csc",
    "graph_from_edges", "khop_nodes", "khop_subgraph", "node_subgraph", "pool_segments", "reverse",
    "sum_in_edges", "sum_in_neighbors", "without_data",
]  # fmt: skip


def graph_from_edges(src: Tensor, dst: Tensor, num_nodes: int) -> Graph:
    """Return the graph with these edges."""
    return dgl.graph((src, dst), num_nodes=num_nodes)


def graph_from_csc(indptr: Tensor, sources: Tensor) -> Graph:
    """Return the graph whose in-edges of node v come from sources[indptr[v]:indptr[v + 1]]."""
    return dgl.graph(("csc", (indptr, sources, torch.empty(0, dtype=torch.long))), num_nodes=len(indptr) - 1)


def bipartite_block(src: Tensor, dst: Tensor, num_src: int, num_dst: int) -> Graph:
    """Return a message-passing block from source nodes to destination nodes, which are the first sources."""
    return dgl.create_block((src, dst), num_src_nodes=num_src, num_dst_nodes=num_dst)


def node_subgraph(graph: Graph, nodes: Tensor) -> Graph:
    """Return the subgraph induced by these nodes, in their order."""
    return dgl.node_subgraph(graph, nodes, store_ids=False)


def khop_subgraph(graph: Graph, targets: Tensor, hops: int) -> tuple[Graph, Tensor, Tensor]:
    """Return the subgraph induced by the in-neighbourhoods, its nodes in the full graph, and the row of each target."""
    subgraph, rows = dgl.khop_in_subgraph(graph, targets, k=hops, store_ids=True)
    nodes = subgraph.ndata.pop(dgl.NID)
    subgraph.edata.pop(dgl.EID)
    return subgraph, nodes, rows


def khop_nodes(graph: Graph, targets: Tensor, hops: int) -> Tensor:
    """Return the nodes within `hops` in-edges of the targets, ascending."""
    input_nodes, _, _ = MultiLayerFullNeighborSampler(hops).sample_blocks(graph, targets)
    return input_nodes.sort().values  # the sampler's own order varies from run to run


def sum_in_neighbors(graph: Graph, rows: Tensor) -> Tensor:
    """Return (num_nodes, ...) the sum of the rows of each node's in-neighbours."""
    return ops.copy_u_sum(graph, rows)


def pool_segments(sizes: Tensor, rows: Tensor, how: str) -> Tensor:
    """Return (len(sizes), ...) the "max", "mean" or "sum" of consecutive rows."""
    return ops.segment_reduce(sizes, rows, how)


def add_self_loops(graph: Graph) -> Graph:
    """Return the graph with one more self-loop at every node."""
    return dgl.add_self_loop(graph)


def csc_block(indptr: Tensor, sources: Tensor, num_src: int) -> Graph:
    """Return a bipartite block whose destination v has in-edges from sources[indptr[v]:indptr[v + 1]]."""
    edges = (indptr, sources, torch.empty(0, dtype=torch.long, device=indptr.device))
    return dgl.create_block(("csc", edges), num_src_nodes=num_src, num_dst_nodes=len(indptr) - 1)


def dot_edges(graph: Graph, src_rows: Tensor, dst_rows: Tensor) -> Tensor:
    """Return (num_edges,) the dot product of the rows of both nodes of each edge."""
    return ops.u_dot_v(graph, src_rows, dst_rows).squeeze(1)


def sum_in_edges(graph: Graph, rows: Tensor) -> Tensor:
    """Return (num_nodes, ...) the sum of the rows of each node's in-edges."""
    return ops.copy_e_sum(graph, rows)


def reverse(graph: Graph) -> Graph:
    """Return the graph with every edge turned around."""
    return dgl.reverse(graph)


def without_data(graph: Graph) -> Graph:
    """Return the edges and the batch sizes of a graph, nothing else."""
    plain = dgl.graph(graph.edges(), num_nodes=graph.num_nodes()).long()  # dgl 2: sizes have the type of ids
    plain.set_batch_num_nodes(graph.batch_num_nodes().long())
    plain.set_batch_num_edges(graph.batch_num_edges().long())
    return plain

"""Outputs of f for node types that it does not classify, observed at dummy targets without features.

If f classifies authors, it returns nothing for a paper. So each paper gets a dummy author that only this paper reaches,
by the edge to one of its authors. A term gets a dummy paper and a dummy author in a chain. One call of f evaluates all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara.blackbox.hetero import HeteroAdapter
from dgl_lara.blackbox.input_adapter import EDGE_ID
from dgl_lara.game.node_task import khop_batch
from dgl_lara.graphs.graph import Graph, graph_from_edges

if TYPE_CHECKING:
    from dgl_lara.game.game import Game


def probe_outputs(game: Game, nodes: Tensor | None = None) -> Tensor:
    """Return how far each node moves the logits of its dummy target, (num_nodes, num_classes), 0 for targets.

    Args:
        game: A game on a heterogeneous graph.
        nodes: Some nodes. None means all.
    """
    assert isinstance(game.f, HeteroAdapter)
    graph, types = game.graph, game.f.types
    hop, first_edge = paths_to_targets(graph, game.num_targets, game.hops)
    nodes = torch.arange(graph.num_nodes(), device=graph.device) if nodes is None else nodes
    rows = torch.zeros(len(nodes), game.num_classes, device=graph.device)
    probed = (hop[nodes] > 0).nonzero().flatten()
    if not len(probed):
        return rows
    subgraph = khop_batch(graph, nodes[probed], game.hops)
    src, dst = subgraph.graph.edges()
    ends, edge_ids = [torch.stack([src, dst])], [subgraph.graph.edata[EDGE_ID]]
    ids = [game.features[subgraph.nodes].flatten()]
    # nodes on the way to a target, and their positions
    at, position, count = nodes[probed], subgraph.target_rows, len(subgraph.nodes)
    _, heads = graph.edges()
    while len(moving := (hop[at] > 0).nonzero().flatten()):
        edge = first_edge[at[moving]]
        dummies = count + torch.arange(len(moving), device=graph.device)
        ends.append(torch.stack([position[moving], dummies]))
        edge_ids.append(graph.edata[EDGE_ID][edge])
        ids.append(-1 - types.type_of(heads[edge]))
        at, position, count = at.clone(), position.clone(), count + len(moving)
        at[moving], position[moving] = heads[edge], dummies
    all_src, all_dst = torch.cat(ends, dim=1)
    extended = graph_from_edges(all_src, all_dst, count)
    extended.edata[EDGE_ID] = torch.cat(edge_ids)
    logits = game.caller(extended, torch.cat(ids).unsqueeze(1))
    rows[probed] = logits[position] - game.null_logits
    return rows


def paths_to_targets(graph: Graph, num_targets: int, hops: int) -> tuple[Tensor, Tensor]:
    """Return the distance of each node to the nearest target (-1: too far), and the first edge of a shortest path.

    Args:
        graph: The graph, whose first nodes are the targets.
        num_targets: Number of targets.
        hops: Largest distance.
    """
    src, dst = graph.edges()
    hop, first_edge = (torch.full((graph.num_nodes(),), -1, device=graph.device) for _ in range(2))
    hop[:num_targets] = 0
    for step in range(1, hops + 1):
        edge = ((hop[dst] == step - 1) & (hop[src] < 0)).nonzero().flatten()
        first = torch.full_like(first_edge, len(src)).scatter_reduce(0, src[edge], edge, "amin")
        reached = first < len(src)
        hop[reached], first_edge[reached] = step, first[reached]
    return hop, first_edge

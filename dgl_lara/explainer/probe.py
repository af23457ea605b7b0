"""What f makes of nodes of which it says nothing: what a target that is nobody hears of each.

Where f classifies authors it has no answer for a paper, and g would know papers by their looks alone. So for each paper
an author without features is added, whom this paper alone reaches, by the edge that it has to an author of its own; for
a term, a paper and an author without features, one behind the other. One call of f speaks of all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.blackbox.hetero import HeteroAdapter
from dgl_lara.blackbox.input_adapter import EDGE_ID
from dgl_lara.game.game import Game
from dgl_lara.game.node_task import khop_batch
from dgl_lara.graphs.graph import Graph, graph_from_edges


def probe_outputs(game: Game, nodes: Tensor | None = None) -> Tensor:
    """(nodes, num_classes): how far f's logits of a nobody move; of all nodes, or of some. 0 for targets."""
    assert isinstance(game.f, HeteroAdapter)
    graph, types = game.graph, game.f.types
    hop, way = ways_to_targets(graph, game.num_targets, game.hops)
    nodes = torch.arange(graph.num_nodes(), device=graph.device) if nodes is None else nodes
    rows = torch.zeros(len(nodes), game.num_classes, device=graph.device)
    asked = (hop[nodes] > 0).nonzero().flatten()
    if not len(asked):
        return rows
    here = khop_batch(graph, nodes[asked], game.hops)
    src, dst = here.graph.edges()
    ends, numbers, ids = [torch.stack([src, dst])], [here.graph.edata[EDGE_ID]], [game.features[here.nodes].flatten()]
    at, place, count = nodes[asked], here.target_rows, len(here.nodes)  # who hands it on, and where that stands
    _, onward = graph.edges()
    while len(going := (hop[at] > 0).nonzero().flatten()):
        edge = way[at[going]]
        nobody = count + torch.arange(len(going), device=graph.device)
        ends.append(torch.stack([place[going], nobody]))
        numbers.append(graph.edata[EDGE_ID][edge])
        ids.append(-1 - types.type_of(onward[edge]))
        at, place, count = at.clone(), place.clone(), count + len(going)
        at[going], place[going] = onward[edge], nobody
    all_src, all_dst = torch.cat(ends, dim=1)
    with_nobodies = graph_from_edges(all_src, all_dst, count)
    with_nobodies.edata[EDGE_ID] = torch.cat(numbers)
    said = game.caller(with_nobodies, torch.cat(ids).unsqueeze(1))
    rows[asked] = said[place] - game.null_logits
    return rows


def ways_to_targets(graph: Graph, num_targets: int, hops: int) -> tuple[Tensor, Tensor]:
    """(num_nodes,) each: how many steps it is from a node to the nearest target, which come first (-1: too many), and
    the first of the edges that a shortest way begins with."""
    src, dst = graph.edges()
    hop, way = (torch.full((graph.num_nodes(),), -1, device=graph.device) for _ in range(2))
    hop[:num_targets] = 0
    for step in range(1, hops + 1):
        edge = ((hop[dst] == step - 1) & (hop[src] < 0)).nonzero().flatten()
        first = torch.full_like(way, len(src)).scatter_reduce(0, src[edge], edge, "amin")
        reached = first < len(src)
        hop[reached], way[reached] = step, first[reached]
    return hop, way

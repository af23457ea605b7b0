"""Targets are nodes; what can reach one is its K-hop in-neighbourhood, itself included."""

from __future__ import annotations

from collections.abc import Sequence

import dgl
import torch
from dgl.dataloading import MultiLayerFullNeighborSampler
from torch import Tensor

from dgl_lara.blackbox.call import Model
from dgl_lara.game.player_index import Players, in_neighborhood
from dgl_lara.game.removal import MaskedGraphs, ego_graphs
from dgl_lara.game.task import Task
from dgl_lara.game.walks import walk_counts
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph


class NodeTask(Task):
    name = "node"
    has_distances = True
    targets_are_nodes = True
    max_nearby_targets = 16
    sampled_pairs = 300
    settings = {"masks": 2}  # a mask over the graph teaches all targets; the neighbours need two, to see what varies

    def __init__(self, count: int | None = None) -> None:
        """`count`: how many of the nodes, the first ones, can be targets; without it, all of them."""
        self.count = count

    def compute_device(self, device: torch.device | None) -> torch.device | None:
        return device

    def num_targets(self, graph: dgl.DGLGraph) -> int:
        return graph.num_nodes() if self.count is None else self.count

    def num_rows(self, graph: dgl.DGLGraph) -> int:
        return graph.num_nodes()

    def reach(self, graph: dgl.DGLGraph, targets: Tensor, hops: int) -> Players:
        return in_neighborhood(graph, targets, hops)

    def cost_bound(self, graph: dgl.DGLGraph, hops: int) -> Tensor:
        return walk_counts(graph, hops)

    def target_nodes(self, graph: dgl.DGLGraph, targets: Tensor) -> Tensor:
        return targets

    def expand_to_nodes(self, graph: dgl.DGLGraph, rows: Tensor) -> Tensor:
        return rows

    def batch(self, graph: dgl.DGLGraph, targets: Tensor, hops: int, context: int) -> SharedSubgraph:
        batch = khop_batch(graph, targets, context)
        if context == hops:
            return batch
        return SharedSubgraph(
            batch.graph,
            batch.nodes,
            targets,
            batch.target_rows,
            bystander=~torch.isin(batch.nodes, khop_batch(graph, targets, hops).nodes),
        )

    def full_batch(self, graph: dgl.DGLGraph, targets: Tensor) -> SharedSubgraph:
        return SharedSubgraph(
            graph, torch.arange(graph.num_nodes(), device=targets.device), targets, target_rows=targets
        )

    def encoder_nodes(self, graph: dgl.DGLGraph, targets: Tensor, hops: int) -> Tensor:
        input_nodes, _, _ = MultiLayerFullNeighborSampler(hops).sample_blocks(graph, targets)
        return input_nodes.sort().values  # the sampler's own order varies from run to run

    def encoder_sizes(self, sizes: Tensor, targets: Tensor) -> Tensor:
        return sizes

    def ego_batch(self, graph: dgl.DGLGraph, targets: Tensor, hops: int, inner: int | None = None) -> EgoBatch:
        context = in_neighborhood(graph, targets, hops)
        own = (context.hop == 0).nonzero().flatten()  # one target a row, in order
        whole = graph.num_nodes()
        return EgoBatch(
            ego_graphs(graph, context, inner), context.player, context.row, context.hop, own, whole, targets
        )

    def predict(self, f: Model, here: SharedSubgraph | EgoBatch, left: MaskedGraphs, null: Tensor) -> Tensor:
        num_masks, num_nodes = left.kept.shape
        flat = left.kept.flatten()
        predictions = null.expand(num_masks * num_nodes, -1).clone()
        if flat.any():
            predictions[flat] = f(left.graph, left.features)
        return predictions.view(num_masks, num_nodes, -1)

    def mark_singles(self, graph: dgl.DGLGraph) -> dgl.DGLGraph:
        return graph

    def pool(self, sizes: Tensor, t: Tensor) -> Tensor:
        return t

    def target_embeddings(self, pooled: Tensor, targets: Tensor, nodes: Tensor | None) -> Tensor:
        return pooled[targets if nodes is None else lookup_sorted(targets, nodes)[0]]

    def is_target(self, players: Players) -> Tensor:
        if players.player_type != "nodes":
            return torch.zeros_like(players.player, dtype=torch.bool)
        return players.player == players.targets[players.row]

    def in_motif(self, players: Players, motif: Tensor) -> Tensor:
        own = motif[players.targets][players.row]
        return (motif[players.player] == own) & (own >= 0)

    def player_noun(self, molecule: bool) -> str:
        return "neighbour"

    def node_ids(self, graph: dgl.DGLGraph, target: Tensor, nodes: Tensor) -> Sequence[int]:
        return nodes.tolist()

    def players_text(self, hops: int) -> str:
        return f"its {hops}-hop in-neighbourhood, itself included"


class TypedNodeTask(NodeTask):
    """Targets are the nodes of one type among several."""

    # most models of several types take means or attend, which random walks follow; rate and steps were measured so
    settings = NodeTask.settings | {"gate": "random-walk", "lr": 1e-2, "steps": 1000}
    settings_of_some_targets = {}

    def subject(self, target_names: Sequence[str]) -> str:
        return target_names[0][0].upper() + target_names[0][1:]


def khop_batch(graph: dgl.DGLGraph, targets: Tensor, hops: int) -> SharedSubgraph:
    """One union of the K-hop in-neighbourhoods, as an induced subgraph."""
    subgraph, places = dgl.khop_in_subgraph(graph, targets, k=hops, store_ids=True)
    nodes = subgraph.ndata.pop(dgl.NID)
    subgraph.edata.pop(dgl.EID)
    return SharedSubgraph(subgraph, nodes, targets, places)

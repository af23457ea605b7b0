"""Node tasks: a target is a node, and its K-hop in-neighbourhood can reach it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_lara.blackbox.call import Model
from dgl_lara.blackbox.hetero import check_target_type, to_homogeneous
from dgl_lara.blackbox.hetero_index import Relation
from dgl_lara.game.player_index import Players, in_neighborhood
from dgl_lara.game.removal import MaskedGraphs, ego_graphs
from dgl_lara.game.task import Task
from dgl_lara.game.walks import walk_counts
from dgl_lara.graphs.graph import Graph, khop_subgraph
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph


class NodeTask(Task):
    """Targets are nodes."""

    name = "node"
    option = "--node"
    has_distances = True
    targets_are_nodes = True
    max_nearby_targets = 16
    sampled_pairs = 300
    settings = {"masks": 2}  # a mask over the graph teaches all targets; the neighbours need two, to see what varies

    def __init__(self, count: int | None = None) -> None:
        """Store the number of targets.

        Args:
            count: The first `count` nodes can be targets. None means all nodes.
        """
        self.count = count

    def homogeneous_inputs(
        self, model: Callable, graph: Graph, features: Any, target_type: str | None, relation: str | Relation | None
    ) -> tuple[Model, Graph, Tensor, Task]:
        name = check_target_type(graph, target_type)
        return *to_homogeneous(model, graph, features, name), TypedNodeTask(graph.num_nodes(name))

    def compute_device(self, device: torch.device | None) -> torch.device | None:
        return device

    def num_targets(self, graph: Graph) -> int:
        return graph.num_nodes() if self.count is None else self.count

    def num_rows(self, graph: Graph) -> int:
        return graph.num_nodes()

    def reach(self, graph: Graph, targets: Tensor, hops: int) -> Players:
        return in_neighborhood(graph, targets, hops)

    def cost_bound(self, graph: Graph, hops: int) -> Tensor:
        return walk_counts(graph, hops)

    def target_nodes(self, graph: Graph, targets: Tensor) -> Tensor:
        return targets

    def expand_to_nodes(self, graph: Graph, rows: Tensor) -> Tensor:
        return rows

    def batch(self, graph: Graph, targets: Tensor, hops: int, context: int) -> SharedSubgraph:
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

    def full_batch(self, graph: Graph, targets: Tensor) -> SharedSubgraph:
        return SharedSubgraph(
            graph, torch.arange(graph.num_nodes(), device=targets.device), targets, target_rows=targets
        )

    def ego_batch(self, graph: Graph, targets: Tensor, hops: int, inner: int | None = None) -> EgoBatch:
        context = in_neighborhood(graph, targets, hops)
        own = (context.hop == 0).nonzero().flatten()  # one target a row, in order
        num_nodes = graph.num_nodes()
        return EgoBatch(
            ego_graphs(graph, context, inner), context.player, context.row, context.hop, own, num_nodes, targets
        )

    def predict(self, f: Model, batch: SharedSubgraph | EgoBatch, masked: MaskedGraphs, null: Tensor) -> Tensor:
        num_masks, num_nodes = masked.kept.shape
        flat = masked.kept.flatten()
        predictions = null.expand(num_masks * num_nodes, -1).clone()
        if flat.any():
            predictions[flat] = f(masked.graph, masked.features)
        return predictions.view(num_masks, num_nodes, -1)

    def target_embeddings(self, pooled: Tensor, targets: Tensor, nodes: Tensor | None) -> Tensor:
        return pooled[targets if nodes is None else lookup_sorted(targets, nodes)[0]]

    def players_text(self, hops: int) -> str:
        return f"its {hops}-hop in-neighbourhood, itself included"

    def node_columns(self, targets: Tensor) -> dict[str, Tensor]:
        return {"target": targets}


class TypedNodeTask(NodeTask):
    """Targets are the nodes of one type among several."""

    # most models of several types take means or attend, which random walks follow; rate and steps were measured so
    settings = NodeTask.settings | {"gate": "random-walk", "lr": 1e-2, "steps": 1000}
    settings_of_some_targets = {}

    def node_columns(self, targets: Tensor) -> dict[str, Tensor]:
        return {}  # targets have the first type, so their numbers are those of the user

    def subject(self, target_names: Sequence[str]) -> str:
        return target_names[0][0].upper() + target_names[0][1:]


def khop_batch(graph: Graph, targets: Tensor, hops: int) -> SharedSubgraph:
    """Return the subgraph induced by the union of the K-hop in-neighbourhoods."""
    subgraph, nodes, rows = khop_subgraph(graph, targets, hops)
    return SharedSubgraph(subgraph, nodes, targets, rows)

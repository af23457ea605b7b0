"""Graph tasks: a target is a graph of a batch, and all its nodes can reach it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_lara.blackbox.call import Model
from dgl_lara.blackbox.hetero_index import Relation
from dgl_lara.errors import InputError
from dgl_lara.game.player_index import Players, nodes_of_graphs
from dgl_lara.game.removal import MaskedGraphs, take_graphs
from dgl_lara.game.task import NodeNames, Task, rows_of_graphs
from dgl_lara.game.walks import mean_shares
from dgl_lara.graphs.graph import Graph, pool_segments
from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph

ELEMENTS = {
    "H", "Li", "B", "C", "N", "O", "F", "Na", "Mg", "Al", "Si", "P", "S", "Cl", "K", "Ca", "Fe", "Cu", "Zn", "Se", "Br",
    "Sn", "I",
}  # fmt: skip


class GraphTask(Task):
    """Targets are graphs."""

    name = "graph"
    option = "--graph"
    has_distances = False
    sampled_pairs = 100
    # graphs come in batches and want more steps; twice the width agrees hardly better (MUTAG .907 for .905) and takes
    # twice as long to explain with
    settings = {"batch_size": 128, "steps": 1200, "hidden": 32}
    settings_of_some_targets = settings_of_many_targets = {}  # targets share no masks
    paper_settings = {"lr": 1e-4}
    num_context_nodes = 0
    head_layers = 2  # players have no distances that a gate could use

    def homogeneous_inputs(
        self, model: Callable, graph: Graph, features: Any, target_type: str | None, relation: str | Relation | None
    ) -> tuple[Model, Graph, Tensor, Task]:
        raise InputError("graph.types_of_batch")

    def max_distance(self, hops: int) -> int:
        return 0

    def exceeds_memory(self, num_bytes: int, available: int) -> bool:
        return False  # graphs are small and come in batches

    def nearby_nodes(self, graph: Graph, targets: Tensor, hops: int) -> Tensor | None:
        return None

    def check_layerwise(self) -> None:
        raise InputError("graphs.layerwise")

    def embedding_shape(self, num_nodes: int, num_targets: int, width: int) -> tuple[int, int]:
        return num_targets, width

    def graph_text(self, graph: Graph, size: str) -> str:
        return f"{graph.batch_size:,} graphs with {size}"

    def prior_variance(self, variance: Tensor | None) -> Tensor | None:
        return None

    def likelihood_variance(self, variance: Tensor) -> Tensor | None:
        return variance

    def context_hops(
        self, caller: Any, graph: Graph, features: Tensor, hops: int, logits: Tensor, targets: Tensor
    ) -> int:
        return hops

    def readout(self, graph: Graph, states: Tensor) -> Tensor:
        return pool_segments(graph.batch_num_nodes(), states, "mean")

    def walk_shares(self, graph: Graph, players: Players, hops: int) -> Tensor:
        return mean_shares(graph, hops)[players.player]

    def context_nodes(self, batch: EgoBatch, row: Tensor) -> tuple[Tensor, ...]:
        return ()

    def check_training_on_all(self) -> None:
        raise InputError("benchmark.new_graphs")

    def gate(self, name: str) -> str:
        return "none"  # a player has no distance to a graph

    def num_targets(self, graph: Graph) -> int:
        return graph.batch_size

    def reach(self, graph: Graph, targets: Tensor, hops: int) -> Players:
        return nodes_of_graphs(graph, targets)

    def cost_bound(self, graph: Graph, hops: int) -> Tensor:
        return graph.batch_num_nodes().double()

    def target_nodes(self, graph: Graph, targets: Tensor) -> Tensor:
        return nodes_of_graphs(graph, targets).player

    def expand_to_nodes(self, graph: Graph, rows: Tensor) -> Tensor:
        return torch.repeat_interleave(rows, graph.batch_num_nodes(), dim=0)

    def batch(self, graph: Graph, targets: Tensor, hops: int, context: int) -> SharedSubgraph:
        return self.full_batch(graph, targets)

    def full_batch(self, graph: Graph, targets: Tensor) -> SharedSubgraph:
        targets = targets.sort().values
        batch, nodes = take_graphs(graph, targets)
        return SharedSubgraph(batch, nodes, targets, target_rows=torch.arange(len(targets), device=targets.device))

    def encoder_nodes(self, graph: Graph, targets: Tensor, hops: int) -> Tensor:
        return self.target_nodes(graph, targets)

    def encoder_sizes(self, sizes: Tensor, targets: Tensor) -> Tensor:
        return sizes[targets]

    def ego_batch(self, graph: Graph, targets: Tensor, hops: int, inner: int | None = None) -> EgoBatch:
        batch, nodes = take_graphs(graph, targets)
        row = rows_of_graphs(batch.batch_num_nodes())
        rows = torch.arange(len(targets), device=targets.device)
        return EgoBatch(batch, nodes, row, torch.zeros_like(row), rows, graph.num_nodes(), targets)

    def predict(self, f: Model, batch: SharedSubgraph | EgoBatch, masked: MaskedGraphs, null: Tensor) -> Tensor:
        """Return f on masked graphs. Graphs without nodes are left out, because a readout of nothing may fail."""
        sizes = batch.graph.batch_num_nodes()
        num_left = masked.kept.new_zeros(len(masked.kept), len(sizes), dtype=torch.long)
        num_left.index_add_(1, rows_of_graphs(sizes), masked.kept.long())
        num_left = num_left.flatten()
        predictions = null.expand(len(num_left), -1).clone()
        occupied = num_left > 0
        if occupied.any():
            remaining, counts = masked.graph, num_left[occupied]
            src, _ = remaining.edges()
            remaining.set_batch_num_nodes(counts)
            remaining.set_batch_num_edges(torch.bincount(rows_of_graphs(counts)[src], minlength=len(counts)))
            predictions[occupied] = f(remaining, masked.features)
        return predictions.view(len(masked.kept), len(sizes), -1)

    def mark_singles(self, graph: Graph) -> Graph:
        src, _ = graph.edges()
        graph.set_batch_num_nodes(torch.ones(graph.num_nodes(), dtype=torch.long, device=graph.device))
        graph.set_batch_num_edges(torch.bincount(src, minlength=graph.num_nodes()))
        return graph

    def pool(self, sizes: Tensor, t: Tensor) -> Tensor:
        """Return the maximum of t over each graph (Eq. 7)."""
        return pool_segments(sizes, t, "max")

    def target_embeddings(self, pooled: Tensor, targets: Tensor, nodes: Tensor | None) -> Tensor:
        return pooled[targets] if nodes is None else pooled  # of a batch, g saw these graphs and no others

    def in_motif(self, players: Players, motif: Tensor) -> Tensor:
        return motif[players.player] >= 0

    def player_noun(self, molecule: bool) -> str:
        return "atom" if molecule else "node"

    def node_ids(self, graph: Graph, target: Tensor, nodes: Tensor) -> Sequence[int]:
        sizes = graph.batch_num_nodes()
        return (nodes - (sizes.cumsum(0) - sizes)[target]).tolist()  # places within their graph

    def players_text(self, hops: int) -> str:
        return "all nodes of the graph"

    def target_names(self, target: int, node_names: NodeNames) -> list[str]:
        return [str(target)]

    def node_labels(
        self, nodes: Tensor, labels: Sequence[str] | None, names: Callable[[], list[str]]
    ) -> list[str] | None:
        return names()  # numbers of the batch are not those within a graph

    def within(self, hops: int) -> str:
        return ""

    def hop_names(self, hops: int) -> list[str]:
        return []

    def hops_of(self, near: Players) -> Tensor | None:
        return None

    def is_molecule(self, labels: Iterable[str]) -> bool:
        return all(label in ELEMENTS for label in labels)

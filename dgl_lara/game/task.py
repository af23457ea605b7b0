"""`Task`: what a target is. `tasks.py` lists the tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from dgl_lara.errors import InputError
from dgl_lara.game.player_index import Players
from dgl_lara.game.walks import walk_weights
from dgl_lara.graphs.graph import khop_nodes

if TYPE_CHECKING:
    from dgl_lara.blackbox.call import Model
    from dgl_lara.blackbox.hetero_index import Relation
    from dgl_lara.game.removal import MaskedGraphs
    from dgl_lara.graphs.graph import Graph
    from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph

EndpointScorer = Callable[[Any, Tensor, Tensor, Players | None], tuple[Players, Tensor]]  # game, nodes, t, players

NodeNames = Callable[[Tensor], list[str]]  # returns the names of nodes


class Task(ABC):
    """A kind of target.

    A task knows which rows of f's outputs are targets, what can reach them, how to extract them from the graph, how to
    call f on masked graphs, how g pools embeddings, and what users call a target. Code outside of this
    folder does not ask which task it has. It calls a method, and each task answers for itself.

    Attributes:
        name: Name in settings, "node", "graph" or "link".
        option: Option of the command line that names a target.
        has_distances: Players stand at hop distances from the target, which is itself a player.
        value: What is explained by default.
        targets_are_nodes: Ids of targets are ids of nodes.
        joint_name: Name of the player that a target is, if it consists of several nodes.
        sampled_pairs: Pairs of coalitions that direct sampling uses for a target by default.
        settings: Training settings that measured best, if they are not the defaults.
        settings_of_some_targets: Further settings for more than 1,500 targets.
        settings_of_many_targets: Further settings for more than 20,000 targets.
        paper_settings: Training settings of the paper.
        num_endpoints: Nodes that a target consists of, each with its own t.
        max_nearby_targets: Targets that are explained from their neighbourhoods if nothing is embedded.
        min_valid_masks: Shared masks that a target needs, if not all masks are valid for it.
        num_context_nodes: Nodes that an edge is seen from, besides its endpoints.
        head_layers: Linear layers of the heads of the residual encoder.
    """

    name: ClassVar[str]
    option: ClassVar[str]
    has_distances: ClassVar[bool]
    value: ClassVar[str] = "logit"
    targets_are_nodes: ClassVar[bool] = False
    joint_name: ClassVar[str | None] = None
    sampled_pairs: ClassVar[int]
    settings: ClassVar[dict[str, Any]] = {}
    settings_of_some_targets: ClassVar[dict[str, Any]] = {"steps": 500}
    settings_of_many_targets: ClassVar[dict[str, Any]] = {
        "steps": 300, "gate": "random-walk", "hidden": 128, "lr": 1e-2,
    }  # fmt: skip
    paper_settings: ClassVar[dict[str, Any]] = {}

    def __str__(self) -> str:
        return self.name

    # --- targets and what can reach them

    @abstractmethod
    def num_targets(self, graph: Graph) -> int:
        pass

    def num_rows(self, graph: Graph) -> int:
        """Return the number of rows of f's outputs on a graph, if f is not called with pairs."""
        return self.num_targets(graph)

    @abstractmethod
    def reach(self, graph: Graph, targets: Tensor, hops: int) -> Players:
        """Return the nodes that can reach each target."""

    @abstractmethod
    def cost_bound(self, graph: Graph, hops: int) -> Tensor:
        """Return (num_targets,) a bound on the players of a target and on the cost of explaining it."""

    @abstractmethod
    def target_nodes(self, graph: Graph, targets: Tensor) -> Tensor:
        """Return the nodes that targets consist of."""

    @abstractmethod
    def expand_to_nodes(self, graph: Graph, rows: Tensor) -> Tensor:
        """Return (num_nodes, ...) the row of the target that each node belongs to."""

    # --- subgraphs

    @abstractmethod
    def batch(self, graph: Graph, targets: Tensor, hops: int, context: int) -> SharedSubgraph:
        """Return the subgraph that f needs for these targets (Eq. 11).

        Args:
            graph: The full graph.
            targets: Targets of the batch.
            hops: K.
            context: K, or K + 1 if f uses the degrees of boundary nodes, which are then bystanders.
        """

    @abstractmethod
    def full_batch(self, graph: Graph, targets: Tensor) -> SharedSubgraph:
        """Return targets on the full graph, where one mask serves all of them."""

    def encoder_nodes(self, graph: Graph, targets: Tensor, hops: int) -> Tensor:
        """Return the nodes, ascending, that g needs to embed targets and their players (Eq. 12)."""
        return khop_nodes(graph, self.target_nodes(graph, targets), hops)

    def encoder_sizes(self, sizes: Tensor, targets: Tensor) -> Tensor:
        """Return the sizes of the graphs that g sees, from those of the full batch."""
        return sizes

    @abstractmethod
    def ego_batch(self, graph: Graph, targets: Tensor, hops: int, inner: int | None = None) -> EgoBatch:
        """Return one graph per target, without edges into nodes `inner` hops away or further."""

    # --- calls of f

    def endpoint_indices(self, batch: SharedSubgraph | EgoBatch) -> tuple[Tensor, ...]:
        """Return what f is called with besides graph and features: indices of both nodes of pairs, or ()."""
        return ()

    def target_node_indices(self, batch: SharedSubgraph | EgoBatch) -> tuple[Tensor, ...]:
        """Return the indices of the nodes that the targets consist of, in a subgraph."""
        return self.endpoint_indices(batch) or (batch.target_rows,)

    @abstractmethod
    def predict(self, f: Model, batch: SharedSubgraph | EgoBatch, masked: MaskedGraphs, null: Tensor) -> Tensor:
        """Return (num_masks, num_rows, num_classes) f on masked graphs, null logits for removed rows."""

    def mark_singles(self, graph: Graph) -> Graph:
        """Return a graph without edges with every node a target of its own."""
        return graph

    def single_endpoints(self, nodes: Tensor) -> tuple[Tensor, ...]:
        """Return what f is called with besides graph and features for single nodes: each twice for pairs, or ()."""
        return ()

    # --- what a task allows and needs

    num_endpoints: ClassVar[int] = 1
    max_nearby_targets: ClassVar[int] = 0
    min_valid_masks: ClassVar[int] = 0
    num_context_nodes: ClassVar[int] = 1
    head_layers: ClassVar[int] = 1

    def check_pair_options(self, pairs: Any, relation: Any, leave_out: bool) -> None:
        """Raise an error for options of links if targets are no links."""
        if pairs is not None or relation is not None or leave_out:
            raise InputError("pairs.task", task=self)

    def check_requested_links(self, links: Tensor | None) -> None:
        """Raise an error if a request names links and this task has none, or the other way round."""
        if links is not None:
            raise InputError("request.no_links", task=self)

    @abstractmethod
    def homogeneous_inputs(
        self, model: Callable, graph: Graph, features: Any, target_type: str | None, relation: str | Relation | None
    ) -> tuple[Model, Graph, Tensor, Task]:
        """Return f, graph, features and task for a heterogeneous graph."""

    def max_distance(self, hops: int) -> int:
        """Return the largest distance from a target to one of its players."""
        return hops

    def exceeds_memory(self, num_bytes: int, available: int) -> bool:
        """Return whether one pass of g over the full graph is replaced by a layer-wise pass."""
        return num_bytes > available

    def compute_device(self, device: torch.device | None) -> torch.device | None:
        """Return the device that computes batches, or None if the task computes on the device of the data."""
        return None

    def nearby_nodes(self, graph: Graph, targets: Tensor, hops: int) -> Tensor | None:
        """Return the nodes around targets that g sees, or None if targets are explained from full embeddings only."""
        return self.encoder_nodes(graph, targets, hops)

    def check_layerwise(self) -> None:  # noqa: B027
        """Raise an error if the task has no layer-wise pass."""

    def check_training_on_all(self) -> None:  # noqa: B027
        """Raise an error if the explained targets must be new to g."""

    def check_embedding(self, name: str) -> None:  # noqa: B027
        """Raise an error if g cannot use this form of embedding, "dual" or "single"."""

    def embedding_shape(self, num_nodes: int, num_targets: int, width: int) -> tuple[int, int]:
        """Return the shape of the stored t."""
        return num_nodes, width * self.num_endpoints

    def graph_text(self, graph: Graph, size: str) -> str:
        """Return a description of the graph of this size: "a graph with 5 nodes"."""
        return f"a graph with {size}"

    def prior_variance(self, variance: Tensor | None) -> Tensor | None:
        """Return the expected errors of scores if refinement is a posterior update of them."""
        return variance

    def likelihood_variance(self, variance: Tensor) -> Tensor | None:
        """Return the variance of scores that were refined without a prior, or None if it is too optimistic."""
        return None  # on BA-Shapes it promised up to .10 too much

    def readout(self, graph: Graph, states: Tensor) -> Tensor:
        """Return (num_targets, ...) the mean state of each target."""
        return states

    def walk_shares(self, graph: Graph, players: Players, hops: int) -> Tensor:
        """Return (num_pairs,) the share of each player in the mean state of its target after `hops` steps."""
        return walk_weights(graph, players, hops)[:, -1]

    def context_nodes(self, batch: EgoBatch, row: Tensor) -> tuple[Tensor, ...]:
        """Return (len(row),) `num_context_nodes` nodes of the batch for each row of a target: the target, if a node."""
        return (batch.target_rows[row],)

    def context_hops(
        self, caller: Any, graph: Graph, features: Tensor, hops: int, logits: Tensor, targets: Tensor
    ) -> int:
        """Return the hops around a target that f must see to return its own predictions."""
        return caller.context_hops(graph, features, hops, logits, targets)

    # --- g

    @property
    def endpoint_task(self) -> Task:
        """Return the task whose targets are the nodes that a target consists of."""
        return self

    def sum_over_endpoints(
        self, game: Any, targets: Tensor, t: Tensor, score: EndpointScorer, players: Players | None = None
    ) -> tuple[Players, Tensor]:
        """Return the players of the targets and their scores, summed over the nodes that a target consists of.

        Args:
            game: The game that is explained.
            targets: Targets of the game.
            t: (num_targets, num_endpoints * width) embeddings of the targets.
            score: Returns players and scores (num_pairs, ...) of single nodes.
            players: Players of the targets, if they are listed already.
        """
        return score(game, targets, t, players)

    def gate(self, name: str) -> str:
        """Return the gate that g uses if this one is configured."""
        return name

    def pool(self, sizes: Tensor, t: Tensor) -> Tensor:
        """Return t of the targets, or what it is computed from, from the outputs of the target head."""
        return t

    @abstractmethod
    def target_embeddings(self, pooled: Tensor, targets: Tensor, nodes: Tensor | None) -> Tensor:
        """Return (num_targets, num_endpoints * width) t of targets, if g saw `nodes` (None means all)."""

    def endpoints_of(self, target: int) -> Tensor:
        """Return the nodes that one target consists of, in order."""
        return torch.cat(self.endpoints(torch.tensor([target])))

    def endpoints(self, targets: Tensor) -> list[Tensor]:
        """Return (num_targets,) each: the nodes that targets consist of."""
        return [targets]

    # --- scores

    def players_among(self, near: Players) -> Players:
        """Return the players among the nodes that reach the targets."""
        return near

    def player_id(self, targets: Tensor, nodes: Tensor) -> Tensor:
        """Return (len(nodes),) the player that each node is for its target."""
        return nodes

    def is_target(self, players: Players) -> Tensor:
        """Return (num_pairs,) bool: whether the player is the target."""
        if not (self.has_distances and players.player_type == "nodes"):
            return torch.zeros_like(players.player, dtype=torch.bool)
        ends = (nodes[players.row] for nodes in self.endpoints(players.targets))
        return reduce(torch.logical_or, [players.player == nodes for nodes in ends])

    def in_motif(self, players: Players, motif: Tensor) -> Tensor:
        """Return (num_pairs,) bool: whether the player is in the motif of its target."""
        own = motif[self.endpoints(players.targets)[0]][players.row]
        return (motif[players.player] == own) & (own >= 0)

    # --- texts

    def player_noun(self, molecule: bool) -> str:
        """Return the noun for a player: neighbour, node or atom."""
        return "neighbour"

    def node_ids(self, graph: Graph, target: Tensor, nodes: Tensor) -> Sequence[int]:
        """Return the ids by which users know nodes near one target."""
        return nodes.tolist()

    @abstractmethod
    def players_text(self, hops: int) -> str:
        """Return a description of the players of a target."""

    def target_names(self, target: int, node_names: NodeNames) -> list[str]:
        """Return the names of the nodes that a target is."""
        return node_names(self.endpoints_of(target))

    def node_labels(
        self, nodes: Tensor, labels: Sequence[str] | None, names: Callable[[], list[str]]
    ) -> list[str] | None:
        """Return what a table calls nodes besides their numbers, or None. `names` returns the full names."""
        return None if labels is None else [labels[node] for node in nodes.tolist()]

    def subject(self, target_names: Sequence[str]) -> str:
        """Return how a sentence about a target begins: "Node 5"."""
        return f"{self.name.capitalize()} {target_names[0]}"

    def value_name(self, value: str) -> str:
        """Return the name of the explained value: "logit", "score"."""
        return value

    def owners(self, graph: Graph, players: Players, hops: int, target_names: Sequence[str]) -> list[str]:
        """Return whose neighbour each player of a target is: "its"."""
        return ["its"] * len(players.player)

    def node_columns(self, targets: Tensor) -> dict[str, Tensor]:
        """Return columns of a table with the nodes that targets consist of."""
        return {}

    def within(self, hops: int) -> str:
        """Return how far players are from their target, for a sentence."""
        return f" within {hops} hop{'s' * (hops != 1)}"

    def hop_names(self, hops: int) -> list[str]:
        """Return the name of each distance to a target, or nothing without distances."""
        return [self.joint_name or "itself", "1 hop", *(f"{hop} hops" for hop in range(2, hops + 1))]

    def hops_of(self, near: Players) -> Tensor | None:
        """Return the distance of nodes to their target, or None without distances."""
        return near.hop

    def is_molecule(self, labels: Iterable[str]) -> bool:
        """Return whether nodes with these labels are the atoms of a target."""
        return False


def rows_of_graphs(sizes: Tensor) -> Tensor:
    """Return (num_nodes,) the graph of a batch that each node belongs to."""
    return torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)

"""What can be a target: the protocol behind which node tasks and graph tasks stand.

A task says which rows of f's answer are targets, what of the graph can reach one, how a batch of them is cut out,
how f is asked once something has been removed, how g makes one embedding of a target, and what a target is called.
Everything else is written once for all tasks. `tasks.py` lists them; CONTRIBUTING.md says how to add one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import dgl
import torch
from torch import Tensor

from dgl_lara.blackbox.call import Model
from dgl_lara.game.player_index import Players
from dgl_lara.game.removal import MaskedGraphs
from dgl_lara.game.walks import walk_weights
from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph

EndpointScorer = Callable[[Any, Tensor, Tensor, Players | None], tuple[Players, Tensor]]  # game, nodes, t, players

NodeNames = Callable[[Tensor], list[str]]  # returns the names of nodes


class Task(ABC):
    name: ClassVar[str]
    has_distances: ClassVar[bool]  # players stand at hop distances from the target, which is itself one of them
    value: ClassVar[str] = "logit"  # what is explained, unless something else is asked for
    targets_are_nodes: ClassVar[bool] = False
    joint_name: ClassVar[str | None] = None  # of the player that a target is, if it is several nodes
    sampled_pairs: ClassVar[int]  # what direct sampling spends on a target, unless told otherwise
    settings: ClassVar[dict[str, Any]] = {}  # of training: what measured best, where it is not `TrainingConfig`'s own
    settings_of_some_targets: ClassVar[dict[str, Any]] = {"steps": 500}  # if there are more than 1,500
    settings_of_many_targets: ClassVar[dict[str, Any]] = {  # if there are more than 20,000
        "steps": 300, "gate": "random-walk", "hidden": 128, "lr": 1e-2,
    }  # fmt: skip
    paper_settings: ClassVar[dict[str, Any]] = {}  # of the paper's form

    def __str__(self) -> str:
        return self.name

    # --- targets and what can reach them

    @abstractmethod
    def num_targets(self, graph: dgl.DGLGraph) -> int:
        """How many targets the whole graph has."""

    @abstractmethod
    def num_rows(self, graph: dgl.DGLGraph) -> int:
        """How many rows f's answer on a graph has, where it is not asked about pairs."""

    @abstractmethod
    def reach(self, graph: dgl.DGLGraph, targets: Tensor, hops: int) -> Players:
        """The nodes that can matter to each target."""

    @abstractmethod
    def cost_bound(self, graph: dgl.DGLGraph, hops: int) -> Tensor:
        """(num_targets,) a bound on the players of a target and on what explaining it costs."""

    @abstractmethod
    def target_nodes(self, graph: dgl.DGLGraph, targets: Tensor) -> Tensor:
        """The nodes that targets are, or are made of."""

    @abstractmethod
    def expand_to_nodes(self, graph: dgl.DGLGraph, rows: Tensor) -> Tensor:
        """(num_nodes, ...): to each node the row of the target that it is, or belongs to."""

    # --- cutting out

    @abstractmethod
    def batch(self, graph: dgl.DGLGraph, targets: Tensor, hops: int, context: int) -> SharedSubgraph:
        """Eq. 11: the part of the graph that f needs for these targets. `context` is K, or K + 1 where f normalises
        by the degrees of the boundary nodes, which are then bystanders."""

    @abstractmethod
    def full_batch(self, graph: dgl.DGLGraph, targets: Tensor) -> SharedSubgraph:
        """The same where everything fits: one mask over the whole graph serves all targets."""

    @abstractmethod
    def encoder_nodes(self, graph: dgl.DGLGraph, targets: Tensor, hops: int) -> Tensor:
        """Eq. 12: the nodes, rising, that g must see to embed these targets and their players."""

    @abstractmethod
    def encoder_sizes(self, sizes: Tensor, targets: Tensor) -> Tensor:
        """Nodes of each graph of the batch that g then sees, from those of the whole batch."""

    @abstractmethod
    def ego_batch(self, graph: dgl.DGLGraph, targets: Tensor, hops: int, inner: int | None = None) -> EgoBatch:
        """A separate graph for each target; with `inner`, without the edges into nodes that far away or further."""

    # --- asking f

    def endpoint_indices(self, here: SharedSubgraph | EgoBatch) -> tuple[Tensor, ...]:
        """What f is given beside a graph and its features: of pairs, the places of both ends; of others nothing."""
        return ()

    def target_node_indices(self, here: SharedSubgraph | EgoBatch) -> tuple[Tensor, ...]:
        """Where the nodes that the targets are stand in a part: the node itself, or both ends."""
        return self.endpoint_indices(here) or (here.target_rows,)

    @abstractmethod
    def predict(self, f: Model, here: SharedSubgraph | EgoBatch, left: MaskedGraphs, null: Tensor) -> Tensor:
        """(num_masks, rows, num_classes): f on what is left of a part under each mask; null where a row is gone."""

    @abstractmethod
    def mark_singles(self, graph: dgl.DGLGraph) -> dgl.DGLGraph:
        """A graph without edges between nodes, each of them a target of its own."""

    # --- what a task allows and needs

    num_endpoints: ClassVar[int] = 1  # nodes that a target consists of as far as scores go, each with its own t
    max_nearby_targets: ClassVar[int] = 0  # targets that are explained from their neighbourhoods, without embeddings
    min_valid_masks: ClassVar[int] = 0  # shared masks that a target needs, if not all masks are valid for it
    num_context_nodes: ClassVar[int] = 1
    head_layers: ClassVar[int] = 1  # linear layers of the heads of the residual encoder

    def max_distance(self, hops: int) -> int:
        """Return the largest distance from a target to one of its players."""
        return hops

    def exceeds_memory(self, num_bytes: int, available: int) -> bool:
        """Return whether one pass of g over the full graph is replaced by a layer-wise pass."""
        return num_bytes > available

    def compute_device(self, device: torch.device | None) -> torch.device | None:
        """Return the device that computes batches, or None if the task computes everything where the data is."""
        return None

    def nearby_nodes(self, graph: dgl.DGLGraph, targets: Tensor, hops: int) -> Tensor | None:
        """Return the nodes around targets that g sees, or None if targets are explained from full embeddings only."""
        return self.encoder_nodes(graph, targets, hops)

    def check_layerwise(self) -> None:  # noqa: B027
        """Raise an error if the task has no layer-wise pass."""

    def check_embedding(self, name: str) -> None:  # noqa: B027
        """Raise an error if g cannot use this form of embedding, "dual" or "single"."""

    def embedding_shape(self, num_nodes: int, num_targets: int, width: int) -> tuple[int, int]:
        """Return the shape of the stored t."""
        return num_nodes, width * self.num_endpoints

    def graph_text(self, graph: dgl.DGLGraph, size: str) -> str:
        """Return a description of the graph of this size: "a graph with 5 nodes"."""
        return f"a graph with {size}"

    def prior_variance(self, variance: Tensor | None) -> Tensor | None:
        """Return the expected errors of scores if refinement is a posterior update of them."""
        return variance

    def likelihood_variance(self, variance: Tensor) -> Tensor | None:
        """Return the variance of scores that were refined without a prior, or None if it is too optimistic."""
        return None  # on BA-Shapes it promised up to .10 too much

    def readout(self, graph: dgl.DGLGraph, states: Tensor) -> Tensor:
        """(num_targets, ...) Return the mean state of each target."""
        return states

    def walk_shares(self, graph: dgl.DGLGraph, players: Players, hops: int) -> Tensor:
        """(num_pairs,) Return the share of each player in the mean state of its target after `hops` steps."""
        return walk_weights(graph, players, hops)[:, -1]

    def context_nodes(self, batch: EgoBatch, row: Tensor) -> tuple[Tensor, ...]:
        """(len(row),) Return `num_context_nodes` nodes of the batch for each row of a target: the target, if a node."""
        return (batch.target_rows[row],)

    def context_hops(
        self, caller: Any, graph: dgl.DGLGraph, features: Tensor, hops: int, logits: Tensor, targets: Tensor
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

    @abstractmethod
    def pool(self, sizes: Tensor, t: Tensor) -> Tensor:
        """What is kept of what the target head says of every node: t of the targets, or what it is made of."""

    @abstractmethod
    def target_embeddings(self, pooled: Tensor, targets: Tensor, nodes: Tensor | None) -> Tensor:
        """(num_targets, sides * width): t of targets, where g saw `nodes` (None: everybody)."""

    def endpoints_of(self, target: int) -> Tensor:
        """The node that a target is, or both ends of a link, in that order."""
        return torch.cat(self.endpoints(torch.tensor([target])))

    def endpoints(self, targets: Tensor) -> list[Tensor]:
        """(num_targets,) for each side: the node from which the scores walk out."""
        return [targets]

    # --- scores

    def players_among(self, near: Players) -> Players:
        """Who plays of those who can reach the targets: all of them, unless several nodes are one player."""
        return near

    def player_id(self, targets: Tensor, nodes: Tensor) -> Tensor:
        """(len(nodes),) the number under which each node plays for its target, of which there is one a node."""
        return nodes

    @abstractmethod
    def is_target(self, players: Players) -> Tensor:
        """(num_pairs,) bool: the player is the target itself."""

    @abstractmethod
    def in_motif(self, players: Players, motif: Tensor) -> Tensor:
        """(num_pairs,) bool: the player is in the target's own motif."""

    # --- words

    @abstractmethod
    def player_noun(self, molecule: bool) -> str:
        """What a player is called: neighbour, node, atom."""

    @abstractmethod
    def node_ids(self, graph: dgl.DGLGraph, target: Tensor, nodes: Tensor) -> Sequence[int]:
        """The numbers under which people know nodes near one target."""

    @abstractmethod
    def players_text(self, hops: int) -> str:
        """Who plays."""

    def target_names(self, target: int, node_names: NodeNames) -> list[str]:
        """Return the names of the nodes that a target is."""
        return node_names(self.endpoints_of(target))

    def node_labels(
        self, nodes: Tensor, labels: Sequence[str] | None, names: Callable[[], list[str]]
    ) -> list[str] | None:
        """Return what a table calls nodes beside their numbers, or None. `names` returns the full names."""
        return None if labels is None else [labels[node] for node in nodes.tolist()]

    def subject(self, target_names: Sequence[str]) -> str:
        """Return how a sentence about a target begins: "Node 5"."""
        return f"{self.name.capitalize()} {target_names[0]}"

    def value_name(self, value: str) -> str:
        """Return the name of the explained value: "logit", "score"."""
        return value

    def owners(self, graph: dgl.DGLGraph, players: Players, hops: int, target_names: Sequence[str]) -> list[str]:
        """Return whose neighbour each player of a target is: "its"."""
        return ["its"] * len(players.player)

    def end_columns(self, targets: Tensor) -> dict[str, Tensor]:
        """Return columns of a table with the nodes that targets consist of, by name."""
        return {}


def rows_of_graphs(sizes: Tensor) -> Tensor:
    """(num_nodes,) which graph of a batch each node belongs to."""
    return torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)

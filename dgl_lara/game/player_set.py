"""`PlayerSet`: the players of a game, masks over them, and their removal. `player_specs.py` lists the sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from dgl_lara.game.removal import MaskedGraphs, remove_nodes
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph

if TYPE_CHECKING:
    from dgl_lara.blackbox.hetero_index import HeteroIndex
    from dgl_lara.game.player_index import Players
    from dgl_lara.game.task import NodeNames, Task
    from dgl_lara.graphs.graph import Graph


@dataclass(frozen=True, eq=False)
class GameContext:
    """Graph, features and task of a game.

    Attributes:
        task: What is a target.
        graph: The full graph.
        features: (num_nodes, columns)
        hops: K, how far the model looks.
    """

    task: Task
    graph: Graph
    features: Tensor
    hops: int


class Grouping(NamedTuple):
    """Players sorted into groups, for a summary."""

    by: str
    codes: Tensor  # (num_pairs,) group of each player, -1 for none
    names: list[str]  # of each group


class PlayerSet(ABC):
    """The players of one graph.

    Removal works on units of a graph: its nodes, its edges, or the columns of its features. Code outside of this folder
    does not ask which players a game has. It calls a method, and each set answers for itself.

    Attributes:
        name: Name in settings, "nodes", "edges" or "features".
        noun: What one player is called.
        removal: What it means to remove one, for users.
        includes_target: A target is a player of its own.
        supports_shared_masks: One mask over all players is a coalition for every target at once.
        num_baselines: Calls of f for one coalition.
        in_graph: Players are nodes or edges, so a picture of the graph shows them.
        walk_kernel: Compiled kernel that scores these players.
        num_table_columns: Players of every target, if all players play for every target, otherwise 0.
        are_nodes: Ids of players are ids of nodes.
    """

    name: ClassVar[str]
    noun: ClassVar[str]
    removal: ClassVar[str]
    includes_target: bool = False
    supports_shared_masks: bool = True
    num_baselines: int = 1
    in_graph: ClassVar[bool] = True
    walk_kernel: str | None = None
    num_table_columns: int = 0
    are_nodes: ClassVar[bool] = False

    def __init__(self, context: GameContext) -> None:
        self.task, self.graph, self.features, self.hops = context.task, context.graph, context.features, context.hops

    @property
    @abstractmethod
    def count(self) -> int:
        """Return the number of players in the full graph: the columns of a shared mask."""

    def samples_after_update(self, samples: Any) -> Any:
        """Return samples from training if ids of players stay valid when the graph changes, or else None."""
        return samples

    @abstractmethod
    def players(self, targets: Tensor) -> Players:
        """Return the players of each target."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Return a description of the players of a target."""

    def cost_bound(self) -> Tensor:
        """Return (num_targets,) a bound on the players of a target and on the cost of explaining it."""
        return self.task.cost_bound(self.graph, self.hops)

    def target_player(self, targets: Tensor) -> Tensor | None:
        """Return (num_targets,) the player that a target itself is, or None if no target is one."""
        return None

    def valid_masks(self, inside: Callable[[Tensor], Tensor], targets: Tensor) -> Tensor | None:
        """Return (num_masks, num_targets) bool: which shared masks are coalitions of a target, or None if all are.

        Args:
            inside: Returns which players are in S, (num_masks, len(players)).
            targets: Targets of the game.
        """
        return None

    def batch(self, targets: Tensor, context: int) -> SharedSubgraph | EgoBatch:
        """Return the subgraph on which one mask is a coalition for all targets (Eq. 11)."""
        return self.task.batch(self.graph, targets, self.hops, context)

    def empty_values(self, game: Any) -> Tensor:
        """Return (num_targets, num_classes) the values without any player, or those of a removed target."""
        if not self.supports_shared_masks:
            return game.null_values
        return game.shared_values(torch.zeros(1, self.count, dtype=torch.bool, device=self.features.device))[0]

    def ego_sizes(self, game: Any, players: Players) -> Tensor:
        """Return (num_targets,) about how many nodes the ego graph of each target has."""
        return game.cost_bound[players.targets]

    def pair_index(self, players: Players, near: Players) -> Tensor:
        """Return (num_pairs of `near`,) which pair of `players` each pair is, seen from one node of its target."""
        return lookup_sorted(near.row * players.num_ids + near.player, players.key)[0]

    @abstractmethod
    def ids(self, batch: SharedSubgraph | EgoBatch) -> Tensor:
        """Return the players, ascending, that the columns of a mask over a batch stand for."""

    @abstractmethod
    def expand_mask(self, batch: SharedSubgraph | EgoBatch, keep: Tensor) -> Tensor:
        """Return (num_masks, num_units) the units that stay. Units that are no player stay."""

    @abstractmethod
    def match_units(self, batch: EgoBatch, players: Players) -> tuple[Tensor, Tensor]:
        """Return for each unit of an ego batch the index of its pair, and whether it is a player."""

    @abstractmethod
    def remove(self, batch: SharedSubgraph | EgoBatch, features: Tensor, keep: Tensor) -> MaskedGraphs:
        """Return a copy of the graph for each mask over its units, without what the mask removes."""

    @abstractmethod
    def player_inputs(self, nodes: Tensor) -> Tensor:
        """Return (count, ...) inputs of each player, from inputs of each node."""

    # --- what users see of players

    def noun_in(self, molecule: bool) -> str:
        """Return the noun for one player."""
        return self.noun

    def names(self, players: Players, node_names: NodeNames, own: Sequence[str] | None) -> list[str]:
        """Return the name of each player.

        Args:
            players: Players of one target.
            node_names: Returns the names of nodes.
            own: Result of `display_names`.
        """
        return node_names(players.player)

    def display_names(self, columns: Sequence[str] | None) -> Sequence[str] | None:
        """Return the names of all players if they come from the columns of the features."""
        return None

    def roles(self, players: Players, noun: str, target_names: Sequence[str]) -> list[str]:
        """Return what each player is to the target: "its 1-hop neighbour", "edge"."""
        return [noun] * len(players.player)

    def table_labels(
        self, players: Players, labels: Sequence[str] | None, names: Callable[[], list[str]]
    ) -> list[str] | None:
        """Return the column "label" of a table of players, or None if it has none."""
        return None

    def own_groups(self, players: Players, names: Sequence[str] | None) -> Grouping | None:
        """Return the groups that players form by themselves, named by `names` of all players."""
        return None

    def column_of(self, player: int) -> int | None:
        """Return the column of the features that a player is, or None."""
        return None

    def groups_by_node(self, players: Players, by: str, codes: Tensor, names: list[str]) -> Grouping | None:
        """Return players grouped by a property of nodes.

        Args:
            players: Players of some targets.
            by: Name of the property.
            codes: (num_nodes,) its value for each node.
            names: Names of these values.
        """
        return None

    def groups_by_agreement(self, players: Players, classes: Tensor, explained: Tensor) -> Grouping | None:
        """Return players grouped by whether their predicted class is the explained one."""
        return None

    def groups_by_type(self, players: Players, types: HeteroIndex) -> Grouping | None:
        """Return players grouped by node type or relation."""
        return None

    def endpoints(self, players: Tensor) -> tuple[Tensor, ...]:
        """Return the nodes that each player connects, or nothing if players are not edges."""
        return ()

    def nodes_of(self, players: Tensor) -> tuple[Tensor, ...]:
        """Return the nodes that players are or connect, or nothing for columns."""
        return self.endpoints(players)

    def node_columns(self, players: Tensor) -> dict[str, Tensor]:
        """Return columns of a table with the nodes that players are or connect."""
        return dict(zip("uv", self.endpoints(players), strict=False))

    def within(self) -> str:
        """Return how far players are from their target, for a sentence, or ""."""
        return ""

    def value_of(self, players: Tensor, nodes: Tensor) -> str:
        """Return what the nodes have in the column of a player, or "" if players are not columns."""
        return ""

    def player_of_nodes(self, targets: Tensor, nodes: Tensor) -> Tensor | None:
        """Return the player that each node is for its target, or None if nodes are not players."""
        return None

    def player_of_edges(self, src: Tensor, dst: Tensor) -> Tensor | None:
        """Return the player that each edge is (-1 for none), or None if edges are not players."""
        return None


class NodePlayers(PlayerSet):
    """Nodes that can reach the target. A removed node is gone with its features and edges."""

    name = "nodes"
    noun = "node"
    removal = (
        "To remove a player is to take the node, its features and its edges out of the graph. A removed target, or an "
        "empty graph, has the model's prediction for one isolated node without features."
    )

    are_nodes = True

    def __init__(self, context: GameContext) -> None:
        super().__init__(context)
        self.includes_target = self.task.has_distances
        self.walk_kernel = "nodes" if self.task.has_distances else None

    @property
    def count(self) -> int:
        return self.graph.num_nodes()

    def players(self, targets: Tensor) -> Players:
        return self.task.players_among(self.task.reach(self.graph, targets, self.hops))

    @property
    def description(self) -> str:
        return self.task.players_text(self.hops)

    def target_player(self, targets: Tensor) -> Tensor | None:
        return self.task.endpoints(targets)[0] if self.includes_target else None

    def valid_masks(self, inside: Callable[[Tensor], Tensor], targets: Tensor) -> Tensor | None:
        """Return which masks keep or remove all nodes of a target together."""
        if self.task.num_endpoints == 1:
            return None
        first, second = map(inside, self.task.endpoints(targets))
        return first == second

    def empty_values(self, game: Any) -> Tensor:
        return game.null_values

    def ego_sizes(self, game: Any, players: Players) -> Tensor:
        return players.counts

    def pair_index(self, players: Players, near: Players) -> Tensor:
        ids = self.task.player_id(players.targets[near.row], near.player)
        return lookup_sorted(near.row * players.num_ids + ids, players.key)[0]

    def ids(self, batch: SharedSubgraph | EgoBatch) -> Tensor:
        return batch.nodes

    def expand_mask(self, batch: SharedSubgraph | EgoBatch, keep: Tensor) -> Tensor:
        bystander = batch.bystander if isinstance(batch, SharedSubgraph) else None
        return keep if bystander is None else keep | bystander

    def match_units(self, batch: EgoBatch, players: Players) -> tuple[Tensor, Tensor]:
        node = self.task.player_id(batch.targets[batch.row], batch.nodes)
        return lookup_sorted(batch.row * batch.num_nodes + node, players.key)

    def remove(self, batch: SharedSubgraph | EgoBatch, features: Tensor, keep: Tensor) -> MaskedGraphs:
        return remove_nodes(batch.graph, features, keep)

    def player_inputs(self, nodes: Tensor) -> Tensor:
        return nodes

    def noun_in(self, molecule: bool) -> str:
        return self.task.player_noun(molecule)

    def names(self, players: Players, node_names: NodeNames, own: Sequence[str] | None) -> list[str]:
        names, joint = node_names(players.player), self.task.joint_name
        if joint is None:
            return names
        return [joint if is_own else name for is_own, name in zip(self.task.is_target(players), names, strict=True)]

    def roles(self, players: Players, noun: str, target_names: Sequence[str]) -> list[str]:
        if not self.includes_target:
            return super().roles(players, noun, target_names)
        owners = self.task.owners(self.graph, players, self.hops, target_names)
        return [f"{owner} {hop}-hop {noun}" for owner, hop in zip(owners, players.hop.tolist(), strict=True)]

    def table_labels(
        self, players: Players, labels: Sequence[str] | None, names: Callable[[], list[str]]
    ) -> list[str] | None:
        return self.task.node_labels(players.player, labels, names)

    def nodes_of(self, players: Tensor) -> tuple[Tensor, ...]:
        return (players,)

    def node_columns(self, players: Tensor) -> dict[str, Tensor]:
        return {"player": players}

    def within(self) -> str:
        return self.task.within(self.hops)

    def groups_by_agreement(self, players: Players, classes: Tensor, explained: Tensor) -> Grouping | None:
        agrees = (classes[players.player] == explained[players.row]).long()
        codes = torch.where(self.task.is_target(players), -1, agrees)
        return Grouping("class, the same or not", codes, ["another class", "the explained class"])

    def player_of_nodes(self, targets: Tensor, nodes: Tensor) -> Tensor | None:
        return self.task.player_id(targets, nodes)

    def groups_by_node(self, players: Players, by: str, codes: Tensor, names: list[str]) -> Grouping | None:
        return Grouping(by, torch.where(self.task.is_target(players), -1, codes[players.player]), names)

    def groups_by_type(self, players: Players, types: HeteroIndex) -> Grouping | None:
        node_type = types.type_of(players.player)
        return Grouping("type", torch.where(self.task.is_target(players), -1, node_type), list(types.node_types))

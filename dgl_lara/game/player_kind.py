"""What can be a player: who plays for a target, what a mask speaks of, and what removal does.

A kind is made for one graph, and `Game` draws, evaluates and shares coalitions through these methods alone. Removal
works on *units* of a graph: its nodes, its edges, or the columns of its features. `kinds.py` lists the kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from dgl_lara.game.batch import Batch, Egos
from dgl_lara.game.field import Field
from dgl_lara.game.players import Players, find
from dgl_lara.game.removal import Remainder, remove_nodes


class PlayerKind(ABC):
    """The players of one graph."""

    name: ClassVar[str]
    noun: ClassVar[str]  # one of them, in words
    removal: ClassVar[str]  # what it means to remove one, in words
    includes_target: bool = False  # a target is a player of its own
    shares: bool = True  # one mask over all players is a coalition for every target at once
    repeats: int = 1  # times that f is asked about one coalition

    def __init__(self, field: Field) -> None:
        self.task, self.graph, self.features, self.hops = field.task, field.graph, field.features, field.hops

    @property
    @abstractmethod
    def count(self) -> int:
        """How many there are in the whole graph: the columns of a mask that all targets share."""

    @abstractmethod
    def players(self, targets: Tensor) -> Players:
        """Who plays for each target."""

    @property
    @abstractmethod
    def in_words(self) -> str:
        """Who plays, in words."""

    def work(self) -> Tensor:
        """(num_targets,) a bound on the players of a target and on what explaining it costs."""
        return self.task.work(self.graph, self.hops)

    def own(self, targets: Tensor) -> Tensor | None:
        """(num_targets,) the player that a target itself is; None where no target is one."""
        return None

    def usable(self, inside: Callable[[Tensor], Tensor], targets: Tensor) -> Tensor | None:
        """(num_masks, num_targets) bool: shared masks are coalitions for the target; None: all are. `inside`: which
        players are in S, (num_masks, len(players))."""
        return None

    def batch(self, targets: Tensor, context: int) -> Batch | Egos:
        """Eq. 11: the part of the graph on which one mask is a coalition for all these targets."""
        return self.task.batch(self.graph, targets, self.hops, context)

    @abstractmethod
    def ids(self, batch: Batch | Egos) -> Tensor:
        """The players, rising, that the columns of a mask over a batch stand for."""

    @abstractmethod
    def on_batch(self, batch: Batch | Egos, keep: Tensor) -> Tensor:
        """(num_masks, units): which units stay under masks over `ids`; what is nobody's player stays."""

    @abstractmethod
    def on_egos(self, here: Egos, players: Players) -> tuple[Tensor, Tensor]:
        """For each unit of separate graphs: which (target, player) pair it is, and whether it is one at all."""

    @abstractmethod
    def remove(self, here: Batch | Egos, features: Tensor, keep: Tensor) -> Remainder:
        """A copy of the graph for each mask over its units, less what the mask leaves out."""

    @abstractmethod
    def looks(self, nodes: Tensor) -> Tensor:
        """(count, ...): what is known of each player, from what is known of each node."""


class NodePlayers(PlayerKind):
    """Nodes that can reach the target; a removed one is gone with its features and edges."""

    name = "nodes"
    noun = "node"
    removal = (
        "To remove a player is to take the node, its features and its edges out of the graph. A removed target, or an "
        "empty graph, has the model's prediction for one isolated node without features."
    )

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.includes_target = self.task.local

    @property
    def count(self) -> int:
        return self.graph.num_nodes()

    def players(self, targets: Tensor) -> Players:
        return self.task.players_among(self.task.reach(self.graph, targets, self.hops))

    @property
    def in_words(self) -> str:
        return self.task.players_in_words(self.hops)

    def own(self, targets: Tensor) -> Tensor | None:
        return self.task.side_nodes(targets)[0] if self.includes_target else None

    def usable(self, inside: Callable[[Tensor], Tensor], targets: Tensor) -> Tensor | None:
        """What is one player in several nodes must be in S, or out of it, with all of them."""
        if self.task.sides == 1:
            return None
        first, second = map(inside, self.task.side_nodes(targets))
        return first == second

    def ids(self, batch: Batch | Egos) -> Tensor:
        return batch.nodes

    def on_batch(self, batch: Batch | Egos, keep: Tensor) -> Tensor:
        bystander = batch.bystander if isinstance(batch, Batch) else None
        return keep if bystander is None else keep | bystander

    def on_egos(self, here: Egos, players: Players) -> tuple[Tensor, Tensor]:
        node = self.task.plays_as(here.targets[here.row], here.nodes)
        return find(here.row * here.num_nodes + node, players.key)

    def remove(self, here: Batch | Egos, features: Tensor, keep: Tensor) -> Remainder:
        return remove_nodes(here.graph, features, keep)

    def looks(self, nodes: Tensor) -> Tensor:
        return nodes

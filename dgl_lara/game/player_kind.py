"""What can be a player: who plays for a target, what a mask speaks of, and what removal does.

Nodes are the only kind so far. Another kind (edges, columns of features) is another subclass: `Game` draws, evaluates
and shares coalitions through these methods alone. CONTRIBUTING.md says what else a new kind needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import dgl
from torch import Tensor

from dgl_lara.game.batch import Batch, Egos
from dgl_lara.game.players import Players, find
from dgl_lara.game.removal import Remainder, remove_nodes
from dgl_lara.game.task import Task


class PlayerKind(ABC):
    @abstractmethod
    def count(self, graph: dgl.DGLGraph, features: Tensor) -> int:
        """How many there are in the whole graph: the columns of a mask that all targets share."""

    @abstractmethod
    def players(self, task: Task, graph: dgl.DGLGraph, targets: Tensor, hops: int) -> Players:
        """Who plays for each target."""

    @abstractmethod
    def ids(self, batch: Batch) -> Tensor:
        """The players, rising, that the columns of a mask over a batch stand for."""

    @abstractmethod
    def own(self, task: Task, targets: Tensor) -> Tensor | None:
        """(num_targets,) the player that a target itself is; None where no target is one."""

    @abstractmethod
    def stays(self, batch: Batch) -> Tensor | None:
        """Which of those columns (bool) are nobody's player and stay in every coalition; None: none of them."""

    @abstractmethod
    def columns_on(self, here: Egos, players: Players) -> tuple[Tensor, Tensor]:
        """For each column of a mask over `here`: which (target, player) pair it is, and whether it is one at all."""

    @abstractmethod
    def remove(self, graph: dgl.DGLGraph, features: Tensor, keep: Tensor) -> Remainder:
        """A copy of the graph for each mask, less the players that the mask leaves out."""


class NodePlayers(PlayerKind):
    """Nodes that can reach the target; a removed one is gone with its features and edges."""

    def count(self, graph: dgl.DGLGraph, features: Tensor) -> int:
        return graph.num_nodes()

    def players(self, task: Task, graph: dgl.DGLGraph, targets: Tensor, hops: int) -> Players:
        return task.reach(graph, targets, hops)

    def ids(self, batch: Batch) -> Tensor:
        return batch.nodes

    def own(self, task: Task, targets: Tensor) -> Tensor | None:
        return targets if task.local else None

    def stays(self, batch: Batch) -> Tensor | None:
        return batch.bystander

    def columns_on(self, here: Egos, players: Players) -> tuple[Tensor, Tensor]:
        return find(here.key, players.key)

    def remove(self, graph: dgl.DGLGraph, features: Tensor, keep: Tensor) -> Remainder:
        return remove_nodes(graph, features, keep)


NODES = NodePlayers()

"""`GameContext`: what a set of players is made for."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dgl_lara.game.task import Task
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

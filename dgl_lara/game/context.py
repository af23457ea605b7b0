"""Where a game is played: a graph with its features, a task, and how far f looks."""

from __future__ import annotations

from dataclasses import dataclass

import dgl
from torch import Tensor

from dgl_lara.game.task import Task


@dataclass(frozen=True, eq=False)
class GameContext:
    task: Task
    graph: dgl.DGLGraph
    features: Tensor
    hops: int

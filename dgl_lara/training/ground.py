"""Where training takes place: on a graph in memory, or on what is cut out of one that is never whole.

A batch of targets is led to the subgraphs of a game that holds them, and to their numbers there. On a graph in parts
that is a game of its own on their surroundings, as far as g sees (Eq. 12), in numbers of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import encoder_graph, explainer_inputs
from dgl_lara.game.game import Game
from dgl_lara.parts.game_in_parts import GameInParts, Near
from dgl_lara.training.config import TrainingConfig, step_bytes
from dgl_lara.training.subgraphs import NeighborSubgraphs, Subgraphs
from dgl_lara.training.validation import judged_targets
from dgl_lara.utils.progress import say

JUDGE_SHARE = 4  # the judge, who stays, has one part in so many of the memory
ROWS = 100_000


class Ground(Protocol):
    def inputs_of(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """What g sees of nodes, and which rows of it are the targets'."""

    def judged(self, validation: Tensor) -> tuple[Game, EncoderGraph, Tensor]:
        """What the judge needs: a game, the graph as g sees it, and the validation targets there."""

    def around(self, targets: Tensor) -> tuple[Subgraphs, Tensor]:
        """What a step needs, and the targets there."""


@dataclass(frozen=True, eq=False)
class InMemory:
    subgraphs: Subgraphs

    def inputs_of(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        game = self.subgraphs.game
        return self.subgraphs.encoder_graph.inputs, game.task.nodes_of(game.graph, targets)

    def judged(self, validation: Tensor) -> tuple[Game, EncoderGraph, Tensor]:
        return self.subgraphs.game, self.subgraphs.encoder_graph, validation

    def around(self, targets: Tensor) -> tuple[Subgraphs, Tensor]:
        return self.subgraphs, targets


@dataclass(eq=False)
class OutOfCore:
    """A batch whose surroundings do not fit is halved until they do."""

    game: GameInParts
    config: TrainingConfig
    halved: bool = False
    judges: Game | None = None  # where the validation targets are

    @property
    def sight(self) -> int:
        """Hops around a target: what g sees of it, and the degrees of all players."""
        layers = self.game.hops if self.config.layers is None else self.config.layers
        return max(self.game.hops + layers, self.game.hops + 1)

    def inputs_of(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Of the targets alone."""
        alone = map(self.game.alone, targets.sort().values.split(ROWS))
        rows = [explainer_inputs(game, self.config.inputs) for game in alone]
        return torch.cat(rows), torch.arange(len(targets))

    def judged(self, validation: Tensor) -> tuple[Game, EncoderGraph, Tensor]:
        near = self._fitting(judged_targets(validation, self.config.seed), self.game.budget.memory // JUDGE_SHARE)
        self.judges = near.game
        return near.game, self._seen(near), near.targets

    def around(self, targets: Tensor) -> tuple[Subgraphs, Tensor]:
        near = self._fitting(targets, self.game.budget.memory - self.game.budget.memory // JUDGE_SHARE)
        return NeighborSubgraphs(near.game, self._seen(near)), near.targets

    def _fitting(self, targets: Tensor, memory: int) -> Near:
        game = self.game
        inner = game.context < self.sight and not game.view.has_loops
        while True:
            here = game.cut(targets, self.sight, inner)
            needed = step_bytes(self.config, game.hops, game.view.columns, game.num_classes, len(here.nodes))
            if needed <= memory or len(targets) == 1:
                return game.near_cut(here)
            targets = targets[: len(targets) // 2]
            if not self.halved:
                say(f"the surroundings of a batch ({len(here.nodes):,} nodes) do not fit: such batches are halved.")
            self.halved = True

    def _seen(self, near: Near) -> EncoderGraph:
        return encoder_graph(near.game, self.config.inputs)

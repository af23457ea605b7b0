"""Where training takes place: on a graph in memory, or on what is cut out of one that is never whole.

A batch of targets is led to the subgraphs of a game that holds them, and to their numbers there. On a graph in parts
that is a game of its own on their surroundings, as far as g sees (Eq. 12), in numbers of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from dgl_lara._util.distributed import ALONE, ProcessGroup
from dgl_lara._util.progress import log_info
from dgl_lara._util.randomness import generator
from dgl_lara.attribution.monte_carlo import Samples
from dgl_lara.attribution.shared_samples import SampleReservoir
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import encoder_graph, explainer_inputs
from dgl_lara.explainer.network import Explainer
from dgl_lara.game.game import Game
from dgl_lara.game.partitioned_game import LocalGame, PartitionedGame
from dgl_lara.game.values import to_values
from dgl_lara.training.coalition_pool import CoalitionPool
from dgl_lara.training.coalitions import CoalitionBatch, evaluate_coalitions
from dgl_lara.training.config import TrainingConfig, step_bytes
from dgl_lara.training.distributed_step import share_step
from dgl_lara.training.objective import Step
from dgl_lara.training.subgraphs import NeighborSubgraphs, Subgraphs
from dgl_lara.training.validation import make_judge, validation_subset

JUDGE_SHARE = 4  # the judge, who stays, has one part in so many of the memory
ROWS = 100_000


class Validator(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def samples(self) -> Samples | None: ...

    def score(self, explainer: Explainer) -> float: ...


class TrainingBackend(Protocol):
    judges_together: ClassVar[bool]  # several processes, all of which have a part of the answer

    def inputs_of(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """What g sees of nodes, and which rows of it are the targets'."""

    def judge(self, validation: Tensor) -> Validator: ...

    def step(
        self, explainer: Explainer, targets: Tensor, number: int, keeper: SampleReservoir | None, ranks: ProcessGroup
    ) -> Step:
        """Lines 7-10 for a batch of targets."""


class LocalBackend(ABC):
    """Where a process has all that a batch needs."""

    judges_together: ClassVar[bool] = False
    config: TrainingConfig

    @abstractmethod
    def judged(self, validation: Tensor) -> tuple[Game, EncoderGraph, Tensor]:
        """What the judge needs: a game, the graph as g sees it, and the validation targets there."""

    @abstractmethod
    def around(self, targets: Tensor) -> tuple[Subgraphs, Tensor]:
        """What a step needs, and the targets there."""

    def judge(self, validation: Tensor) -> Validator:
        return make_judge(*self.judged(validation), self.config.seed)

    def step(
        self, explainer: Explainer, targets: Tensor, number: int, keeper: SampleReservoir | None, ranks: ProcessGroup
    ) -> Step:
        return make_step(explainer, *self.around(targets), self.config, number, keeper, ranks)


@dataclass(eq=False)
class InMemory(LocalBackend):
    subgraphs: Subgraphs
    config: TrainingConfig
    pool: CoalitionPool | None = None

    def inputs_of(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        game = self.subgraphs.game
        return self.subgraphs.encoder_graph.inputs, game.task.target_nodes(game.graph, targets)

    def judged(self, validation: Tensor) -> tuple[Game, EncoderGraph, Tensor]:
        return self.subgraphs.game, self.subgraphs.encoder_graph, validation

    def around(self, targets: Tensor) -> tuple[Subgraphs, Tensor]:
        return self.subgraphs, targets

    def judge(self, validation: Tensor) -> Validator:
        if self.pool is None:
            return super().judge(validation)
        return make_judge(*self.judged(validation), self.config.seed, self.pool)

    def step(
        self, explainer: Explainer, targets: Tensor, number: int, keeper: SampleReservoir | None, ranks: ProcessGroup
    ) -> Step:
        if self.pool is None:
            return super().step(explainer, targets, number, keeper, ranks)
        heard = self.pool.of_step(number, self.config.masks)
        return step_on(explainer, self.subgraphs, heard.of(targets, targets), ranks)


@dataclass(eq=False)
class OutOfCore(LocalBackend):
    """A batch whose surroundings do not fit is halved until they do."""

    game: PartitionedGame
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
        near = self._fitting(validation_subset(validation, self.config.seed), self.game.budget.memory // JUDGE_SHARE)
        self.judges = near.game
        return near.game, self._seen(near), near.targets

    def around(self, targets: Tensor) -> tuple[Subgraphs, Tensor]:
        near = self._fitting(targets, self.game.budget.memory - self.game.budget.memory // JUDGE_SHARE)
        return NeighborSubgraphs(near.game, self._seen(near)), near.targets

    def _fitting(self, targets: Tensor, memory: int) -> LocalGame:
        game = self.game
        inner = game.context_hops < self.sight and not game.view.has_loops
        while True:
            here = game.cut(targets, self.sight, inner)
            needed = step_bytes(self.config, game.hops, game.view.columns, game.num_classes, len(here.nodes))
            if needed <= memory or len(targets) == 1:
                return game.game_on(here)
            targets = targets[: len(targets) // 2]
            if not self.halved:
                log_info(
                    f"the surroundings of a batch ({len(here.nodes):,} nodes) do not fit: such batches are halved."
                )
            self.halved = True

    def _seen(self, near: LocalGame) -> EncoderGraph:
        return encoder_graph(near.game, self.config.inputs)


def make_step(
    explainer: Explainer,
    subgraphs: Subgraphs,
    targets: Tensor,
    config: TrainingConfig,
    number: int,
    keeper: SampleReservoir | None = None,
    ranks: ProcessGroup = ALONE,
) -> Step:
    """Lines 7-10: what f says of coalitions of the batch, and what g says of the batch."""
    game, drawn = subgraphs.game, generator(config.seed * 1_000_003 + 500_000_000 + number)
    if keeper is None:
        coalitions = evaluate_coalitions(game, subgraphs.batch(targets), config.masks, drawn, ranks)
    else:  # over the whole graph f speaks of everybody; what it says of those who do not learn now is kept too
        everyone = torch.arange(game.num_targets, device=targets.device)
        heard = evaluate_coalitions(game, subgraphs.batch(everyone), config.masks, drawn, ranks)
        keeper.offer(heard.keep, to_values(heard.inside, game.value), to_values(heard.outside, game.value))
        coalitions = heard.of(targets, targets)
    return step_on(explainer, subgraphs, coalitions, ranks)


def step_on(explainer: Explainer, subgraphs: Subgraphs, coalitions: CoalitionBatch, ranks: ProcessGroup) -> Step:
    """Line 10, where f has spoken."""
    if ranks.count > 1:
        return share_step(explainer, subgraphs, coalitions, ranks)
    return Step(subgraphs.game, explainer, coalitions, subgraphs.embed(explainer, coalitions.targets))

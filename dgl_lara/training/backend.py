"""Backends of training steps: in memory, out of core, or distributed (`distributed.py`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from dgl_lara._util.distributed import ALONE, ProcessGroup
from dgl_lara._util.notices import notice
from dgl_lara._util.randomness import generator
from dgl_lara.attribution.shared_samples import SampleReservoir
from dgl_lara.explainer.inputs import encoder_graph, explainer_inputs
from dgl_lara.training.coalition_pool import CoalitionPool, evaluate_pool, pool_size
from dgl_lara.training.coalitions import CoalitionBatch, evaluate_coalitions
from dgl_lara.training.config import ALL, TrainingConfig, step_bytes
from dgl_lara.training.distributed_step import share_step
from dgl_lara.training.objective import Step
from dgl_lara.training.subgraphs import FullGraph, NeighborSubgraphs, Subgraphs
from dgl_lara.training.validation import Validator, make_validator, validation_subset

if TYPE_CHECKING:
    from dgl_lara.explainer.encoder import EncoderGraph
    from dgl_lara.explainer.network import Explainer
    from dgl_lara.game.game import Game
    from dgl_lara.game.partitioned_game import LocalGame, PartitionedGame
    from dgl_lara.training.state import TrainingState

VALIDATION_SHARE = 4  # of the memory, one part in 4 stays with the validator
INPUT_TARGETS = 100_000  # whose inputs are computed at once
MAX_KEPT_PAIRS = 2_000  # in the reservoir, by default. More hardly improve the scores and take time


class TrainingBackend(ABC):
    """Evaluates f and embeds with g for the batches of training."""

    game: Any  # a Game or a PartitionedGame
    config: TrainingConfig
    processes: ProcessGroup
    validates_together: ClassVar[bool] = False  # all processes are needed to validate

    @abstractmethod
    def encoder_inputs(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs of g, and the rows of the targets in them."""

    @abstractmethod
    def validator(self, validation: Tensor) -> Validator:
        """Evaluate f for the validation targets."""

    @abstractmethod
    def step(self, explainer: Explainer, targets: Tensor, number: int, reservoir: SampleReservoir | None) -> Step:
        """Run lines 7 to 10 of Algorithm 1 for a batch of targets."""

    def new_reservoir(self) -> SampleReservoir | None:
        """Return an empty reservoir if f's outputs for targets outside the batch can be kept."""
        return None

    def prepare(self, state: TrainingState, targets: Tensor, validation: Tensor, steps: int, resumed: bool) -> None:
        """Evaluate what all steps share, before the first one."""
        return


class _LocalBackend(TrainingBackend):
    """A backend whose processes each have everything that a batch needs."""

    @abstractmethod
    def subgraphs_of(self, targets: Tensor) -> tuple[Subgraphs, Tensor]:
        """Return what a step works on, and the indices of the targets in it."""

    def step(self, explainer: Explainer, targets: Tensor, number: int, reservoir: SampleReservoir | None) -> Step:
        subgraphs, targets = self.subgraphs_of(targets)
        coalitions = self._coalitions(subgraphs, targets, number, reservoir)  # lines 7 and 8
        if self.processes.count > 1:
            return share_step(explainer, subgraphs, coalitions, self.processes)
        return Step(subgraphs.game, explainer, coalitions, subgraphs.embed(explainer, coalitions.targets))  # line 10

    def _coalitions(
        self, subgraphs: Subgraphs, targets: Tensor, number: int, reservoir: SampleReservoir | None
    ) -> CoalitionBatch:
        game, masks = subgraphs.game, self.config.masks
        drawn = generator(self.config.seed * 1_000_003 + 500_000_000 + number)
        if reservoir is None:
            return evaluate_coalitions(game, subgraphs.batch(targets), masks, drawn, self.processes)
        # on the full graph f has an output for every target, also for those outside the batch
        every_target = torch.arange(game.num_targets, device=targets.device)
        outputs = evaluate_coalitions(game, subgraphs.batch(every_target), masks, drawn, self.processes)
        reservoir.offer(outputs.masks, outputs.responses())
        return outputs.for_targets(targets, targets)


@dataclass(eq=False)
class InMemory(_LocalBackend):
    """Training on a graph in memory.

    If a batch has all targets and masks can be shared, both subgraphs of a step are the full graph (`full_graph`).

    Args:
        game: The game to learn.
        config: Settings of training.
        processes: The processes that take every step together.
        encoder_graph: The input of g, if it is computed already.
    """

    game: Game
    config: TrainingConfig
    processes: ProcessGroup = ALONE
    encoder_graph: EncoderGraph | None = None
    pool: CoalitionPool | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        graph = encoder_graph(self.game, self.config.inputs) if self.encoder_graph is None else self.encoder_graph
        self.full_graph = self.config.batch_size == ALL and self.game.shares_masks
        self.subgraphs = (FullGraph if self.full_graph else NeighborSubgraphs)(self.game, graph)

    def encoder_inputs(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        return self.subgraphs.encoder_graph.inputs, self.game.task.target_nodes(self.game.graph, targets)

    def new_reservoir(self) -> SampleReservoir | None:
        pairs = MAX_KEPT_PAIRS if self.config.shared_pairs is None else self.config.shared_pairs
        if not self.full_graph or not pairs:
            return None
        return SampleReservoir(self.game, pairs if self.processes.is_first else 0, self.config.seed)

    def prepare(self, state: TrainingState, targets: Tensor, validation: Tensor, steps: int, resumed: bool) -> None:
        if self.full_graph and not resumed:  # the first process decides: others may have another memory budget
            first = self.processes.is_first
            pairs = pool_size(self.game, self.config, targets, validation, steps) if first else 0
            (state.pool,) = self.processes.total(pairs)
        if state.pool:
            self.pool = evaluate_pool(self.game, state.pool, targets, self.config.seed, self.processes)
            if state.reservoir and not resumed:
                self.pool.add_to(state.reservoir)

    def validator(self, validation: Tensor) -> Validator:
        return make_validator(self.game, self.subgraphs.encoder_graph, validation, self.config.seed, self.pool)

    def subgraphs_of(self, targets: Tensor) -> tuple[Subgraphs, Tensor]:
        return self.subgraphs, targets

    def _coalitions(
        self, subgraphs: Subgraphs, targets: Tensor, number: int, reservoir: SampleReservoir | None
    ) -> CoalitionBatch:
        if self.pool is None:
            return super()._coalitions(subgraphs, targets, number, reservoir)
        return self.pool.for_step(number, self.config.masks).for_targets(targets, targets)


@dataclass(eq=False)
class OutOfCore(_LocalBackend):
    """Training on a graph on disk. A step loads the subgraph around its batch.

    A batch whose subgraph does not fit the memory is halved until it does.

    Args:
        game: The game to learn.
        config: Settings of training.
        processes: The processes that take every step together.
    """

    game: PartitionedGame
    config: TrainingConfig
    processes: ProcessGroup = ALONE
    validation_game: Game | None = field(default=None, init=False)
    _notified: bool = field(default=False, init=False)

    def encoder_inputs(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        games = map(self.game.alone, targets.sort().values.split(INPUT_TARGETS))
        rows = [explainer_inputs(game, self.config.inputs) for game in games]
        return torch.cat(rows), torch.arange(len(targets))

    def validator(self, validation: Tensor) -> Validator:
        memory = self.game.budget.memory // VALIDATION_SHARE
        local = self._load(validation_subset(validation, self.config.seed), memory)
        self.validation_game = local.game
        graph = encoder_graph(local.game, self.config.inputs)
        return make_validator(local.game, graph, local.targets, self.config.seed)

    def subgraphs_of(self, targets: Tensor) -> tuple[Subgraphs, Tensor]:
        memory = self.game.budget.memory
        local = self._load(targets, memory - memory // VALIDATION_SHARE)
        return NeighborSubgraphs(local.game, encoder_graph(local.game, self.config.inputs)), local.targets

    @property
    def _receptive_hops(self) -> int:
        """Return the hops that g needs around a target, and for the degrees of all players."""
        layers = self.game.hops if self.config.layers is None else self.config.layers
        return max(self.game.hops + layers, self.game.hops + 1)

    def _load(self, targets: Tensor, memory: int) -> LocalGame:
        game = self.game
        inner = game.context_hops < self._receptive_hops and not game.source.has_loops
        while True:
            subgraph = game.source.subgraph(targets, self._receptive_hops, inner)
            nodes = len(subgraph.nodes)
            needed = step_bytes(self.config, game.hops, game.source.columns, game.num_classes, nodes)
            if needed <= memory or len(targets) == 1:
                return game.game_on(subgraph)
            targets = targets[: len(targets) // 2]
            if not self._notified:
                notice("batch.halved", nodes=nodes)
            self._notified = True

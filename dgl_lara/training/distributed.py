"""Training with one part of the graph in each process.

f is evaluated under coalitions on subgraphs around targets of a mini-batch, whose rows are fetched. g passes over the
full graph, each process over its own part (`PartGraph`), and p of players and t of targets are fetched. Every process
has the loss of the full batch, as in `distributed_step.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dgl_lara._util.randomness import generator, sample_targets
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.explainer.partitioned_graph import PartGraph
from dgl_lara.game.index import Masks
from dgl_lara.game.node_task import khop_batch
from dgl_lara.graphs.remote import RowFetcher
from dgl_lara.training.backend import TrainingBackend
from dgl_lara.training.coalitions import CoalitionBatch, evaluate_coalitions
from dgl_lara.training.distributed_step import DistributedStep
from dgl_lara.training.objective import Step
from dgl_lara.training.subgraphs import SubgraphEmbeddings
from dgl_lara.training.validation import TARGETS

if TYPE_CHECKING:
    from dgl_lara._util.distributed import ProcessGroup
    from dgl_lara.attribution.shared_samples import SampleReservoir
    from dgl_lara.explainer.network import Explainer
    from dgl_lara.game.distributed_game import DistributedGame
    from dgl_lara.game.partitioned_game import LocalGame
    from dgl_lara.training.config import TrainingConfig

MAX_NORMALISATION_TARGETS = 20_000
NUM_VALIDATION_COALITIONS = 16  # of each target


def part_graph(game: DistributedGame, kind: str) -> PartGraph:
    """Return the nodes of this part as inputs of g."""
    return PartGraph.of_part(game.source, explainer_inputs(game.near(game.source.nodes, 0).game, kind))


def fetched(game: DistributedGame, near: LocalGame, p: Tensor, t: Tensor) -> SubgraphEmbeddings:
    """Return embeddings of the targets of a subgraph and of their players, from p and t of each part."""
    players = khop_batch(near.game.graph, near.targets, game.hops).nodes
    rows = RowFetcher(game.source, near.nodes[players])(p)
    rows = rows.new_zeros(len(near.nodes), p.shape[1]).index_copy(0, players, rows)
    part = EncoderGraph.of(near.game.graph, rows.new_empty(len(rows), 0), near.game.in_degrees)
    return SubgraphEmbeddings(part, torch.arange(len(rows)), rows, RowFetcher(game.source, near.nodes[near.targets])(t))


@dataclass(frozen=True, eq=False)
class _PartitionStep(Step):
    """A step on a subgraph that has the degrees of all players, so that masks can propagate along edges."""

    num_targets: int  # targets that count, 0 without a share

    @property
    def _can_propagate(self) -> bool:
        return self.explainer.gate.supports_propagation

    def predicted_responses(self) -> Tensor:
        """Compute differences mask by mask, each again for its gradient, because their messages need most memory."""
        masks = torch.arange(len(self.coalitions.masks)).split(1)
        of_each = [checkpoint(self._under, one, self.embedded.p, self.embedded.t, use_reentrant=False) for one in masks]
        return torch.cat(of_each)[:, : self.num_targets]

    def _under(self, mask: Tensor, p: Tensor, t: Tensor) -> Tensor:
        rows = slice(int(mask), int(mask) + 1)
        alone = replace(self, coalitions=self.coalitions.for_masks(rows), embedded=replace(self.embedded, p=p, t=t))
        return Step.predicted_responses(alone)


@dataclass(frozen=True, eq=False)
class _GatheredStep(DistributedStep):
    """A step of all processes. Targets are indices in the batch, and masks are over targets only."""

    explained: Tensor
    joined_responses: Tensor  # every process draws masks, and their probabilities, of its own

    def responses(self) -> Tensor:
        return self.joined_responses

    @property
    def classes(self) -> Tensor:
        return self.explained


@dataclass(frozen=True, eq=False)
class BatchShare:
    """The share of this process in a batch, with logits under its coalitions, and its position in the batch."""

    near: LocalGame
    coalitions: CoalitionBatch
    mine: slice
    total: int

    @staticmethod
    def on(game: DistributedGame, targets: Tensor, masks: int, drawn: torch.Generator) -> BatchShare:
        mine = game.ranks.share(len(targets))
        # a process without a share computes the first target, because the others wait for its rows
        chosen = targets[mine] if mine.stop > mine.start else targets[:1]
        local = game.around(chosen)
        coalitions = _ask_about(game.game_on(local), masks, drawn)
        return BatchShare(game.game_on(local, calls_f=False), coalitions, mine, len(targets))

    def step(self, across: DistributedGame, explainer: Explainer, part: PartGraph) -> _GatheredStep:
        local, game, ranks = self.coalitions, self.near.game, across.ranks
        num_targets = self.mine.stop - self.mine.start
        own = _PartitionStep(game, explainer, local, fetched(across, self.near, *explainer(part)), num_targets)

        def joined(rows: Tensor, dim: int = 1) -> Tensor:
            return ranks.joined(rows.narrow(dim, 0, num_targets), self.mine, self.total, dim)

        numbers = torch.arange(self.total)
        masks = Masks(joined(local.contains(local.targets).to(torch.uint8)).bool(), local.masks.probability)
        values = (joined(local.inside), joined(local.outside), joined(local.full, 0), joined(local.empty, 0))
        gathered = CoalitionBatch(game, numbers, numbers, masks, *values)
        classes, responses = joined(game.explained_class[local.targets], 0), joined(local.responses())
        return _GatheredStep(game, explainer, gathered, own.embedded, ranks, own, self.mine, 1, classes, responses)


def _ask_about(near: LocalGame, masks: int, drawn: torch.Generator) -> CoalitionBatch:
    """Evaluate coalitions. Features are kept for as long as f is called."""
    return evaluate_coalitions(
        near.game, near.game.player_set.batch(near.targets, near.game.context_hops), masks, drawn
    )


@dataclass(eq=False)
class DistributedBackend(TrainingBackend):
    """The training backend of all processes together."""

    validates_together: ClassVar[bool] = True
    game: DistributedGame
    config: TrainingConfig

    @property
    def processes(self) -> ProcessGroup:  # type: ignore[override]
        return self.game.ranks

    @cached_property
    def part(self) -> PartGraph:
        return part_graph(self.game, self.config.inputs)

    def encoder_inputs(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        rows = RowFetcher(self.game.source, sample_targets(targets, MAX_NORMALISATION_TARGETS, self.config.seed))(
            self.part.inputs
        )
        return rows, torch.arange(len(rows))

    def validator(self, validation: Tensor) -> _DistributedValidator:
        chosen = sample_targets(validation, TARGETS, self.config.seed + 77)
        return _DistributedValidator(self, BatchShare.on(self.game, chosen, NUM_VALIDATION_COALITIONS, self._drawn(77)))

    def step(self, explainer: Explainer, targets: Tensor, number: int, reservoir: SampleReservoir | None) -> Step:
        share = BatchShare.on(self.game, targets, self.config.masks, self._drawn(number + 1000))
        return share.step(self.game, explainer, self.part)

    def _drawn(self, number: int) -> torch.Generator:
        """Return a generator, a different one in each process, because each draws coalitions of its own targets."""
        ranks = self.game.ranks
        return generator((self.config.seed * 1_000_003 + 500_000_000 + number) * ranks.count + ranks.rank)


@dataclass(frozen=True, eq=False)
class _DistributedValidator:
    """The share of d(S)'s variation under unseen coalitions of validation targets that the scores explain."""

    name: ClassVar[str] = "share of the model's variation under unseen coalitions that the scores explain"
    samples: ClassVar[None] = None  # too few to estimate phi
    backend: DistributedBackend
    share: BatchShare

    def score(self, explainer: Explainer) -> float:
        with torch.no_grad():
            step = self.share.step(self.backend.game, explainer, self.backend.part)
            predicted, expected = step.predicted_responses(), step.of_explained_class(step.responses())
        if explainer.class_weight is not None:
            predicted = step.of_explained_class(predicted)
        return 1 - float((expected - predicted).square().sum() / expected.square().sum().clamp(min=1e-12))

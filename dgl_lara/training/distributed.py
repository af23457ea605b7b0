"""Training where each process holds one part of the graph.

f is asked about coalitions on what is cut out around targets, K + 1 hops of a mini-batch, whose rows come from whoever
has them. g passes over the whole graph, each process over its own part (`PartGraph`), and the p of players and t of
targets that a step needs are fetched. Every process has the loss of the whole batch, as in `shared_step.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dgl_lara._util.distributed import ProcessGroup
from dgl_lara._util.randomness import generator, sample_targets
from dgl_lara.attribution.shared_samples import SampleReservoir
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.explainer.network import Explainer
from dgl_lara.explainer.partitioned_graph import PartGraph
from dgl_lara.game.distributed_game import DistributedGame
from dgl_lara.game.node_task import khop_batch
from dgl_lara.game.partitioned_game import LocalGame
from dgl_lara.graphs.remote import RowFetcher
from dgl_lara.training.backend import TrainingBackend
from dgl_lara.training.coalitions import CoalitionBatch, evaluate_coalitions
from dgl_lara.training.config import TrainingConfig
from dgl_lara.training.distributed_step import DistributedStep
from dgl_lara.training.objective import Step
from dgl_lara.training.subgraphs import SubgraphEmbeddings
from dgl_lara.training.validation import TARGETS

ENOUGH = 20_000  # targets from which the normalisation of g's inputs is read
COALITIONS = 16  # of each validation target


def part_graph(game: DistributedGame, kind: str) -> PartGraph:
    """The nodes of this part as g sees them."""
    return PartGraph.of_part(game.view, explainer_inputs(game.near(game.view.nodes, 0).game, kind))


def fetched(game: DistributedGame, near: LocalGame, p: Tensor, t: Tensor) -> SubgraphEmbeddings:
    """What g says of a cut's targets and their players, from p and t of each part."""
    players = khop_batch(near.game.graph, near.targets, game.hops).nodes
    rows = RowFetcher(game.view, near.nodes[players])(p)
    rows = rows.new_zeros(len(near.nodes), p.shape[1]).index_copy(0, players, rows)
    seen = EncoderGraph.of(near.game.graph, rows.new_empty(len(rows), 0), near.game.in_degrees)
    return SubgraphEmbeddings(seen, torch.arange(len(rows)), rows, RowFetcher(game.view, near.nodes[near.targets])(t))


@dataclass(frozen=True, eq=False)
class PartitionStep(Step):
    """A step on a cut that holds the degrees of all players, so that whoever carries can walk."""

    many: int  # of its targets that count

    @property
    def _can_propagate(self) -> bool:
        return self.explainer.gate.supports_propagation

    def predicted_differences(self) -> Tensor:
        """One mask after the other, each walked a second time for its gradient: what all of them carry along the edges
        of a cut that may be half the graph would be most of what a process holds."""
        masks = torch.arange(len(self.coalitions.keep)).split(1)
        of_each = [checkpoint(self._under, one, self.embedded.p, self.embedded.t, use_reentrant=False) for one in masks]
        return torch.cat(of_each)[:, : self.many]

    def _under(self, mask: Tensor, p: Tensor, t: Tensor) -> Tensor:
        rows = slice(int(mask), int(mask) + 1)
        alone = replace(self, coalitions=self.coalitions.for_masks(rows), embedded=replace(self.embedded, p=p, t=t))
        return Step.predicted_differences(alone)


@dataclass(frozen=True, eq=False)
class GatheredStep(DistributedStep):
    """Targets are numbered by their places in the batch, and masks speak of the targets alone."""

    explained: Tensor

    @property
    def classes(self) -> Tensor:
        return self.explained


@dataclass(frozen=True, eq=False)
class BatchShare:
    """This process's share of a batch, what f said of it, and where it stands in the batch."""

    near: LocalGame
    coalitions: CoalitionBatch
    mine: slice
    total: int

    @staticmethod
    def on(game: DistributedGame, targets: Tensor, masks: int, drawn: torch.Generator) -> BatchShare:
        mine = game.ranks.share(len(targets))
        # a process without a share goes through the motions with the first target: the others wait for its rows
        few = targets[mine] if mine.stop > mine.start else targets[:1]
        here = game.around(few)
        coalitions = ask_about(game.game_on(here), masks, drawn)
        return BatchShare(game.game_on(here, f_is_asked=False), coalitions, mine, len(targets))

    def step(self, across: DistributedGame, explainer: Explainer, seen: PartGraph) -> GatheredStep:
        here, game, ranks = self.coalitions, self.near.game, across.ranks
        many = self.mine.stop - self.mine.start
        own = PartitionStep(game, explainer, here, fetched(across, self.near, *explainer(seen)), many)

        def joined(rows: Tensor, dim: int = 1) -> Tensor:
            return ranks.joined(rows.narrow(dim, 0, many), self.mine, self.total, dim)

        numbers = torch.arange(self.total)
        keep = joined((here.sigma(here.targets) > 0).to(torch.uint8)).bool()
        everybody = CoalitionBatch(numbers, numbers, keep, joined(here.inside), joined(here.outside))
        classes = joined(game.explained_class[here.targets], 0)
        return GatheredStep(game, explainer, everybody, own.embedded, ranks, own, self.mine, 1, classes)


def ask_about(near: LocalGame, masks: int, drawn: torch.Generator) -> CoalitionBatch:
    """Features are held for as long as f is asked."""
    return evaluate_coalitions(
        near.game, near.game.player_set.batch(near.targets, near.game.context_hops), masks, drawn
    )


@dataclass(eq=False)
class DistributedBackend(TrainingBackend):
    """The ground of all processes at once."""

    validates_together: ClassVar[bool] = True
    game: DistributedGame
    config: TrainingConfig

    @property
    def processes(self) -> ProcessGroup:  # type: ignore[override]
        return self.game.ranks

    @cached_property
    def seen(self) -> PartGraph:
        return part_graph(self.game, self.config.inputs)

    def encoder_inputs(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        rows = RowFetcher(self.game.view, sample_targets(targets, ENOUGH, self.config.seed))(self.seen.inputs)
        return rows, torch.arange(len(rows))

    def validator(self, validation: Tensor) -> DistributedValidator:
        chosen = sample_targets(validation, TARGETS, self.config.seed + 77)
        return DistributedValidator(self, BatchShare.on(self.game, chosen, COALITIONS, self._drawn(77)))

    def step(self, explainer: Explainer, targets: Tensor, number: int, reservoir: SampleReservoir | None) -> Step:
        lesson = BatchShare.on(self.game, targets, self.config.masks, self._drawn(number + 1000))
        return lesson.step(self.game, explainer, self.seen)

    def _drawn(self, number: int) -> torch.Generator:
        """Each process draws coalitions of its own targets."""
        ranks = self.game.ranks
        return generator((self.config.seed * 1_000_003 + 500_000_000 + number) * ranks.count + ranks.rank)


@dataclass(frozen=True, eq=False)
class DistributedValidator:
    """The share of d(S)'s variation under unseen coalitions of validation targets that the scores explain."""

    name: ClassVar[str] = "share of the model's variation under unseen coalitions that the scores explain"
    samples: ClassVar[None] = None  # too few to say anything of phi
    ground: DistributedBackend
    lesson: BatchShare

    def score(self, explainer: Explainer) -> float:
        with torch.no_grad():
            step = self.lesson.step(self.ground.game, explainer, self.ground.seen)
            predicted, wanted = step.predicted_differences(), step.of_explained_class(step.differences())
        if explainer.class_weight is not None:
            predicted = step.of_explained_class(predicted)
        return 1 - float((wanted - predicted).square().sum() / wanted.square().sum().clamp(min=1e-12))

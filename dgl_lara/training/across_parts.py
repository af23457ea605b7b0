"""Training where each process holds one part of the graph.

f is asked about coalitions on what is cut out around targets, K + 1 hops of a mini-batch, whose rows come from whoever
has them. g passes over the whole graph, each process over its own part (`PartGraph`), and the p of players and t of
targets that a step needs are fetched. Every process has the loss of the whole batch, as in `shared_step.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.explainer.network import Explainer
from dgl_lara.explainer.part_graph import PartGraph
from dgl_lara.game.game import Game
from dgl_lara.game.node_task import khop_batch
from dgl_lara.parts.exchanged import Routes
from dgl_lara.parts.game_across import GameAcross
from dgl_lara.parts.game_in_parts import Near
from dgl_lara.training.coalitions import CoalitionBatch, evaluate_coalitions
from dgl_lara.training.config import TrainingConfig
from dgl_lara.training.loop import (
    Plan,
    check_finite,
    kept_if_others_are_lost,
    learning_rate,
    new_explainer,
    update,
)
from dgl_lara.training.objective import Step
from dgl_lara.training.objectives import OBJECTIVES
from dgl_lara.training.shared_step import SharedStep
from dgl_lara.training.state import TrainingState
from dgl_lara.training.subgraphs import Embedded, target_batches
from dgl_lara.training.validation import TARGETS
from dgl_lara.utils.interrupts import held_back_interrupts
from dgl_lara.utils.progress import Progress
from dgl_lara.utils.randomness import generator, some_targets
from dgl_lara.utils.ranks import Ranks

ENOUGH = 20_000  # targets from which the normalisation of g's inputs is read
COALITIONS = 16  # of each validation target


def part_graph(game: GameAcross, kind: str) -> PartGraph:
    """The nodes of this part as g sees them."""
    return PartGraph.of_part(game.view, explainer_inputs(game.near(game.view.nodes, 0).game, kind))


def fetched(game: GameAcross, near: Near, p: Tensor, t: Tensor) -> Embedded:
    """What g says of a cut's targets and their players, from p and t of each part."""
    players = khop_batch(near.game.graph, near.targets, game.hops).nodes
    rows = Routes(game.view, near.nodes[players])(p)
    rows = rows.new_zeros(len(near.nodes), p.shape[1]).index_copy(0, players, rows)
    seen = EncoderGraph.of(near.game.graph, rows.new_empty(len(rows), 0), near.game.in_degrees)
    return Embedded(seen, torch.arange(len(rows)), rows, Routes(game.view, near.nodes[near.targets])(t))


@dataclass(frozen=True, eq=False)
class CutStep(Step):
    """A step on a cut that holds the degrees of all players, so that whoever carries can walk."""

    many: int  # of its targets that count

    @property
    def _can_walk(self) -> bool:
        return self.explainer.gate.carries

    def predicted_differences(self) -> Tensor:
        return super().predicted_differences()[:, : self.many]


@dataclass(frozen=True, eq=False)
class JointStep(SharedStep):
    """Targets are numbered by their places in the batch, and masks speak of the targets alone."""

    explained: Tensor

    @property
    def classes(self) -> Tensor:
        return self.explained


@dataclass(frozen=True, eq=False)
class Lesson:
    """This process's share of a batch, what f said of it, and where it stands in the batch."""

    near: Near
    coalitions: CoalitionBatch
    mine: slice
    total: int

    @staticmethod
    def on(game: GameAcross, targets: Tensor, masks: int, drawn: torch.Generator) -> Lesson:
        mine = game.ranks.share(len(targets))
        # a process without a share goes through the motions with the first target: the others wait for its rows
        few = targets[mine] if mine.stop > mine.start else targets[:1]
        near = game.around(few)
        batch = near.game.kind.batch(near.targets, game.context)
        return Lesson(near, evaluate_coalitions(near.game, batch, masks, drawn), mine, len(targets))

    def step(self, across: GameAcross, explainer: Explainer, seen: PartGraph) -> JointStep:
        here, game, ranks = self.coalitions, self.near.game, across.ranks
        many = self.mine.stop - self.mine.start
        own = CutStep(game, explainer, here, fetched(across, self.near, *explainer(seen)), many)

        def joined(rows: Tensor, dim: int = 1) -> Tensor:
            return ranks.joined(rows.narrow(dim, 0, many), self.mine, self.total, dim)

        numbers = torch.arange(self.total)
        keep = joined((here.sigma(here.targets) > 0).to(torch.uint8)).bool()
        everybody = CoalitionBatch(numbers, numbers, keep, joined(here.inside), joined(here.outside))
        classes = joined(game.explained_class[here.targets], 0)
        return JointStep(game, explainer, everybody, own.embedded, ranks, own, self.mine, 1, classes)


class JudgeAcross:
    """The share of d(S)'s variation under unseen coalitions of validation targets that the scores explain."""

    name = "share of f's variation under unseen coalitions that the scores explain"

    def __init__(self, game: GameAcross, validation: Tensor, seed: int) -> None:
        self.game, chosen = game, some_targets(validation, TARGETS, seed + 77)
        self.lesson = Lesson.on(game, chosen, COALITIONS, drawn(seed, 77, game.ranks))

    def score(self, explainer: Explainer, seen: PartGraph) -> float:
        with torch.no_grad():
            step = self.lesson.step(self.game, explainer, seen)
            predicted, wanted = step.predicted_differences(), step.of_explained_class(step.differences())
        if explainer.class_weight is not None:
            predicted = step.of_explained_class(predicted)
        return 1 - float((wanted - predicted).square().sum() / wanted.square().sum().clamp(min=1e-12))


def drawn(seed: int, number: int, ranks: Ranks) -> torch.Generator:
    """Each process draws coalitions of its own targets."""
    return generator((seed * 1_000_003 + 500_000_000 + number) * ranks.count + ranks.rank)


def train_across(
    game: GameAcross,
    config: TrainingConfig,
    targets: Tensor,
    validation: Tensor,
    resume: dict | None = None,
    checkpoint: Callable[[TrainingState], None] = lambda state: None,
) -> TrainingState:
    """As `loop.train`, in all processes at once; the first one's `checkpoint` is called."""
    ranks = game.ranks
    targets = some_targets(targets, config.targets or len(targets), config.seed)
    seen = part_graph(game, config.inputs)
    rows = Routes(game.view, some_targets(targets, ENOUGH, config.seed))(seen.inputs)
    explainer = new_explainer(cast(Game, game), config, rows, torch.arange(len(rows)))
    optimiser = torch.optim.Adam(explainer.parameters(), lr=config.lr)
    state = TrainingState(0, explainer, copy.deepcopy(explainer).requires_grad_(False), optimiser)
    if resume:
        state.load_dict(resume)
    judge = JudgeAcross(game, validation, config.seed)
    state.judged_by = judge.name
    objective, plan = OBJECTIVES[config.objective], Plan.of(config, len(targets))
    asked_before = state.nodes_asked
    bar = Progress(range(state.step, plan.total), "training explainer", done=state.step, unit="step")
    batches: list[Tensor] = []
    with held_back_interrupts() as asked, kept_if_others_are_lost(state, checkpoint, ranks):
        for number in bar:
            epoch, place = divmod(number, plan.steps_an_epoch)
            if not batches or place == 0:
                batches = list(target_batches(targets, plan.size, config.seed, epoch))
            lesson = Lesson.on(game, batches[place], config.masks, drawn(config.seed, number + 1000, ranks))
            step = lesson.step(game, state.explainer, seen)
            loss = update(state, objective, step, config, learning_rate(config, number, plan.total), ranks)
            stop, given = ranks.total(len(asked), lesson.near.game.nodes_asked)
            asked_before += given
            state.nodes_asked = asked_before
            if plan.is_check(state.step):
                agreement = judge.score(state.average, seen)
                check_finite(agreement, state, config)
                if agreement > state.best or not state.best_weights:
                    state.best, state.best_weights = agreement, copy.deepcopy(state.average.state_dict())
                state.history.append({"step": state.step, "epoch": epoch + 1, "loss": loss, "agreement": agreement})
                if ranks.is_first:
                    checkpoint(state)
            bar.note(loss=loss, **({"agreement": state.history[-1]["agreement"]} if state.history else {}))
            if stop:
                if ranks.is_first:
                    checkpoint(state)
                raise KeyboardInterrupt
    return state

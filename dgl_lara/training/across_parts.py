"""Training where each process holds one part of the graph.

f is asked about coalitions on what is cut out around targets, K + 1 hops of a mini-batch, whose rows come from whoever
has them. g passes over the whole graph, each process over its own part (`PartGraph`), and the p of players and t of
targets that a step needs are fetched. Every process has the loss of the whole batch, as in `shared_step.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import dgl
import torch
from torch import Tensor

from dgl_lara.errors import InputError
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.explainer.network import Explainer
from dgl_lara.explainer.part_graph import PartGraph
from dgl_lara.game.budget import Budget
from dgl_lara.game.game import CHECKED, Game
from dgl_lara.game.hops import spread_out
from dgl_lara.game.node_task import khop_batch
from dgl_lara.game.players import find
from dgl_lara.game.tasks import NODE
from dgl_lara.game.value import to_values
from dgl_lara.model import blackbox
from dgl_lara.model.blackbox import Model
from dgl_lara.model.evaluating import evaluating
from dgl_lara.parts.cutting import cut
from dgl_lara.parts.exchanged import Exchanged, Routes
from dgl_lara.training.coalitions import CoalitionBatch, evaluate_coalitions
from dgl_lara.training.config import ALL, MINI_BATCHES, TrainingConfig
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
from dgl_lara.utils.progress import Progress, working
from dgl_lara.utils.randomness import generator, some_targets
from dgl_lara.utils.ranks import Ranks

ENOUGH = 20_000  # targets from which the normalisation of g's inputs is read
COALITIONS = 16  # of each validation target


@dataclass(frozen=True, eq=False)
class Near:
    """What is cut out around some targets, in numbers of its own."""

    game: Game
    nodes: Tensor  # (num_local,) which nodes of the graph those are, rising
    places: Tensor  # (num_targets,) the targets among them


class AcrossParts:
    """A graph of which each process holds a part, and f on it. Whatever is asked of it all processes ask at once."""

    def __init__(self, f: Model, view: Exchanged, hops: int, value: str, memory: int | None = None) -> None:
        self.f, self.view, self.hops, self.value = f, view, hops, value
        self.ranks: Ranks = view.ranks
        self.budget = Budget.of(memory)
        some = spread_out(view.num_nodes, CHECKED, torch.device("cpu"))
        here = cut(view, some, hops + 1)
        features = view.features(here.nodes)
        with working("asking the model about a few nodes"):
            said = blackbox.untouched(f, here.graph, features, len(here.nodes), NODE.name)
            known = here.places.sort().values
            where = (f, here.graph, features, NODE, hops, value, said)
            self.probe = Game(*where, known=known, memory=self.budget.memory, edge_data=False)
        self.context = self.probe.context
        if self.context > hops + 1:
            raise InputError(
                f"the model needs {self.context} hops around a node, more than the {hops + 1} that are cut out of a "
                "graph in parts."
            )

    # --- what is known of the nodes of this part

    @cached_property
    def answer(self) -> Tensor:
        """(nodes of the part, columns): what f says of the untouched graph."""
        own = self.view.nodes
        size = max(64, self.budget.nodes_a_call(self.view.columns) // 8)
        rounds = max(-(-part["nodes"] // size) for part in self.view.meta.parts)
        parts = []
        with evaluating(self.f):
            for number in Progress(range(rounds), "asking the model about every node", unit="batch"):
                here = cut(self.view, own[number * size : (number + 1) * size], self.context)
                features = self.view.features(here.nodes)
                if len(here.nodes):
                    parts.append(blackbox.call(self.f, here.graph, features, len(here.nodes), NODE.name)[here.places])
        return torch.cat(parts)

    @cached_property
    def unit(self) -> float:
        """As `Game.unit`, over all parts."""
        full = to_values(self.probe._spread(self.answer), self.probe.value)
        squares = (full - self.probe.null).double().square().sum()
        total = self.ranks.summed(squares) / (self.view.num_nodes * self.probe.num_classes)
        return max(float(total) ** 0.5, 1e-6)

    def seen(self, kind: str) -> PartGraph:
        """The nodes of this part as g sees them."""
        own = self.view.nodes
        indptr, sources = self.view.own.in_edges(own)
        others = torch.unique(sources)
        # a stand-in in which the nodes of the part have their features, answers and degrees; the rest is not looked at
        place, count = torch.arange(len(own)), len(own) + len(others)
        entering = place.repeat_interleave(indptr.diff())
        from_ = torch.where(sources == own[entering], entering, len(own) + find(sources, others)[0])
        graph = dgl.graph((from_, entering), num_nodes=count)
        features = torch.zeros(count, self.view.columns)
        features[: len(own)] = self.view.own.features(own)
        answer = torch.zeros(count, self.answer.shape[1])
        answer[: len(own)] = self.answer
        game = self._game(graph, features, answer)
        return PartGraph.of_part(self.view, explainer_inputs(game, kind, place))

    def _game(self, graph: dgl.DGLGraph, features: Tensor, answer: Tensor) -> Game:
        where = (self.f, graph, features, NODE, self.hops, self.value, answer)
        return Game(*where, memory=self.budget.memory, edge_data=False, context=self.context)

    # --- around targets

    def near(self, targets: Tensor) -> Near:
        """K + 1 hops: all that f needs, and the degrees of all players."""
        here = cut(self.view, targets, self.hops + 1)
        answer = Routes(self.view, here.nodes)(self.answer)
        return Near(self._game(here.graph, self.view.features(here.nodes), answer), here.nodes, here.places)

    def embedded(self, near: Near, p: Tensor, t: Tensor) -> Embedded:
        """Of a cut's targets and their players, from p and t of each part."""
        players = khop_batch(near.game.graph, near.places, self.hops).nodes
        fetched = Routes(self.view, near.nodes[players])(p)
        rows = fetched.new_zeros(len(near.nodes), p.shape[1]).index_copy(0, players, fetched)
        graph = EncoderGraph.of(near.game.graph, rows.new_empty(len(rows), 0))
        return Embedded(graph, torch.arange(len(rows)), rows, Routes(self.view, near.nodes[near.places])(t))


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
    def on(across: AcrossParts, targets: Tensor, masks: int, drawn: torch.Generator) -> Lesson:
        mine = across.ranks.share(len(targets))
        # a process without a share goes through the motions with the first target: the others wait for its rows
        few = targets[mine] if mine.stop > mine.start else targets[:1]
        near = across.near(few)
        batch = near.game.kind.batch(near.places, across.context)
        return Lesson(near, evaluate_coalitions(near.game, batch, masks, drawn), mine, len(targets))

    def step(self, across: AcrossParts, explainer: Explainer, seen: PartGraph) -> JointStep:
        here, game, ranks = self.coalitions, self.near.game, across.ranks
        many = self.mine.stop - self.mine.start
        own = CutStep(game, explainer, here, across.embedded(self.near, *explainer(seen)), many)

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

    def __init__(self, across: AcrossParts, validation: Tensor, seed: int) -> None:
        chosen = some_targets(validation, TARGETS, seed + 77)
        self.across = across
        self.lesson = Lesson.on(across, chosen, COALITIONS, _drawn(seed, 77, across.ranks))

    def score(self, explainer: Explainer, seen: PartGraph) -> float:
        with torch.no_grad():
            step = self.lesson.step(self.across, explainer, seen)
            predicted, wanted = step.predicted_differences(), step.of_explained_class(step.differences())
        if explainer.class_weight is not None:
            predicted = step.of_explained_class(predicted)
        return 1 - float((wanted - predicted).square().sum() / wanted.square().sum().clamp(min=1e-12))


def _drawn(seed: int, number: int, ranks: Ranks) -> torch.Generator:
    """Each process draws coalitions of its own targets."""
    return generator((seed * 1_000_003 + 500_000_000 + number) * ranks.count + ranks.rank)


def within_parts(config: TrainingConfig, given: tuple[str, ...] = ()) -> TrainingConfig:
    """Mini-batches, and objectives that keep nothing of single targets."""
    if OBJECTIVES[config.objective].keeps:
        raise InputError(
            f"a graph in parts is learned from with --objective balanced or least-squares (got {config.objective})."
        )
    if config.batch_size != ALL:
        return config
    return replace(config, **{name: value for name, value in MINI_BATCHES.items() if name not in given})


def train_across(
    across: AcrossParts,
    config: TrainingConfig,
    targets: Tensor,
    validation: Tensor,
    resume: dict | None = None,
    checkpoint: Callable[[TrainingState], None] = lambda state: None,
) -> TrainingState:
    """As `loop.train`, in all processes at once; the first one's `checkpoint` is called."""
    ranks, probe = across.ranks, across.probe
    targets = some_targets(targets, config.targets or len(targets), config.seed)
    seen = across.seen(config.inputs)
    vars(probe)["unit"] = across.unit
    rows = Routes(across.view, some_targets(targets, ENOUGH, config.seed))(seen.inputs)
    explainer = new_explainer(probe, config, rows, torch.arange(len(rows)))
    optimiser = torch.optim.Adam(explainer.parameters(), lr=config.lr)
    state = TrainingState(0, explainer, copy.deepcopy(explainer).requires_grad_(False), optimiser)
    if resume:
        state.load_dict(resume)
    judge = JudgeAcross(across, validation, config.seed)
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
            lesson = Lesson.on(across, batches[place], config.masks, _drawn(config.seed, number + 1000, ranks))
            step = lesson.step(across, state.explainer, seen)
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

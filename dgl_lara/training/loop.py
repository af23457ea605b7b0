"""Alg. 1: training the explainer g.

    while not converged                                    train()
        sample a mini-batch of targets (line 6)            subgraphs.target_batches
        sample their K-hop subgraph (line 7, Eq. 11)       subgraphs.batch
        estimate the attribution (line 8, Eq. 9, 10)       coalitions.evaluate_coalitions, attribution_table
        sample their 2K-hop subgraph (line 10, Eq. 12)     subgraphs.embed
        update g (line 11, Eq. 8)                          objectives/

A batch of all targets is the full-graph mode: both subgraphs are the whole graph, and one random mask is a coalition
for every target at once; where players are few, all steps share a pool of masks (`pool.py`). Every random choice
depends on (seed, step) only, so a resumed run repeats an unbroken one.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara._util.distributed import ALONE, ProcessGroup, ProcessLost
from dgl_lara._util.interrupts import held_back_interrupts
from dgl_lara._util.progress import Progress, log_info, phase, working
from dgl_lara._util.randomness import sample_targets, seeded
from dgl_lara.attribution.monte_carlo import Samples
from dgl_lara.attribution.shared_samples import SampleReservoir
from dgl_lara.errors import LaraError, ModelError
from dgl_lara.explainer.decoders import DECODERS
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import encoder_graph, fit_normalisation
from dgl_lara.explainer.network import Explainer, ExplainerConfig
from dgl_lara.game.game import Game
from dgl_lara.training.backend import InMemory, TrainingBackend
from dgl_lara.training.coalition_pool import ask_pool, pool_size
from dgl_lara.training.config import ALL, TrainingConfig
from dgl_lara.training.objective import Objective, Step
from dgl_lara.training.objectives import OBJECTIVES
from dgl_lara.training.state import TrainingState
from dgl_lara.training.subgraphs import FullGraph, NeighborSubgraphs, target_batches
from dgl_lara.training.validation import AttributionValidator

TOO_LITTLE_MOVES = (
    "note: of the validation targets the true attribution can hardly be told from noise: agreement says little."
)
CHECKS = 20  # times that g is judged
MOST_KEPT = 2_000  # pairs of shared coalitions, unless told otherwise; more make the scores hardly better, but slower


def new_explainer(game: Game, config: TrainingConfig, inputs: Tensor, train_nodes: Tensor) -> Explainer:
    """g with random weights; its input normalisation and its unit come from the training targets."""
    shape = ExplainerConfig(
        task=game.task.name,
        in_dim=inputs.shape[1],
        num_classes=game.num_classes,
        hops=game.hops,
        layers=game.hops if config.layers is None else config.layers,
        hidden=config.hidden,
        dim=config.dim,
        gate=config.gate if game.task.has_distances else "none",
        embedding=config.embedding,
        encoder=config.encoder,
        all_classes=config.all_classes and OBJECTIVES[config.objective].every_class,
        **DECODERS[game.player_set.name].shape(game),
    )
    # weights, gradients, Adam's two moments, the average and the best so far, twice
    game.budget.check(28 * shape.num_weights, f"an explainer with {shape.num_weights:,} weights")
    with seeded(config.seed):
        explainer = Explainer(shape).to(inputs.device)
    explainer.form.prepare(explainer, game)
    if config.inputs == "rich":
        fit_normalisation(explainer, inputs[train_nodes], None if game.types is None else inputs)
        explainer.unit.fill_(game.value_scale)
    return explainer


@dataclass(frozen=True)
class Schedule:
    """How long training takes: epochs of batches, and when g is judged."""

    size: int  # targets a batch
    steps_an_epoch: int
    total: int

    @staticmethod
    def of(config: TrainingConfig, num_targets: int) -> Schedule:
        size = num_targets if config.batch_size == ALL else config.batch_size
        an_epoch = -(-num_targets // size)
        return Schedule(size, an_epoch, (config.epochs or -(-config.steps // an_epoch)) * an_epoch)

    def is_check(self, step: int) -> bool:
        return step % max(1, self.total // CHECKS) == 0 or step == self.total

    def checks_after(self, step: int) -> int:
        return sum(map(self.is_check, range(step + 1, self.total + 1)))


def train(
    game: Game,
    config: TrainingConfig,
    targets: Tensor,
    validation: Tensor,
    resume: dict | None = None,
    checkpoint: Callable[[TrainingState], None] = lambda state: None,
    seen: EncoderGraph | None = None,
    ranks: ProcessGroup = ALONE,
    ground: TrainingBackend | None = None,
) -> TrainingState:
    """Train g on `targets`; the best weights by agreement on `validation` are kept in the state.

    Args:
        game: What is explained.
        config: Every choice of the training.
        targets: Nodes (or graphs) to learn from; their labels are never used.
        validation: Those on which g is judged.
        resume: What an earlier state's `to_dict` gave.
        checkpoint: Called with the state whenever g has been judged, and when training is interrupted.
        seen: The whole graph as g sees it, where that is at hand.
        ranks: The processes that take every step together; the first of them judges, keeps and stores.
        ground: Where the steps take place, if not on the whole graph.

    Returns:
        The state after the last step; `state.best_explainer()` is the trained g.
    """
    targets = sample_targets(targets, config.targets or len(targets), config.seed)
    whole = config.batch_size == ALL and game.task.has_distances and game.player_set.supports_shared_masks
    if ground is None:
        seen = encoder_graph(game, config.inputs) if seen is None else seen
        ground = InMemory((FullGraph if whole else NeighborSubgraphs)(game, seen), config)
    explainer = new_explainer(game, config, *ground.inputs_of(targets))
    with working("setting up the optimiser"):  # the first one of a process loads much of torch
        optimiser = torch.optim.Adam(explainer.parameters(), lr=config.lr)
    state = TrainingState(0, explainer, copy.deepcopy(explainer).requires_grad_(False), optimiser)
    objective = OBJECTIVES[config.objective]
    state.table = objective.table(game, targets)
    most = MOST_KEPT if config.shared_pairs is None else config.shared_pairs
    state.keeper = SampleReservoir(game, most if ranks.is_first else 0, config.seed) if whole and most else None
    if resume:
        state.load_dict(resume if ranks.is_first else {**resume, "shared": None})
    asked_before, asked_elsewhere = state.nodes_asked, game.nodes_evaluated
    plan = Schedule.of(config, len(targets))
    if resume and ranks.is_first and state.step <= plan.total:
        state.went_on_from = state.step
        log_info(went_on(state.step, plan.total))
    if whole and not resume:  # of several processes the first one decides: they need not have as much memory
        pairs = pool_size(game, config, targets, validation, plan.total) if ranks.is_first else 0
        (state.pool,) = ranks.total(pairs)
    if state.pool and isinstance(ground, InMemory):
        ground.pool = ask_pool(game, state.pool, targets, config.seed, ranks)
        if state.keeper and not resume:
            ground.pool.show(state.keeper)
    judge = None
    if ranks.is_first or ground.judges_together:
        with phase("preparing to measure how good the explainer is"):
            judge = ground.judge(validation)
        state.judged_by, state.judging = judge.name, judge.samples
        check_it_moves(game, judge.samples)
        if isinstance(judge, AttributionValidator) and not judge.is_clear and ranks.is_first:
            log_info(TOO_LITTLE_MOVES)

    if state.step > plan.total:
        raise LaraError(f"the checkpoint is at step {state.step}, beyond the {plan.total} that the settings ask for.")

    bar = Progress(range(state.step, plan.total), "training explainer", done=state.step, unit="step")
    batches: list[Tensor] = []
    with held_back_interrupts() as asked, kept_if_others_are_lost(state, checkpoint, ranks):
        for number in bar:
            epoch, place = divmod(number, plan.steps_an_epoch)
            if not batches or place == 0:
                batches = list(target_batches(targets, plan.size, config.seed, epoch))
            step = ground.step(state.explainer, batches[place], number, state.keeper, ranks)
            loss = update(state, objective, step, config, learning_rate(config, number, plan.total), ranks)
            del step  # what it holds of the graph is not needed beside that of the next
            stop, given = ranks.total(len(asked), game.nodes_evaluated - asked_elsewhere)
            state.nodes_asked = asked_before + given
            if judge and plan.is_check(state.step):
                with bar.aside(plan.checks_after(state.step)):
                    agreement = judge.score(state.average)
                check_finite(agreement, state, config)
                if agreement > state.best or not state.best_weights:
                    state.best = agreement
                    state.best_weights = copy.deepcopy(state.average.state_dict())
                state.history.append({"step": state.step, "epoch": epoch + 1, "loss": loss, "agreement": agreement})
                if ranks.is_first:
                    checkpoint(state)
            judged = {"agreement": state.history[-1]["agreement"]} if state.history else {}
            bar.note(loss=loss, **judged)
            if stop:
                if ranks.is_first:
                    checkpoint(state)
                raise KeyboardInterrupt
    if isinstance(judge, AttributionValidator):
        state.best_of_neighbours = judge.score_of_neighbours(state.best_explainer())
    if ranks.count > 1 and not ground.judges_together:
        shape = state.average.state_dict()  # whose numbers do not matter: only the first one's are taken
        state.best_weights = {name: ranks.of_first(state.best_weights.get(name, part)) for name, part in shape.items()}
        state.history = json.loads(ranks.text_of_first(json.dumps(state.history)))
    return state


def check_it_moves(game: Game, samples: Samples | None) -> None:
    """A model that says the same whoever is removed has nothing to explain, and no figure means anything."""
    if samples is None or not samples.d.numel():
        return
    moved = float(samples.d.nan_to_num(0).abs().max())
    if moved <= game.min_resolvable and game.value_scale <= game.min_resolvable:
        raise ModelError(
            f"the model says the same whoever is removed: its {game.value} moves by at most {moved:.1g}, which "
            "nobody can tell from rounding. Are its weights loaded and the features not all zero? If its answers are "
            "that small, or far from zero, let it return them scaled, or without what they have in common."
        )


def went_on(step: int, total: int) -> str:
    """What a resumed training still does, in a sentence."""
    if step < total:
        return f"going on from step {step:,} of {total:,}"
    return (
        f"training was finished: all {total:,} steps are made; only what follows them is done again, measuring how "
        "good the scores are and how far they can be trusted"
    )


@contextmanager
def kept_if_others_are_lost(
    state: TrainingState, checkpoint: Callable[[TrainingState], None], ranks: ProcessGroup
) -> Iterator[None]:
    """Where another process dies within a step, the state is that after the step before; but for a running mean, which
    moves earlier than the weights and goes on from the last checkpoint."""
    try:
        yield
    except ProcessLost:
        if ranks.is_first and state.table is None:
            checkpoint(state)
        raise


def update(
    state: TrainingState,
    objective: Objective,
    step: Step,
    config: TrainingConfig,
    lr: float,
    ranks: ProcessGroup = ALONE,
) -> float:
    """Line 11: one step of Adam, and of the running average of g's weights. Returns the loss."""
    loss = objective.loss(step, state.table)
    for group in state.optimiser.param_groups:
        group["lr"] = lr
    state.optimiser.zero_grad()
    if loss.requires_grad:  # not so where other processes have it all
        loss.backward()
    ranks.sum_gradients(state.explainer.parameters())
    if config.schedule == "cosine":
        torch.nn.utils.clip_grad_norm_(state.explainer.parameters(), 1.0)
    check_finite(loss.item(), state, config)
    state.optimiser.step()
    with torch.no_grad():
        # short memory at first, when the weights still run
        decay = min(config.average, (state.step + 1) / (state.step + 10))
        for slow, fast in zip(state.average.parameters(), state.explainer.parameters(), strict=True):
            slow.lerp_(fast, 1 - decay)
    state.step += 1
    if state.keeper:
        state.keeper.settle()
    return loss.item()


def check_finite(figure: float, state: TrainingState, config: TrainingConfig) -> None:
    """The loss, or the agreement of the averaged weights: after the last step no loss would tell that they broke."""
    if not math.isfinite(figure):
        raise LaraError(
            f"training broke down at step {state.step} (a figure became {figure}); lower the learning rate "
            f"(--lr {config.lr / 3:.1g})."
        )


def learning_rate(config: TrainingConfig, step: int, total: int) -> float:
    """Constant (the paper), or a short warm-up followed by half a cosine down to zero."""
    if config.schedule == "constant":
        return config.lr
    return config.lr * min(1, (step + 1) / 30) * 0.5 * (1 + math.cos(math.pi * step / total))

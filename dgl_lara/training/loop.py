"""Algorithm 1: training the explainer g.

    while not converged                                    train()
        sample a mini-batch of targets (line 6)            subgraphs.target_batches
        sample their K-hop subgraph (line 7, Eq. 11)       subgraphs.batch
        estimate the attribution (line 8, Eq. 9, 10)       coalitions.evaluate_coalitions, running_mean_table
        sample their 2K-hop subgraph (line 10, Eq. 12)     subgraphs.embed
        update g (line 11, Eq. 8)                          objectives/

Every random draw depends on (seed, step) only, so a resumed run repeats an uninterrupted one.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara._util.distributed import ProcessGroup, ProcessLost
from dgl_lara._util.interrupts import held_back_interrupts
from dgl_lara._util.notices import notice
from dgl_lara._util.progress import Progress, phase, status
from dgl_lara._util.randomness import sample_targets, seeded
from dgl_lara.errors import InputError, LaraError, ModelError
from dgl_lara.explainer.decoders import DECODERS
from dgl_lara.explainer.inputs import fit_normalisation
from dgl_lara.explainer.network import Explainer, ExplainerConfig
from dgl_lara.game.index import BANZHAF
from dgl_lara.training.config import ALL, TrainingConfig
from dgl_lara.training.objectives import OBJECTIVES
from dgl_lara.training.state import TrainingState
from dgl_lara.training.subgraphs import target_batches
from dgl_lara.training.validation import AttributionValidator, Validator

if TYPE_CHECKING:
    from dgl_lara.attribution.monte_carlo import Samples
    from dgl_lara.game.game import Game
    from dgl_lara.training.backend import TrainingBackend
    from dgl_lara.training.objective import Step

CHECKS = 20  # times that g is validated
BYTES_PER_WEIGHT = 28  # weight, gradient, Adam's two moments, the average, and the best so far twice


@dataclass(frozen=True)
class Schedule:
    """How many steps training takes, and after which ones g is validated."""

    batch_size: int
    steps_per_epoch: int
    total: int

    @staticmethod
    def of(config: TrainingConfig, num_targets: int) -> Schedule:
        """Return the schedule of a configuration. Steps are rounded up to whole epochs."""
        size = num_targets if config.batch_size == ALL else config.batch_size
        per_epoch = -(-num_targets // size)
        return Schedule(size, per_epoch, (config.epochs or -(-config.steps // per_epoch)) * per_epoch)

    def is_check(self, step: int) -> bool:
        """Return whether g is validated after a step."""
        return step % max(1, self.total // CHECKS) == 0 or step == self.total

    def batches(self, targets: Tensor, seed: int, step: int) -> Iterator[Tensor]:
        """Yield the mini-batches from a step on, epoch after epoch."""
        epoch, skip = divmod(step, self.steps_per_epoch)
        while True:
            yield from list(target_batches(targets, self.batch_size, seed, epoch))[skip:]
            epoch, skip = epoch + 1, 0


def train(
    backend: TrainingBackend,
    targets: Tensor,
    validation: Tensor,
    resume: dict | None = None,
    checkpoint: Callable[[TrainingState], None] = lambda state: None,
) -> TrainingState:
    """Train g and keep the weights with the best agreement on the validation targets.

    Args:
        backend: The game, the settings and the place where steps run.
        targets: Nodes (or graphs) to learn from. Their labels are never used.
        validation: Targets on which g is validated.
        resume: The checkpoint to continue, as `TrainingState.to_dict` returned it.
        checkpoint: Called with the state after each validation, and when training is interrupted.

    Returns:
        The state after the last step. `state.best_explainer()` is the trained g.
    """
    game, config, processes = backend.game, backend.config, backend.processes
    targets = sample_targets(targets, config.targets or len(targets), config.seed)
    schedule = Schedule.of(config, len(targets))
    state = _start(backend, targets, schedule, resume)
    asked_before, asked_elsewhere = state.nodes_asked, game.caller.nodes_evaluated
    backend.prepare(state, targets, validation, schedule.total, resumed=resume is not None)
    validator = _make_validator(backend, state, validation)

    bar = Progress(range(state.step, schedule.total), "training explainer", done=state.step, unit="step")
    batches = schedule.batches(targets, config.seed, state.step)  # line 6
    with held_back_interrupts() as interrupts, _saved_if_others_are_lost(state, checkpoint, processes):
        for number, batch in zip(bar, batches, strict=False):
            step = backend.step(state.explainer, batch, number, state.reservoir)  # lines 7 to 10
            loss = update(state, step, backend, learning_rate(config, number, schedule.total))  # line 11
            del step  # free its tensors before those of the next one are made
            stop, asked = processes.total(len(interrupts), game.caller.nodes_evaluated - asked_elsewhere)
            state.nodes_asked = asked_before + asked
            if validator and schedule.is_check(state.step):
                agreement = validator.score(state.average)
                _record(state, config, number // schedule.steps_per_epoch + 1, loss, agreement)
                if processes.is_first:
                    checkpoint(state)
            last = {"agreement": state.history[-1]["agreement"]} if state.history else {}
            bar.note(loss=loss, **last)
            if stop:
                if processes.is_first:
                    checkpoint(state)
                raise KeyboardInterrupt
    _finish(backend, state, validator)
    return state


def new_explainer(game: Game, config: TrainingConfig, inputs: Tensor, train_nodes: Tensor) -> Explainer:
    """Build g with random weights. Its normalisation and its unit come from the training targets.

    Args:
        game: The game to learn.
        config: Settings of training.
        inputs: (num_rows, in_dim) inputs of g.
        train_nodes: Rows of the training targets.
    """
    shape = ExplainerConfig(
        task=game.task.name,
        in_dim=inputs.shape[1],
        num_classes=game.num_classes,
        hops=game.hops,
        layers=game.hops if config.layers is None else config.layers,
        hidden=config.hidden,
        dim=config.dim,
        gate=game.task.gate(config.gate),
        embedding=config.embedding,
        encoder=config.encoder,
        all_classes=config.all_classes and OBJECTIVES[config.objective].every_class,
        **DECODERS[game.player_set.name].shape(game),
    )
    game.budget.check(BYTES_PER_WEIGHT * shape.num_weights, f"an explainer with {shape.num_weights:,} weights")
    with seeded(config.seed):
        explainer = Explainer(shape).to(inputs.device)
    explainer.decoder.prepare(explainer, game)
    if config.inputs == "rich":
        fit_normalisation(explainer, inputs[train_nodes], None if game.types is None else inputs)
        explainer.unit.fill_(game.value_scale)
    return explainer


def update(state: TrainingState, step: Step, backend: TrainingBackend, rate: float) -> float:
    """Update g's weights with Adam, and their running average (line 11). Return the loss."""
    config = backend.config
    loss = OBJECTIVES[config.objective].loss(step, state.table)
    for group in state.optimiser.param_groups:
        group["lr"] = rate
    state.optimiser.zero_grad()
    if loss.requires_grad:  # not if other processes have the whole batch
        loss.backward()
    backend.processes.sum_gradients(state.explainer.parameters())
    if config.schedule == "cosine":
        torch.nn.utils.clip_grad_norm_(state.explainer.parameters(), 1.0)
    _check_finite(loss.item(), state, config)
    state.optimiser.step()
    with torch.no_grad():
        # a short memory at first, while the weights change quickly
        decay = min(config.average, (state.step + 1) / (state.step + 10))
        for slow, fast in zip(state.average.parameters(), state.explainer.parameters(), strict=True):
            slow.lerp_(fast, 1 - decay)
    state.step += 1
    if state.reservoir:
        state.reservoir.settle()
    return loss.item()


def learning_rate(config: TrainingConfig, step: int, total: int) -> float:
    """Return the rate of a step: constant (the paper), or a short warm-up followed by half a cosine down to zero."""
    if config.schedule == "constant":
        return config.lr
    return config.lr * min(1, (step + 1) / 30) * 0.5 * (1 + math.cos(math.pi * step / total))


def _start(backend: TrainingBackend, targets: Tensor, schedule: Schedule, resume: dict | None) -> TrainingState:
    """Return the state before the first step, or that of the checkpoint."""
    config, processes, index = backend.config, backend.processes, backend.game.index
    if OBJECTIVES[config.objective].needs_uniform_coalitions and index != BANZHAF:
        raise InputError("objective.index", index=index, got=config.objective)
    explainer = new_explainer(backend.game, config, *backend.encoder_inputs(targets))
    with status("setting up the optimiser"):  # the first one of a process imports much of torch
        optimiser = torch.optim.Adam(explainer.parameters(), lr=config.lr)
    state = TrainingState(0, explainer, copy.deepcopy(explainer).requires_grad_(False), optimiser)
    state.table = OBJECTIVES[config.objective].table(backend.game, targets)
    state.reservoir = backend.new_reservoir()
    if resume is None:
        return state
    state.load_dict(resume if processes.is_first else {**resume, "shared": None})
    if state.step > schedule.total:
        raise LaraError("checkpoint.beyond_end", step=state.step, total=schedule.total)
    if processes.is_first:
        state.resumed_at = state.step
        code = "training.resumed" if state.step < schedule.total else "training.was_finished"
        notice(code, step=state.step, total=schedule.total)
    return state


def _make_validator(backend: TrainingBackend, state: TrainingState, validation: Tensor) -> Validator | None:
    """Evaluate f for the validation targets. Only the first process validates, if one is enough."""
    first = backend.processes.is_first
    if not first and not backend.validates_together:
        return None
    with phase("preparing to measure how good the explainer is"):
        validator = backend.validator(validation)
    state.validated_by, state.validation_samples = validator.name, validator.samples
    _check_it_moves(backend.game, validator.samples)
    if first and isinstance(validator, AttributionValidator) and not validator.is_clear:
        notice("validation.only_noise")
    return validator


def _check_it_moves(game: Game, samples: Samples | None) -> None:
    """Raise ModelError if removing players does not change f's output."""
    if samples is None or not samples.responses.numel():
        return
    moved = float(samples.responses.nan_to_num(0).abs().max())
    if moved <= game.min_resolvable and game.value_scale <= game.min_resolvable:
        raise ModelError("model.constant", value=game.value, moved=moved)


def _record(state: TrainingState, config: TrainingConfig, epoch: int, loss: float, agreement: float) -> None:
    """Add a validation to the history, and keep the weights if they are the best so far."""
    _check_finite(agreement, state, config)  # after the last step no loss would show that the average is not finite
    if agreement > state.best or not state.best_weights:
        state.best = agreement
        state.best_weights = copy.deepcopy(state.average.state_dict())
    state.history.append({"step": state.step, "epoch": epoch, "loss": loss, "agreement": agreement})


def _check_finite(figure: float, state: TrainingState, config: TrainingConfig) -> None:
    if not math.isfinite(figure):
        raise LaraError("training.diverged", step=state.step, figure=figure, lr=config.lr / 3)


def _finish(backend: TrainingBackend, state: TrainingState, validator: Validator | None) -> None:
    """Validate the best weights on the neighbours, and give them to all processes."""
    processes = backend.processes
    if isinstance(validator, AttributionValidator):
        state.best_of_neighbours = validator.score_of_neighbours(state.best_explainer())
    if processes.count > 1 and not backend.validates_together:
        shape = state.average.state_dict()  # only the first process's numbers matter
        state.best_weights = {
            name: processes.of_first(state.best_weights.get(name, tensor)) for name, tensor in shape.items()
        }
        state.history = json.loads(processes.text_of_first(json.dumps(state.history)))


@contextmanager
def _saved_if_others_are_lost(
    state: TrainingState, checkpoint: Callable[[TrainingState], None], processes: ProcessGroup
) -> Iterator[None]:
    """Checkpoint the last complete step if another process dies.

    A running mean is updated earlier than the weights, so it resumes from the last checkpoint instead.
    """
    try:
        yield
    except ProcessLost:
        if processes.is_first and state.table is None:
            checkpoint(state)
        raise

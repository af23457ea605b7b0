"""Training as a `LARA` does it: targets are held out, g is trained, samples are kept and its errors are learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dgl_lara._util.distributed import get_process_group
from dgl_lara._util.progress import status
from dgl_lara._util.randomness import generator, sample_targets
from dgl_lara.attribution.shared_samples import SampleReservoir, SharedSamples, draw_more
from dgl_lara.errors import InputError
from dgl_lara.explainer.inputs import encoder_graph
from dgl_lara.explanation.trust import notice_low_agreement
from dgl_lara.inference.error_model import ErrorModel, learn_errors
from dgl_lara.training.backend import InMemory
from dgl_lara.training.config import TrainingConfig, default, within_memory
from dgl_lara.training.loop import train
from dgl_lara.training.state import TrainingState

if TYPE_CHECKING:
    from dgl_lara.attribution.monte_carlo import Samples
    from dgl_lara.explainer.encoder import EncoderGraph
    from dgl_lara.explanation import Explanations
    from dgl_lara.game.game import Game
    from dgl_lara.inference.fitted import Fitted

MAX_ERROR_TARGETS = 400  # validation targets from which errors are learned
DRAWN_PAIRS = 300  # of shared coalitions, if training keeps none
MIN_ERROR_SAMPLES = 16  # samples of each of them
CHECKPOINT_FIELDS = {"step", "history", "explainer"}

Checkpoint = Callable[[TrainingState], None]
Callback = Callable[[dict[str, float]], object]


def training_config(config: TrainingConfig | None, game: Game, num_targets: int) -> TrainingConfig:
    """Return the settings, by default what measured best and fits into memory."""
    return config or within_memory(default(game.task, num_targets, index=game.index), game)


def hold_out(targets: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return the targets to learn from, and a tenth of them to validate on."""
    if len(targets) < 2:
        return targets, targets
    shuffled = targets[torch.randperm(len(targets), generator=generator(seed)).to(targets.device)]
    count = max(1, len(targets) // 10)
    return shuffled[count:], shuffled[:count]


def reporter(checkpoint: Checkpoint, callback: Callback, resume: dict[str, Any] | None) -> Checkpoint:
    """Return a function that passes each state of training to `checkpoint`, and its new rows to `callback`.

    Args:
        checkpoint: Takes a training state.
        callback: Takes a row of the history.
        resume: The checkpoint to continue, whose rows are not reported again.
    """
    if not callable(callback) or not callable(checkpoint):
        raise InputError("lara.callbacks", got=f"{type(checkpoint).__name__}, {type(callback).__name__}")
    if resume is not None and not (isinstance(resume, dict) and resume.keys() >= CHECKPOINT_FIELDS):
        raise InputError("lara.resume", got=type(resume).__name__)
    num_reported = len(resume["history"]) if resume else 0

    def report(state: TrainingState) -> None:
        nonlocal num_reported
        checkpoint(state)
        for row in state.history[num_reported:]:
            callback(dict(row))
        num_reported = len(state.history)

    return report


def train_in_memory(
    game: Game,
    config: TrainingConfig,
    targets: Tensor,
    validation: Tensor,
    resume: dict[str, Any] | None,
    report: Checkpoint,
) -> tuple[TrainingState, EncoderGraph]:
    """Train g on a graph in memory. Several processes train together.

    Args:
        game: The game that is explained.
        config: Settings of the training.
        targets: Targets to learn from.
        validation: Validation targets.
        resume: The checkpoint to continue.
        report: Takes the state after each validation.

    Returns:
        The state after the last step, and the full graph as g sees it.
    """
    with status("preparing what the explainer sees of each node"):
        graph = encoder_graph(game, config.inputs)
    backend = InMemory(game, config, get_process_group(), graph)
    return train(backend, targets, validation, resume, report), graph


def agree_on(config: TrainingConfig) -> None:
    """Raise an error if other processes train with other settings, because they have other memory."""
    get_process_group().agree(asdict(config))


def finish(
    game: Game,
    state: TrainingState,
    fitted: Fitted,
    validation: Tensor,
    explain: Callable[[Tensor], Explanations],
    may_draw: bool,
    warns_if_poor: bool,
) -> Fitted:
    """Return what is fitted with samples, their cost and the errors of its scores.

    Args:
        game: The game that is explained.
        state: State after the last step.
        fitted: The trained explainer and its settings.
        validation: Validation targets.
        explain: Returns amortised explanations of targets.
        may_draw: Whether samples may be drawn if training kept none.
        warns_if_poor: Whether a low agreement is noted.
    """
    if not get_process_group().is_first:  # the first process explains, so the others need no more
        return fitted
    before = game.caller.nodes_evaluated
    samples = _shared_samples(game, state, fitted.config, may_draw)
    cost = (state.nodes_asked + game.caller.nodes_evaluated - before) / game.num_targets
    with status("learning how far the scores can be trusted"):
        targets = sample_targets(validation, MAX_ERROR_TARGETS, fitted.config.seed)
        on_validation = state.validation_samples
        if samples is not None:
            players = game.players(targets.sort().values)
            on_validation = samples.of(players, game.task.is_target(players))
        errors = errors_on_samples(on_validation, explain)
    if warns_if_poor:
        notice_low_agreement(fitted.agreement, state.best_of_neighbours)
    return replace(fitted, samples=samples, errors=errors, cost=cost)


def _shared_samples(game: Game, state: TrainingState, config: TrainingConfig, may_draw: bool) -> SharedSamples | None:
    """Return the samples that training has kept, with further ones if the settings require them."""
    pairs, reservoir = config.shared_pairs, state.reservoir
    if pairs is None:
        affordable = may_draw and reservoir is None and game.graph.num_nodes() <= game.nodes_per_call
        pairs = DRAWN_PAIRS if affordable and game.shares_masks else 0
    reservoir = reservoir or SampleReservoir(game, pairs, config.seed)
    if pairs > reservoir.num_offered:
        draw_more(reservoir, min(pairs, reservoir.most) - reservoir.num_offered)
    return reservoir.samples()


def errors_on_samples(samples: Samples | None, explain: Callable[[Tensor], Explanations]) -> ErrorModel | None:
    """Return the errors of g on targets that it has not learned from, None if there are too few samples.

    Args:
        samples: Samples of validation targets.
        explain: Returns amortised explanations of targets.
    """
    if samples is None or int((~samples.responses.isnan()).sum(0).min()) < MIN_ERROR_SAMPLES:
        return None
    return learn_errors(explain(samples.players.targets), samples)

"""How long an evaluation will take, estimated before it begins: a few coalitions of a few targets are timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dgl_lara._util.notices import notice
from dgl_lara._util.progress import duration, status
from dgl_lara._util.randomness import generator
from dgl_lara._util.timing import seconds
from dgl_lara.attribution.monte_carlo import fit, unbiased
from dgl_lara.baselines.sampled import Sampled
from dgl_lara.errors import message
from dgl_lara.evaluation.run_evaluation import MAX_SAMPLED_NODES, Evaluation
from dgl_lara.game.index import BANZHAF
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.common.reference import MAX_EXACT_PLAYERS, MAX_NODES_PER_TARGET
from dgl_lara.metrics.fidelity import DEFINITIONS, SPARSITIES

TIMED_TARGETS = 3  # at first. More if that is too short to time
MAX_TIMED_COALITIONS, MIN_TIMED_SECONDS = 1024, 0.2
MAX_SHARE = 0.7  # of the targets that are suggested instead. With more of them little time is saved
LABEL_METRICS = {"characterization-score", "unfaithfulness", "fidelity-curve"}  # they share one evaluation of f
PLAYER_BYTES = 16  # per player of a pair of coalitions: drawn, as signs, and while phi is fitted
LONG_SECONDS = 60.0  # above which a notice is printed
Regression = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # of d on sigma, with the target's own column


@dataclass(frozen=True)
class RuntimeEstimate:
    """Seconds of each part of an evaluation."""

    parts: dict[str, float]
    targets: int

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def is_long(self) -> bool:
        return self.seconds > LONG_SECONDS

    @property
    def fewer_targets(self) -> int:
        """Return how many targets would take about a minute."""
        return max(min(self.targets - 1, int(self.targets * LONG_SECONDS / self.seconds)), 1)


def estimate_runtime(evaluation: Evaluation, metrics: Sequence[str], examples: int = 0) -> RuntimeEstimate:
    """Estimate the time of the metrics that evaluate f under coalitions. The others take next to no time.

    Args:
        evaluation: The LARA and the targets.
        metrics: Names of the metrics.
        examples: Targets that a report explains again by `sampled` to time it, and chooses by fidelity.
    """
    game, targets = evaluation.case.game, evaluation.case.targets
    metrics = [name for name in metrics if METRICS[name].unavailable(evaluation.case) is None]
    counts = game.players(targets).counts.double()
    total = float(counts.sum())
    sampled = Sampled(game, evaluation.case.seed, evaluation.pairs)
    pairs = sampled.pairs if 2 * sampled.pairs * total <= MAX_SAMPLED_NODES else 0
    parts = {}
    per_player = _seconds_per_player(evaluation, counts, 4, MAX_TIMED_COALITIONS)
    if pairs and {"fidelity", "agreement", "auc", *LABEL_METRICS} & set(metrics):
        fits = len(targets) * _seconds_per_fit(fit, counts, pairs, game.features)
        parts[sampled.label] = 2 * pairs * total * per_player + fits
    definitions = len(DEFINITIONS[: 1 + game.player_set.includes_target])
    fitted = evaluation.lara.fitted_
    corrects = fitted is not None and fitted.samples is not None
    methods = 2 + bool(pairs) + corrects  # random, sampled, LARA, and LARA corrected
    masked = [name for name, asking in (("fidelity", {"fidelity"}), ("labels", LABEL_METRICS)) if asking & set(metrics)]
    if masked:  # extracting ego graphs for a few coalitions costs more than evaluating f under them
        cost = _seconds_per_player(evaluation, counts, len(SPARSITIES), len(SPARSITIES))
        parts |= dict.fromkeys(masked, 2 * definitions * len(SPARSITIES) * methods * total * cost)
    if examples:
        parts["speed"] = 2 * min(examples / len(targets), 1) * parts.get(sampled.label, 0.0)
        parts["examples"] = parts.get("fidelity", 0.0) / (definitions * methods)
    if "agreement" in metrics and counts.max() > MAX_EXACT_PLAYERS:
        parts["reference attributions"] = _reference_seconds(evaluation, counts, per_player)
    return RuntimeEstimate(parts, len(targets))


def announce(evaluation: Evaluation, metrics: Sequence[str], examples: int = 0) -> None:
    """Print a notice if an evaluation will take long, with options that make it shorter.

    Args:
        evaluation: The LARA and the targets.
        metrics: Names of the metrics.
        examples: Targets that a report explains again.
    """
    with status("estimating how long this will take"):
        expected = estimate_runtime(evaluation, metrics, examples)
    if not expected.is_long:
        return
    shorter = ""
    if expected.fewer_targets < MAX_SHARE * expected.targets:
        time_left = duration(expected.seconds * expected.fewer_targets / expected.targets)
        shorter += message("evaluation.fewer_targets", targets=expected.fewer_targets, time=time_left)
    if any(name.startswith("sampled") for name in expected.parts):
        shorter += message("evaluation.without_sampled")
    parts = ", ".join(f"{name} {duration(spent)}" for name, spent in expected.parts.items() if spent)
    notice("evaluation.takes_long", time=duration(expected.seconds), parts=parts, shorter=shorter)


def _reference_seconds(evaluation: Evaluation, counts: Tensor, per_player: float) -> float:
    """Estimate the time of the reference, whose masks targets share if that is cheaper."""
    game, targets, pairs = evaluation.case.game, evaluation.case.targets, evaluation.case.reference_pairs
    total, largest = float(counts.sum()), float(counts.max())
    game.budget.check(PLAYER_BYTES * pairs * largest, f"{pairs:,} reference pairs of a target")
    shared = game.shares_masks and 2 * pairs * total > MAX_NODES_PER_TARGET
    calls = 2 * pairs * (_seconds_per_pass(evaluation) if shared else total * per_player)
    return calls + 2 * len(targets) * _seconds_per_fit(unbiased, counts, pairs // 2, game.features)


def _seconds_per_player(evaluation: Evaluation, counts: Tensor, count: int, most: int) -> float:
    """Time f per player and coalition, for targets of all sizes and at least `count`, at most `most` coalitions."""
    game, targets, timed = evaluation.case.game, evaluation.case.targets, TIMED_TARGETS
    while True:
        rows = counts.argsort()[torch.linspace(0, len(counts) - 1, min(timed, len(counts))).long()]
        players = game.players(targets[rows.to(targets.device)])
        keep = game.index.draw(count, len(players.player), generator(0), players.player.device).keep
        before = time.process_time()
        spent = seconds(partial(game.values_per_target, players, keep), targets.device, repeats=1)
        worked = min(spent, time.process_time() - before)  # on a busy machine much of the clock is waiting
        if worked >= MIN_TIMED_SECONDS or (count >= most and timed >= len(targets)):
            return spent / (count * int(players.counts.sum()))
        if count < most:  # so that the overhead of a call hardly counts
            count *= 4
        else:
            timed *= 4


def _seconds_per_pass(evaluation: Evaluation) -> float:
    """Time f under one mask over the full graph."""
    game, device = evaluation.case.game, evaluation.case.targets.device
    keep = game.index.draw(1, game.num_players, generator(0), device).keep
    return seconds(lambda: game.shared_values(keep), device, repeats=1)


def _seconds_per_fit(regression: Regression, counts: Tensor, pairs: int, like: Tensor) -> float:
    """Time the regression of a target of median size."""
    players = int(counts.median())
    sigma = BANZHAF.design(BANZHAF.draw(pairs, players, generator(0), like.device))
    d, own = sigma[:, 0].clone(), torch.arange(players, device=like.device) == 0
    return seconds(lambda: regression(sigma, d, own), like.device, repeats=1)

"""How long an evaluation will take, told before it begins: a few coalitions of a few targets are timed, then scaled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dgl_lara._util.progress import duration, log_info, working
from dgl_lara._util.randomness import generator
from dgl_lara._util.timing import seconds
from dgl_lara.attribution.monte_carlo import fit, random_coalitions, signed, unbiased
from dgl_lara.baselines.sampled import Sampled
from dgl_lara.evaluation.run_evaluation import AFFORDABLE, Evaluation
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.common.reference import MAX_EXACT_PLAYERS, MAX_NODES_PER_TARGET
from dgl_lara.metrics.fidelity import DEFINITIONS, SPARSITIES

PROBED = 3  # targets that are timed, or as many more as it takes
MOST, ENOUGH = 1024, 0.2  # coalitions and seconds that are enough for it
WORTH = 0.7  # of the targets, and so of the time: with more of them nothing is gained
BY_LABELS = {"characterization-score", "unfaithfulness", "fidelity-curve"}  # they share what f says
BYTES_A_PLAYER = 16  # of one pair: drawn, as signs, and while phi is fitted
LONG = 60.0  # seconds from which on it is worth a word
Regression = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # of d on sigma, beside the target's own column


@dataclass(frozen=True)
class Forecast:
    """Seconds of each part of the work."""

    parts: dict[str, float]
    targets: int

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())

    @property
    def is_long(self) -> bool:
        return self.seconds > LONG

    @property
    def fewer(self) -> int:
        """Targets that would take about a minute."""
        return max(min(self.targets - 1, int(self.targets * LONG / self.seconds)), 1)


def forecast(subject: Evaluation, names: Sequence[str], timed: int = 0) -> Forecast:
    """Of the metrics that ask f about coalitions; the others take next to nothing, and speed is measured anyway.

    `timed`: targets that `sampled` explains twice more, to be timed, and one more fidelity, to choose examples by.
    """
    game, targets = subject.case.game, subject.case.targets
    names = [name for name in names if METRICS[name].unavailable(subject.case) is None]
    counts = game.players(targets).counts.double()
    total = float(counts.sum())
    whole = 0.0
    sampled = Sampled(game, subject.case.seed, subject.pairs)
    pairs = sampled.pairs if 2 * sampled.pairs * total <= AFFORDABLE else 0
    parts = {}
    each = _seconds_a_player(subject, counts, 4, MOST)
    if pairs and {"fidelity", "agreement", "auc", *BY_LABELS} & set(names):
        parts[sampled.label] = 2 * pairs * total * each + len(targets) * _seconds_a_fit(
            fit, counts, pairs, game.features
        )
    definitions = len(DEFINITIONS) if game.task.has_distances else 1
    methods = 2 + bool(pairs) + (subject.lara.samples_ is not None)  # chance, sampled, LARA, and LARA corrected
    wanted = [part for part, asking in (("fidelity", {"fidelity"}), ("labels", BY_LABELS)) if asking & set(names)]
    if wanted:  # surroundings are cut out for a few coalitions only, which costs more than asking about these
        few = _seconds_a_player(subject, counts, len(SPARSITIES), len(SPARSITIES))
        parts |= dict.fromkeys(wanted, 2 * definitions * len(SPARSITIES) * methods * total * few)
    if timed:
        parts["speed"] = 2 * min(timed / len(targets), 1) * parts.get(sampled.label, 0.0)
        parts["examples"] = parts.get("fidelity", 0.0) / (definitions * methods)
    if "agreement" in names and counts.max() > MAX_EXACT_PLAYERS:
        asked = subject.case.reference_pairs
        game.budget.check(BYTES_A_PLAYER * asked * float(counts.max()), f"{asked:,} reference pairs of a target")
        if game.task.has_distances and 2 * asked * total > MAX_NODES_PER_TARGET:
            whole = _seconds_a_pass(subject)
        calls = 2 * asked * (whole or total * each)
        fits = 2 * len(targets) * _seconds_a_fit(unbiased, counts, asked // 2, game.features)
        parts["reference attributions"] = calls + fits
    return Forecast(parts, len(targets))


def announce(subject: Evaluation, names: Sequence[str], timed: int = 0) -> None:
    """Whoever asks for an evaluation that takes long is told so first, and how to have it sooner."""
    with working("estimating how long this will take"):
        expected = forecast(subject, names, timed)
    if not expected.is_long:
        return
    parts = ", ".join(f"{name} {duration(each)}" for name, each in expected.parts.items() if each)
    sampled = "; --pairs 0 leaves 'sampled' out" if any(name.startswith("sampled") for name in expected.parts) else ""
    sooner = duration(expected.seconds * expected.fewer / expected.targets)
    fewer = (
        f"; --targets {expected.fewer} would take about {sooner}" if expected.fewer < WORTH * expected.targets else ""
    )
    log_info(f"this will take about {duration(expected.seconds)} ({parts}){fewer}{sampled}")


def _seconds_a_player(subject: Evaluation, counts: Tensor, count: int, most: int) -> float:
    """For one player of one coalition, of targets of all sizes, where `count` or up to `most` are asked at once."""
    game, targets, probed = subject.case.game, subject.case.targets, PROBED
    while True:
        places = counts.argsort()[torch.linspace(0, len(counts) - 1, min(probed, len(counts))).long()]
        players = game.players(targets[places.to(targets.device)])
        keep = random_coalitions(count, len(players.player), generator(0), players.player.device)
        before = time.process_time()
        spent = seconds(partial(game.values_per_target, players, keep), targets.device, repeats=1)
        worked = min(spent, time.process_time() - before)  # beside other work much of the clock is waiting
        if worked >= ENOUGH or (count >= most and probed >= len(targets)):
            return spent / (count * int(players.counts.sum()))
        if count < most:  # what each call costs besides must not count for much
            count *= 4
        else:
            probed *= 4


def _seconds_a_pass(subject: Evaluation) -> float:
    """For one mask over the whole graph."""
    game, device = subject.case.game, subject.case.targets.device
    keep = random_coalitions(1, game.num_players, generator(0), device)
    return seconds(lambda: game.shared_values(keep), device, repeats=1)


def _seconds_a_fit(regression: Regression, counts: Tensor, pairs: int, like: Tensor) -> float:
    """For that of one target of usual size."""
    players = int(counts.median())
    sigma = signed(random_coalitions(pairs, players, generator(0), like.device))
    d, own = sigma[:, 0].clone(), torch.arange(players, device=like.device) == 0
    return seconds(lambda: regression(sigma, d, own), like.device, repeats=1)

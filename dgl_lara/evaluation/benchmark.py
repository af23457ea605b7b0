"""A benchmark: methods on one game and one set of targets, over several seeds, in one table.

A unit of work is one method with one seed: fit, explain, measure. Its values are stored when it is done, so an
interrupted benchmark resumes. Speed is a unit of its own, measured relative to LARA (`timing.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from dgl_lara._util.notices import notice
from dgl_lara._util.progress import Progress
from dgl_lara._util.randomness import sample_targets
from dgl_lara._util.timing import clock
from dgl_lara.baselines import BASELINES
from dgl_lara.baselines.common.method import BenchmarkSetting, Method
from dgl_lara.blackbox.identity import weights_hash
from dgl_lara.errors import LaraError, message
from dgl_lara.evaluation.lara_method import LaraMethod
from dgl_lara.evaluation.results import (
    load_explainer,
    read_record,
    read_result,
    settings_key,
    speed_file,
    trained_explainers,
    versioned_hash,
    write_record,
)
from dgl_lara.evaluation.timing import compare_speed
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.common.metric import EvalCase
from dgl_lara.training.config import MANY_TARGETS, TrainingConfig, default, paper

if TYPE_CHECKING:
    from dgl_lara.datasets.dataset import Dataset
    from dgl_lara.game.game import Game

REFERENCE_PAIRS = 2000
COST = "nodes f was given, a target"  # of all graphs. That of learning is divided by all targets

# What a quick benchmark shortens, besides what each method states in `quick_note`. LARA's own training takes about a
# minute on small graphs and is not shortened.
QUICK_STEPS_LARGE = 60  # of LARA, if each trains more than MANY_TARGETS targets
QUICK_LEARNERS = 200  # training targets of the other methods
QUICK_PAPER_STEPS = 600  # of LARA in the paper's form
QUICK_MINUTES = 3  # a method whose explanations would take longer is left out
QUICK_PHI = 4  # divides the pairs of phi's estimate

Maker = Callable[["Benchmark", int], Method]  # builds a method for a seed


def quick_note() -> str:
    """Return what a quick benchmark shortens. It also identifies stored results."""
    notes = [method.quick_note for method in BASELINES.values() if method.quick_note]
    return message(
        "benchmark.quick",
        steps=QUICK_STEPS_LARGE,
        paper_steps=QUICK_PAPER_STEPS,
        learners=QUICK_LEARNERS,
        methods=", ".join(notes),
        pairs=REFERENCE_PAIRS // QUICK_PHI,
        minutes=QUICK_MINUTES,
    )


@dataclass(frozen=True, eq=False)
class Benchmark:
    """What all methods are compared on.

    Args:
        dataset: The data set.
        game: The explained game.
        targets: The explained targets.
        quick: Spend minutes instead of hours.
        steps: Training steps of all forms of LARA. None means the default.
        makers: How the method of each name is built.
    """

    dataset: Dataset
    game: Game
    targets: Tensor
    quick: bool = False
    steps: int | None = None
    makers: Mapping[str, Maker] = field(default_factory=lambda: METHODS)

    @staticmethod
    def on(dataset: Dataset, game: Game, max_targets: int, quick: bool, steps: int | None = None) -> Benchmark:
        """Draw test targets and return the benchmark on them.

        Args:
            dataset: The data set.
            game: The explained game.
            max_targets: Test targets, at most.
            quick: Spend minutes instead of hours.
            steps: Training steps of all forms of LARA. None means the default.
        """
        return Benchmark(dataset, game, sample_targets(dataset.test, max_targets, 0), quick, steps)

    @cached_property
    def case(self) -> EvalCase:
        pairs = REFERENCE_PAIRS // (QUICK_PHI if self.quick else 1)
        return EvalCase(self.game, self.targets, self.dataset.motif, pairs)

    @property
    def setting(self) -> BenchmarkSetting:
        return BenchmarkSetting(self.dataset.name, self.quick, self.game.num_targets > MANY_TARGETS)

    def lara_config(self) -> TrainingConfig:
        """Return the default settings of LARA."""
        config = default(self.game.task, len(self.dataset.train), index=self.game.index)
        short = self.quick and len(self.dataset.train) > MANY_TARGETS
        return replace(config, steps=self.steps or (QUICK_STEPS_LARGE if short else config.steps))

    def paper_config(self) -> TrainingConfig:
        """Return the settings of LARA in the paper's form."""
        config = paper(self.game.task)
        steps = self.steps or (QUICK_PAPER_STEPS if self.quick else config.steps)
        # an epoch of all targets can have more steps than that
        return replace(config, steps=steps, targets=steps * config.batch_size)


def lara_with(label: str = "lara", form: str = "default", corrected: bool = True, **changes: Any) -> Maker:
    """Return a maker of LARA with changed settings.

    Args:
        label: The name in tables.
        form: "default" or "paper".
        corrected: Correct the scores by the samples kept from training.
        changes: Changed settings of training.
    """

    def make(benchmark: Benchmark, seed: int) -> Method:
        config = benchmark.paper_config() if form == "paper" else benchmark.lara_config()
        if changes.get("train_on") == "all":
            benchmark.game.task.check_training_on_all()
        config = replace(config, **changes)
        return LaraMethod(benchmark.game, seed, config, benchmark.dataset.val, label, corrected)

    return make


def _baseline(name: str, benchmark: Benchmark, seed: int) -> Method:
    return BASELINES[name].for_benchmark(benchmark.game, seed, benchmark.setting)


# In the order of the tables.
METHODS: dict[str, Maker] = {
    **{name: partial(_baseline, name) for name in BASELINES},
    "lara-paper": lara_with("lara, paper's form", "paper"),
    "lara": lara_with(),
    "lara-amortised": lara_with("lara, amortised", corrected=False),  # trained as "lara", the scores of g alone
    "lara-all": lara_with("lara, all nodes", train_on="all"),  # training needs no labels, so any node will do
}


def results_folder(benchmark: Benchmark, metrics: Sequence[str], out: Path) -> Path:
    """Return the folder of stored results. It depends on everything that the results depend on."""
    game = benchmark.game
    identity = {"data": benchmark.dataset.key, "model": weights_hash(game.f), "value": game.value, "hops": game.hops}
    identity |= {"targets": benchmark.targets.tolist(), "quick": quick_note() if benchmark.quick else None}
    identity |= {
        "metrics": sorted(name for name in metrics if not METRICS[name].measures_speed),
        "device": benchmark.targets.device.type,
    }
    identity |= {"steps": benchmark.steps} if benchmark.steps else {}
    return out / "parts" / versioned_hash(identity)


def run_benchmark(
    benchmark: Benchmark, methods: Sequence[str], metrics: Sequence[str], seeds: int, folder: Path
) -> pd.DataFrame:
    """Run all units whose results are not stored yet.

    Args:
        benchmark: The game and the targets.
        methods: Names of the methods.
        metrics: Names of the metrics.
        seeds: Number of seeds.
        folder: Where results and the explainers of LARA are stored.

    Returns:
        A row for each method and seed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {(seed, name): folder / f"{name}-{seed}.json" for seed in range(seeds) for name in methods}
    stored = {unit: read_result(path, _settings(benchmark, unit[1], unit[0])) for unit, path in paths.items()}
    records = {unit: record for unit, record in stored.items() if record is not None}
    missing = [unit for unit in paths if unit not in records]
    for seed, name in Progress(missing, "comparing", done=len(records), unit="method"):
        path = paths[seed, name]
        speed_file(path).unlink(missing_ok=True)  # it belonged to other settings
        records[seed, name], method = run_unit(benchmark, name, metrics, seed, trained_explainers(folder, seed))
        if isinstance(method, LaraMethod):
            method.save(path.with_suffix(".pt"))
        write_record(path, records[seed, name])
    if any(METRICS[name].measures_speed for name in metrics):
        measured = {unit: path for unit, path in paths.items() if "left out" not in records[unit]}
        speeds = _run_speed_units(benchmark, measured, folder)
        records = {unit: {**record, **speeds.get(unit, {})} for unit, record in records.items()}
    return pd.DataFrame([records[unit] for unit in paths]).drop(columns="settings", errors="ignore")


def run_unit(
    benchmark: Benchmark,
    name: str,
    metrics: Sequence[str],
    seed: int,
    trained: Mapping[str, Path] = MappingProxyType({}),
) -> tuple[dict, Method | None]:
    """Fit, explain and measure one method.

    Args:
        benchmark: The game and the targets.
        name: Name of the method.
        metrics: Names of the metrics.
        seed: Seed of the method.
        trained: Files of explainers of LARA, by their settings.

    Returns:
        The values and the method. If the method cannot explain this game, the reason and None.
    """
    record: dict[str, object] = {"method": name, "label": name, "seed": seed}
    game = benchmark.game
    try:
        before = game.caller.nodes_evaluated
        method, record["fit (s)"] = fit_method(benchmark, name, seed, trained)
        fit_nodes = method.nodes_asked if isinstance(method, LaraMethod) else game.caller.nodes_evaluated - before
        _check_time_limit(benchmark, method)
        start, before = time.perf_counter(), game.caller.nodes_evaluated
        explanations = method.explain(benchmark.targets)
        record["explain (s)"] = time.perf_counter() - start
        explain_nodes = (game.caller.nodes_evaluated - before) / len(benchmark.targets)
        record[COST] = explain_nodes + fit_nodes / game.num_targets
    except LaraError as reason:
        notice("benchmark.left_out", method=name, reason=str(reason))
        return {**record, "left out": str(reason)}, None
    record |= {"label": method.label, "settings": method.settings}
    for metric in (METRICS[name] for name in metrics):
        if not metric.measures_speed and metric.unavailable(benchmark.case) is None:
            record |= metric.values(metric.table(benchmark.case, explanations))
    return record, method


def fit_method(
    benchmark: Benchmark, name: str, seed: int, trained: Mapping[str, Path] = MappingProxyType({})
) -> tuple[Method, float]:
    """Build a method and fit it, or load the explainer if LARA was trained with these settings already.

    Args:
        benchmark: The game and the training targets.
        name: Name of the method.
        seed: Seed of the method.
        trained: Files of explainers of LARA, by their settings.

    Returns:
        The method, and the seconds that fitting it takes.
    """
    method = benchmark.makers[name](benchmark, seed)
    start = time.perf_counter()
    if isinstance(method, LaraMethod):
        stored = trained.get(settings_key(method.settings))
        if not (stored and load_explainer(method, stored, "benchmark.trained_again")):
            method.fit(benchmark.dataset.split(method.config.train_on))
            method.fit_seconds = time.perf_counter() - start
        return method, method.fit_seconds
    if method.learns:
        learners = benchmark.dataset.train  # a random sample of them, because the first ones may have one label
        method.fit(sample_targets(learners, QUICK_LEARNERS, 0) if benchmark.quick else learners)
    return method, time.perf_counter() - start


def briefly_trained(benchmark: Benchmark, name: str, seed: int) -> Method:
    """Build a method that is only good enough to measure its speed."""
    method = benchmark.makers[name](benchmark, seed).with_fewer_steps()
    if method.learns:
        method.fit(benchmark.targets)
    return method


def _check_time_limit(benchmark: Benchmark, method: Method) -> None:
    """Raise LaraError if a method is too slow for a quick benchmark. Two targets are timed.

    The time is that of the processors if it is shorter, so that other work on the machine does not matter.
    """
    if not benchmark.quick or isinstance(method, LaraMethod):
        return
    device = benchmark.targets.device
    method.explain(benchmark.targets[:1])  # the first call prepares things
    started, busy = clock(device), time.process_time()
    timed = benchmark.targets[:2]
    method.explain(timed)
    spent = min(clock(device) - started, (time.process_time() - busy) / torch.get_num_threads())
    minutes = spent / len(timed) * len(benchmark.targets) / 60
    if minutes > QUICK_MINUTES:
        raise LaraError("benchmark.too_slow", targets=len(benchmark.targets), minutes=minutes, most=QUICK_MINUTES)


def _run_speed_units(
    benchmark: Benchmark, paths: Mapping[tuple[int, str], Path], folder: Path
) -> dict[tuple[int, str], dict]:
    """Measure the speed of each method and seed, unless it is stored."""
    files = {unit: speed_file(path) for unit, path in paths.items()}
    stored = {unit: read_record(path, {}) for unit, path in files.items()}
    speeds = {unit: record for unit, record in stored.items() if record is not None}
    missing = [unit for unit in files if unit not in speeds]
    yardsticks: dict[int, Method] = {}  # LARA, by seed
    for seed, name in Progress(missing, "timing", done=len(speeds), unit="method"):
        if seed not in yardsticks:
            yardsticks[seed] = briefly_trained(replace(benchmark, makers=METHODS), "lara-amortised", seed)
        yardstick, method = yardsticks[seed], benchmark.makers[name](benchmark, seed)
        weights = folder / f"{name}-{seed}.pt"
        has_weights = isinstance(method, LaraMethod) and weights.exists()
        if not (has_weights and load_explainer(method, weights, "benchmark.timed_untrained")):
            method = briefly_trained(benchmark, name, seed)
        assert isinstance(yardstick, LaraMethod)
        speeds[seed, name] = compare_speed(method, yardstick)
        write_record(files[seed, name], speeds[seed, name])
    return speeds


def _settings(benchmark: Benchmark, name: str, seed: int) -> dict | None:
    try:
        return benchmark.makers[name](benchmark, seed).settings
    except LaraError:  # the row of the method will have the reason
        return None

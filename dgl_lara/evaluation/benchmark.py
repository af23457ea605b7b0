"""A comparison: every method on the same game and the same targets, over several seeds, one table.

A unit of work is one method with one seed: fit, explain, measure. Its figures are stored when it is done, so an
interrupted comparison goes on where it was. Speed is a unit of its own, measured in turns with LARA (`timing.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from dgl_lara import __version__
from dgl_lara._util.atomic import atomic_write, short_hash
from dgl_lara._util.progress import log_info, progress_by_group
from dgl_lara._util.randomness import sample_targets
from dgl_lara._util.schema import Check, maybe, table, text, validate, whole
from dgl_lara._util.timing import clock
from dgl_lara.baselines import BASELINES
from dgl_lara.baselines.common.method import BenchmarkSetting, Method
from dgl_lara.blackbox.identity import weights_hash
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import LaraError
from dgl_lara.evaluation.lara_method import LaraMethod
from dgl_lara.evaluation.timing import in_turns
from dgl_lara.game.game import Game
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.common.metric import EvalCase
from dgl_lara.training.config import MANY_TARGETS, TrainingConfig, default, paper

REFERENCE_PAIRS = 2000
COST = "nodes f was given, a target"  # of all graphs; learning is shared by all targets there are

# What a quick comparison shortens, besides what each method says of itself; its tables say so. LARA's own training
# takes about a minute on small graphs and stays whole.
QUICK_STEPS_LARGE = 60  # of LARA, where each teaches more than MANY_TARGETS at once
QUICK_LEARNERS = 200  # training targets of the rivals
QUICK_PAPER_STEPS = 600  # of LARA in the paper's form
QUICK_MINUTES = 3  # a method whose explanations would take longer is left out
QUICK_PHI = 4  # by which the pairs of phi's estimate are divided


def quick_words() -> str:
    """What "quick" means, in a sentence; stored figures belong to it."""
    theirs = "".join(f"{METHOD.quick_note}, " for METHOD in BASELINES.values() if METHOD.quick_note)
    return (
        f"Quick: LARA trains as usual on small graphs and makes {QUICK_STEPS_LARGE} of 300 steps on large ones, in the "
        f"paper's form {QUICK_PAPER_STEPS} of 3,000; rivals that learn see {QUICK_LEARNERS} targets, "
        f"{theirs.rstrip(', ')}; phi is estimated from {REFERENCE_PAIRS // QUICK_PHI} pairs; a method whose "
        f"explanations would take more than {QUICK_MINUTES} minutes is left out."
    )


Maker = Callable[["Benchmark", int], Method]


@dataclass(frozen=True, eq=False)
class Benchmark:
    """What all methods are compared on."""

    dataset: Dataset
    game: Game
    targets: Tensor
    quick: bool = False
    steps: int | None = None  # of LARA in all its forms, where they are not to be the usual ones

    @property
    def large(self) -> bool:
        return self.game.num_targets > MANY_TARGETS

    @cached_property
    def case(self) -> EvalCase:
        """What the metrics judge on."""
        pairs = REFERENCE_PAIRS // (QUICK_PHI if self.quick else 1)
        return EvalCase(self.game, self.targets, self.dataset.motif, pairs)

    @property
    def circumstances(self) -> BenchmarkSetting:
        return BenchmarkSetting(self.dataset.name, self.quick, self.large)

    def lara_config(self) -> TrainingConfig:
        config = default(self.game.task, len(self.dataset.train))
        short = self.quick and len(self.dataset.train) > MANY_TARGETS
        return replace(config, steps=self.steps or (QUICK_STEPS_LARGE if short else config.steps))

    def paper_config(self) -> TrainingConfig:
        config = paper(self.game.task)
        steps = self.steps or (QUICK_PAPER_STEPS if self.quick else config.steps)
        # an epoch of all targets can have more steps than that
        return replace(config, steps=steps, targets=steps * config.batch_size)


def contest(dataset: Dataset, game: Game, most: int, quick: bool, steps: int | None = None) -> Benchmark:
    return Benchmark(dataset, game, sample_targets(dataset.test, most, 0), quick, steps)


def parts_folder(contest: Benchmark, metrics: Sequence[str], out: Path) -> Path:
    """Where the units of exactly this comparison are kept: another question gets another folder."""
    game = contest.game
    question = {"data": contest.dataset.key, "model": weights_hash(game.f), "value": game.value, "hops": game.hops}
    question |= {"targets": contest.targets.tolist(), "quick": quick_words() if contest.quick else None}
    question |= {
        "metrics": sorted(name for name in metrics if not METRICS[name].measures_speed),
        "device": contest.targets.device.type,
    }
    question |= {"steps": contest.steps} if contest.steps else {}
    return out / "parts" / short_hash({**question, "version": __version__})


def lara_with(label: str = "lara", form: str = "default", corrected: bool = True, **changes: Any) -> Maker:
    """LARA, in our form or in the paper's, with some of its settings changed."""

    def make(contest: Benchmark, seed: int) -> Method:
        config = contest.paper_config() if form == "paper" else contest.lara_config()
        if changes.get("train_on") == "all" and not contest.game.task.has_distances:
            raise LaraError("the graphs to be explained are new ones, there is nothing more to learn from.")
        return LaraMethod(contest.game, seed, replace(config, **changes), contest.dataset.val, label, corrected)

    return make


def _baseline(name: str, contest: Benchmark, seed: int) -> Method:
    return BASELINES[name].for_benchmark(contest.game, seed, contest.circumstances)


# In the order of the tables.
METHODS: dict[str, Maker] = {
    **{name: partial(_baseline, name) for name in BASELINES},
    "lara-paper": lara_with("lara, paper's form", "paper"),
    "lara": lara_with(),
    "lara-amortised": lara_with("lara, amortised", corrected=False),  # the same training, the scores of g alone
    "lara-all": lara_with("lara, all nodes", train_on="all"),  # no label is needed, so any node can teach
}


def compare(
    contest: Benchmark,
    methods: Sequence[str],
    metrics: Sequence[str],
    seeds: int,
    folder: Path,
    makers: Mapping[str, Maker] = METHODS,
) -> pd.DataFrame:
    """All units that are not in the folder yet; then one row for each method and seed.

    `makers` says how a method of each name is made; what LARA learned is kept beside its figures.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = {(seed, name): folder / f"{name}-{seed}.json" for seed in range(seeds) for name in methods}
    units = ((each, _stored(path, settings_of(contest, each[1], each[0], makers))) for each, path in paths.items())
    records = {each: record for each, record in units if record is not None}
    missing = [each for each in paths if each not in records]
    for seed, name in progress_by_group(missing, itemgetter(1), "comparing", len(records), "method"):
        path = paths[seed, name]
        _speed_file(path).unlink(missing_ok=True)  # it belonged to other settings
        records[seed, name], method = unit(contest, name, metrics, seed, makers, _taught(folder, seed))
        if isinstance(method, LaraMethod):
            method.save(path.with_suffix(".pt"))
        _store(path, records[seed, name])
    if any(METRICS[name].measures_speed for name in metrics):
        files = {each: _speed_file(path) for each, path in paths.items() if "left out" not in records[each]}
        stored = ((each, _read(path, {})) for each, path in files.items() if path.exists())
        speeds = {each: record for each, record in stored if record is not None}
        untimed = [each for each in files if each not in speeds]
        yardsticks: dict[int, LaraMethod] = {}
        for seed, name in progress_by_group(untimed, itemgetter(1), "timing", len(speeds), "method"):
            speeds[seed, name] = timed(contest, name, seed, folder, yardsticks, makers)
            _store(files[seed, name], speeds[seed, name])
        records = {each: {**record, **speeds.get(each, {})} for each, record in records.items()}
    return pd.DataFrame([records[each] for each in paths]).drop(columns="settings", errors="ignore")


def _taught(folder: Path, seed: int) -> dict[str, Path]:
    """What LARA has learned in units of this comparison, by its settings: its forms need not learn it again."""
    known = {}
    for path in sorted(folder.glob(f"lara*-{seed}.pt")):
        record = path.with_suffix(".json")
        if record.exists():
            with suppress(ValueError, RecursionError, LaraError):  # damaged: its own unit tells of it
                content = validate(json.loads(record.read_text()), {"settings": maybe(table)}, record)
                known[_key(content["settings"])] = path
    return known


def _key(settings: dict | None) -> str:
    return json.dumps(settings, sort_keys=True)


def _speed_file(path: Path) -> Path:
    return path.with_name(f"{path.stem}-speed.json")


def _store(path: Path, record: dict) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1))


def _stored(path: Path, settings: dict | None) -> dict | None:
    """The figures kept there, if they were made with these settings of LARA (None: another method)."""
    record = _read(path, {"method": text, "label": text, "seed": whole()}) if path.exists() else None
    return record if record is not None and record.get("settings") == settings else None


def _read(path: Path, fields: dict[str, Check]) -> dict | None:
    """The record in a file; None, with a notice, where it is damaged."""
    try:
        return validate(json.loads(path.read_text()), fields, path)
    except (ValueError, RecursionError, LaraError) as damage:
        log_info(f"{path} is damaged ({damage}); it is measured anew.")
        return None


def settings_of(contest: Benchmark, name: str, seed: int, makers: Mapping[str, Maker]) -> dict | None:
    try:
        method = makers[name](contest, seed)
    except LaraError:  # its row will say why
        return None
    return asdict(method.config) if isinstance(method, LaraMethod) else None


def unit(
    contest: Benchmark,
    name: str,
    metrics: Sequence[str],
    seed: int,
    makers: Mapping[str, Maker] = METHODS,
    taught: Mapping[str, Path] = MappingProxyType({}),
) -> tuple[dict, Method | None]:
    """Fit, explain and measure one method. A method that cannot do this task says why, in its row.

    `taught`: files of what LARA has learned with these settings already.
    """
    record: dict[str, object] = {"method": name, "label": name, "seed": seed}
    game = contest.game
    try:
        before = game.caller.nodes_evaluated
        method, record["fit (s)"] = fitted(contest, name, seed, makers, taught)
        learning = getattr(method, "nodes_asked", game.caller.nodes_evaluated - before)
        check_time_limit(contest, method)
        start, before = time.perf_counter(), game.caller.nodes_evaluated
        explanations = method.explain(contest.targets)
        record["explain (s)"] = time.perf_counter() - start
        asked = (game.caller.nodes_evaluated - before) / len(contest.targets)
        record[COST] = asked + learning / game.num_targets  # learning serves every target that there is
    except LaraError as reason:
        log_info(f"{name} is left out: {reason}")
        return {**record, "left out": str(reason)}, None
    record |= {"label": method.label, "settings": asdict(method.config) if isinstance(method, LaraMethod) else None}
    for metric in (METRICS[name] for name in metrics):
        if not metric.measures_speed and metric.unavailable(contest.case) is None:
            record |= metric.values(metric.table(contest.case, explanations))
    return record, method


def check_time_limit(contest: Benchmark, method: Method) -> None:
    """A quick comparison does not wait for a method that is slow beyond measure; two targets tell.

    The processors' time where that is less, so that what else the machine does leaves nobody out.
    """
    if not contest.quick or isinstance(method, LaraMethod):
        return
    device = contest.targets.device
    method.explain(contest.targets[:1])  # what the first call has to prepare does not count
    started, busy = clock(device), time.process_time()
    some = contest.targets[:2]
    method.explain(some)
    spent = min(clock(device) - started, (time.process_time() - busy) / torch.get_num_threads())
    minutes = spent / len(some) * len(contest.targets) / 60
    if minutes > QUICK_MINUTES:
        raise LaraError(
            f"its {len(contest.targets)} explanations would take about {minutes:.0f} minutes, and a quick comparison "
            f"waits for {QUICK_MINUTES}; a full one has it."
        )


def fitted(
    contest: Benchmark,
    name: str,
    seed: int,
    makers: Mapping[str, Maker] = METHODS,
    taught: Mapping[str, Path] = MappingProxyType({}),
) -> tuple[Method, float]:
    method = makers[name](contest, seed)
    start = time.perf_counter()
    known = taught.get(_key(asdict(method.config))) if isinstance(method, LaraMethod) else None
    if known and isinstance(method, LaraMethod) and _loaded(method, known, "It is learned anew."):
        return method, method.fit_seconds
    if method.learns:
        learners = contest.dataset.train
        if isinstance(method, LaraMethod):
            learners = contest.dataset.split(method.config.train_on)
        elif contest.quick:
            learners = sample_targets(learners, QUICK_LEARNERS, 0)  # drawn: the first ones may all be of one kind
        method.fit(learners)
    spent = time.perf_counter() - start
    if isinstance(method, LaraMethod):
        method.fit_seconds = spent
    return method, spent


def briefly_trained(contest: Benchmark, name: str, seed: int, makers: Mapping[str, Maker] = METHODS) -> Method:
    """Ready to explain, for measuring its speed."""
    method = makers[name](contest, seed).with_fewer_steps()
    if method.learns:
        method.fit(contest.targets)
    return method


def _loaded(method: LaraMethod, weights: Path, otherwise: str) -> bool:
    try:
        method.load(weights)
    except LaraError as damage:
        log_info(f"{damage} {otherwise}")
        return False
    return True


def timed(
    contest: Benchmark,
    name: str,
    seed: int,
    folder: Path,
    yardsticks: dict[int, LaraMethod],
    makers: Mapping[str, Maker],
) -> dict[str, float]:
    """The speed of one method. LARA is taken as it was trained, where it is kept."""
    if seed not in yardsticks:
        yardsticks[seed] = briefly_trained(contest, "lara-amortised", seed)  # type: ignore[assignment]
    weights = folder / f"{name}-{seed}.pt"
    method = makers[name](contest, seed)
    otherwise = "Speed is measured with another one."
    if not (isinstance(method, LaraMethod) and weights.exists() and _loaded(method, weights, otherwise)):
        method = briefly_trained(contest, name, seed, makers)
    return in_turns(method, yardsticks[seed])

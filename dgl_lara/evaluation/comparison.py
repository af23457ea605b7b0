"""A comparison: every method on the same game and the same targets, over several seeds, one table.

A unit of work is one method with one seed: fit, explain, measure. Its figures are stored when it is done, so an
interrupted comparison goes on where it was. Speed is a unit of its own, measured in turns with LARA, so that the ratio
of the two does not depend on what else the machine was doing; how long a method has learned makes no difference to it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from dgl_lara import __version__
from dgl_lara.baselines import gnn_explainer, orphicx, pg_explainer
from dgl_lara.baselines.fastdnx import FastDnX
from dgl_lara.baselines.gradient import AbsoluteGradientInput, GradientInput
from dgl_lara.baselines.graphsvx import GraphSVX
from dgl_lara.baselines.method import Method
from dgl_lara.baselines.random import Random
from dgl_lara.baselines.sampled import Sampled
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import LaraError
from dgl_lara.explainer.network import Explainer, ExplainerConfig
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.inference.scores import Embeddings, embed_all, explain
from dgl_lara.metrics.agreement import Reference, agreement, reference
from dgl_lara.metrics.auc import auc
from dgl_lara.metrics.fidelity import fidelity
from dgl_lara.metrics.speed import clock
from dgl_lara.model.weights import weights_hash
from dgl_lara.training.loop import MANY_TARGETS, TrainingConfig, default, paper, train
from dgl_lara.training.subgraphs import some_targets
from dgl_lara.utils.files import short_hash, written_whole
from dgl_lara.utils.progress import Progress, say
from dgl_lara.utils.randomness import generator

SAMPLED_PAIRS = {"node": 300, "graph": 100}
REFERENCE_PAIRS = 2000
ROUNDS, SECONDS_A_ROUND, LONGEST_ROUND = 3, 1.0, 10.0

# What a quick comparison shortens; its tables say so. LARA's own training takes about a minute on small graphs and
# stays whole.
QUICK_STEPS_LARGE = 60  # of LARA, where each teaches more than MANY_TARGETS at once
QUICK_LEARNERS = 200  # training targets of the rivals
QUICK_ORPHICX_STEPS = 200
QUICK_PAPER_STEPS = 600  # of LARA in the paper's form
QUICK_SAMPLES_LARGE = 200  # of GraphSVX, on a graph of more than MANY_TARGETS
QUICK_MINUTES = 3  # a method whose explanations would take longer is left out
QUICK_PHI = 4  # by which the pairs of phi's estimate are divided
QUICK = (
    QUICK_STEPS_LARGE, QUICK_LEARNERS, QUICK_ORPHICX_STEPS, QUICK_PAPER_STEPS, QUICK_SAMPLES_LARGE, QUICK_MINUTES,
    QUICK_PHI,
)  # fmt: skip
QUICK_WORDS = (
    f"Quick: LARA trains as usual on small graphs and makes {QUICK_STEPS_LARGE} of 300 steps on large ones, in the "
    f"paper's form {QUICK_PAPER_STEPS} of 3,000; rivals that learn see {QUICK_LEARNERS} targets, OrphicX makes "
    f"{QUICK_ORPHICX_STEPS} steps in the place of its authors' 300 epochs, GraphSVX draws {QUICK_SAMPLES_LARGE} of 800 "
    f"samples on large graphs; phi is estimated from {REFERENCE_PAIRS // QUICK_PHI} pairs; a method whose explanations "
    f"would take more than {QUICK_MINUTES} minutes is left out."
)

Maker = Callable[["Contest", int], Method]


class Lara(Method):
    """Ours, under the protocol of the others. `explain` includes the pass of g over everything, `explain_again` does
    not: it goes on from the embeddings of an earlier pass, as PGExplainer does from f's."""

    name = "lara"
    learns = True

    def __init__(self, game: Game, seed: int, config: TrainingConfig, validation: Tensor, label: str = "lara") -> None:
        super().__init__(game, seed)
        self.config, self.validation, self._label = replace(config, seed=seed), validation, label
        self.explainer: Explainer | None = None
        self.embeddings: Embeddings | None = None

    @property
    def label(self) -> str:
        return self._label

    def fit(self, targets: Tensor) -> None:
        state = train(self.game, self.config, targets, self.validation)
        state.average.load_state_dict(state.best_weights)
        self.explainer = state.average

    def save(self, path: Path) -> None:
        assert self.explainer is not None
        with written_whole(path) as temporary:
            content = {"config": asdict(self.explainer.config), "weights": self.explainer.state_dict()}
            torch.save(content, temporary)

    def load(self, path: Path) -> None:
        """In the place of `fit`."""
        content = torch.load(path, weights_only=True, map_location=self.game.features.device)
        self.explainer = Explainer(ExplainerConfig(**content["config"])).to(self.game.features.device)
        self.explainer.load_state_dict(content["weights"])
        self.explainer.requires_grad_(False).eval()

    def explain(self, targets: Tensor) -> Explanations:
        if self.explainer is None:
            raise LaraError("lara explains only after fit.")
        self.embeddings = embed_all(self.explainer, self.game, self.config.inputs)
        return self.explain_again(targets)

    def explain_again(self, targets: Tensor) -> Explanations:
        assert self.explainer is not None and self.embeddings is not None
        return replace(explain(self.explainer, self.game, self.embeddings, targets), method=self.label)


@dataclass(frozen=True, eq=False)
class Contest:
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
    def phi(self) -> Reference:
        return reference(self.game, self.targets, REFERENCE_PAIRS // (QUICK_PHI if self.quick else 1), 0)

    def lara_config(self) -> TrainingConfig:
        config = default(self.game.task, len(self.dataset.train))
        short = self.quick and len(self.dataset.train) > MANY_TARGETS
        return replace(config, steps=self.steps or (QUICK_STEPS_LARGE if short else config.steps))

    def paper_config(self) -> TrainingConfig:
        config = paper(self.game.task)
        steps = self.steps or (QUICK_PAPER_STEPS if self.quick else config.steps)
        # an epoch of all targets can have more steps than that
        return replace(config, steps=steps, targets=steps * config.batch_size)


def contest(dataset: Dataset, game: Game, most: int, quick: bool, steps: int | None = None) -> Contest:
    return Contest(dataset, game, some_targets(dataset.test, most, 0), quick, steps)


def parts_folder(contest: Contest, metrics: Sequence[str], out: Path) -> Path:
    """Where the units of exactly this comparison are kept: another question gets another folder."""
    game = contest.game
    question = {"data": contest.dataset.key, "model": weights_hash(game.f), "value": game.value, "hops": game.hops}
    question |= {"targets": contest.targets.tolist(), "quick": QUICK if contest.quick else None}
    question |= {"metrics": sorted(set(metrics) - {"throughput"}), "device": contest.targets.device.type}
    question |= {"steps": contest.steps} if contest.steps else {}
    return out / "parts" / short_hash({**question, "version": __version__})


def lara_with(label: str = "lara", form: str = "default", **changes: Any) -> Maker:
    """LARA, in our form or in the paper's, with some of its settings changed."""

    def make(contest: Contest, seed: int) -> Method:
        config = contest.paper_config() if form == "paper" else contest.lara_config()
        if changes.get("train_on") == "all" and contest.game.task == "graph":
            raise LaraError("the graphs to be explained are new ones, there is nothing more to learn from.")
        return Lara(contest.game, seed, replace(config, **changes), contest.dataset.val, label)

    return make


def _sampled(contest: Contest, seed: int) -> Method:
    return Sampled(contest.game, seed, SAMPLED_PAIRS[contest.game.task])


def _gnn_explainer(contest: Contest, seed: int) -> Method:
    settings = gnn_explainer.for_dataset(contest.dataset.name)
    return gnn_explainer.GNNExplainer(contest.game, seed, **settings)


def _pg_explainer(contest: Contest, seed: int) -> Method:
    return pg_explainer.PGExplainer(contest.game, seed, pg_explainer.for_dataset(contest.dataset.name))


def _graphsvx(contest: Contest, seed: int) -> Method:
    fewer = contest.quick and contest.large
    return GraphSVX(contest.game, seed, samples=QUICK_SAMPLES_LARGE) if fewer else GraphSVX(contest.game, seed)


def _orphicx(contest: Contest, seed: int) -> Method:
    method = orphicx.OrphicX(contest.game, seed)
    if contest.quick:
        method.config = replace(method.config, steps=QUICK_ORPHICX_STEPS)
    return method


def _plain(method: type[Method]) -> Maker:
    return lambda contest, seed: method(contest.game, seed)


# In the order of the tables. `choices.METHODS` lists the same names for the command line.
METHODS: dict[str, Maker] = {
    "random": _plain(Random),
    "gradient": _plain(GradientInput),
    "abs-gradient": _plain(AbsoluteGradientInput),
    "gnn-explainer": _gnn_explainer,
    "pg-explainer": _pg_explainer,
    "graphsvx": _graphsvx,
    "orphicx": _orphicx,
    "fastdnx": _plain(FastDnX),
    "sampled": _sampled,
    "lara-paper": lara_with("lara, paper's form", "paper"),
    "lara": lara_with(),
    "lara-all": lara_with("lara, all nodes", train_on="all"),  # no label is needed, so any node can teach
}


def compare(
    contest: Contest,
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
    wanted = [(seed, name) for seed in range(seeds) for name in methods]
    records = []
    for seed, name in Progress(wanted, "comparing", unit="method"):
        path = folder / f"{name}-{seed}.json"
        record = _stored(path, settings_of(contest, name, seed, makers))
        if record is None:
            _speed_file(path).unlink(missing_ok=True)  # it belonged to other settings
            record, method = unit(contest, name, metrics, seed, makers)
            if isinstance(method, Lara):
                method.save(path.with_suffix(".pt"))
            _store(path, record)
        records.append(record)
    if "throughput" in metrics:
        able = [(record["seed"], record["method"]) for record in records if "left out" not in record]
        yardsticks: dict[int, Lara] = {}
        for seed, name in Progress(able, "timing", unit="method"):
            path = _speed_file(folder / f"{name}-{seed}.json")
            if not path.exists():
                _store(path, timed(contest, name, seed, folder, yardsticks, makers))
            records[wanted.index((seed, name))].update(json.loads(path.read_text()))
    return pd.DataFrame(records).drop(columns="settings", errors="ignore")


def _speed_file(path: Path) -> Path:
    return path.with_name(f"{path.stem}-speed.json")


def _store(path: Path, record: dict) -> None:
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1))


def _stored(path: Path, settings: dict | None) -> dict | None:
    """The figures kept there, if they were made with these settings of LARA (None: another method)."""
    record = json.loads(path.read_text()) if path.exists() else None
    return record if record is not None and record.get("settings") == settings else None


def settings_of(contest: Contest, name: str, seed: int, makers: Mapping[str, Maker]) -> dict | None:
    try:
        method = makers[name](contest, seed)
    except LaraError:  # its row will say why
        return None
    return asdict(method.config) if isinstance(method, Lara) else None


def unit(
    contest: Contest, name: str, metrics: Sequence[str], seed: int, makers: Mapping[str, Maker] = METHODS
) -> tuple[dict, Method | None]:
    """Fit, explain and measure one method. A method that cannot do this task says why, in its row."""
    record: dict[str, object] = {"method": name, "label": name, "seed": seed}
    try:
        method, record["fit (s)"] = fitted(contest, name, seed, makers)
        check_patience(contest, method)
        start = time.perf_counter()
        explanations = method.explain(contest.targets)
        record["explain (s)"] = time.perf_counter() - start
    except LaraError as reason:
        say(f"{name} is left out: {reason}")
        return {**record, "left out": str(reason)}, None
    record |= {"label": method.label, "settings": asdict(method.config) if isinstance(method, Lara) else None}
    if "fidelity" in metrics:
        record.update(_fidelity(contest.game, explanations))
    if "agreement" in metrics:
        figures = agreement(explanations, contest.phi)
        record.update({"R2": figures["R2 corrected"], "R2, neighbours": figures["neighbours only"]})
        record["rank correlation"] = figures["rank correlation"]
    if "auc" in metrics and contest.dataset.motif is not None:
        record["AUC"] = auc(explanations, contest.dataset.motif)["signed, pooled"]
    return record, method


def check_patience(contest: Contest, method: Method) -> None:
    """A quick comparison does not wait for a method that is slow beyond measure; two targets tell.

    The processors' time where that is less, so that what else the machine does leaves nobody out.
    """
    if not contest.quick or isinstance(method, Lara):
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


def fitted(contest: Contest, name: str, seed: int, makers: Mapping[str, Maker] = METHODS) -> tuple[Method, float]:
    method = makers[name](contest, seed)
    start = time.perf_counter()
    if method.learns:
        learners = contest.dataset.train
        if isinstance(method, Lara):
            learners = contest.dataset.split(method.config.train_on)
        elif contest.quick:
            learners = some_targets(learners, QUICK_LEARNERS, 0)  # drawn: the first ones may all be of one kind
        method.fit(learners)
    return method, time.perf_counter() - start


def taught_a_little(contest: Contest, name: str, seed: int, makers: Mapping[str, Maker] = METHODS) -> Method:
    """Ready to explain, for measuring its speed."""
    method = makers[name](contest, seed)
    if isinstance(method, Lara | orphicx.OrphicX):
        method.config = replace(method.config, steps=2)
    elif isinstance(method, pg_explainer.PGExplainer):
        method.settings = replace(method.settings, epochs=1)
    elif isinstance(method, FastDnX):
        method.iterations = 2
    if method.learns:
        method.fit(contest.targets)
    return method


def timed(
    contest: Contest, name: str, seed: int, folder: Path, yardsticks: dict[int, Lara], makers: Mapping[str, Maker]
) -> dict[str, float]:
    """The speed of one method. LARA is taken as it was trained, where it is kept."""
    if seed not in yardsticks:
        yardsticks[seed] = taught_a_little(contest, "lara", seed)  # type: ignore[assignment]
    weights = folder / f"{name}-{seed}.pt"
    if weights.exists():
        method = makers[name](contest, seed)
        method.load(weights)  # type: ignore[attr-defined]
    else:
        method = taught_a_little(contest, name, seed, makers)
    return in_turns(contest, method, yardsticks[seed])


def _fidelity(game: Game, explanations: Explanations) -> dict[str, float]:
    """Averages, and Delta Fidelity at each sparsity."""
    figures = {}
    for _, row in fidelity(game, explanations).iterrows():
        where = f"{row['definition']}, {row['sparsity']}"
        for short, name in (("F+", "fidelity+"), ("F-", "fidelity-"), ("Delta", "delta")):
            figures[f"{short} {where}"] = row[name]
    return figures


def in_turns(contest: Contest, method: Method, lara: Lara) -> dict[str, float]:
    """Targets a second, of everything that can be explained: this method on a draw as large as time allows, LARA on all
    of it, in turns; LARA from scratch, with the pass of g over everything, and from stored embeddings."""
    count, device = contest.game.num_targets, contest.targets.device
    everyone = torch.arange(count, device=device)
    drawn = everyone[torch.randperm(count, generator=generator(0)).to(device)]
    some = everyone if isinstance(method, Lara) else drawn[: affordable(method, drawn)]
    again = method.explain_again if isinstance(method, Lara) else lara.explain_again
    calls = [(method.explain, some), (lara.explain, everyone), (again, everyone)]
    rounds = [[rate(call, targets, device) for call, targets in calls] for _ in range(ROUNDS)]
    theirs, scratch, stored = zip(*rounds, strict=True)
    figures = {
        "targets/s": median(theirs),
        "LARA is x times faster": median(ours / rate for ours, rate in zip(scratch, theirs, strict=True)),
        "LARA, stored, is x times faster": median(ours / rate for ours, rate in zip(stored, theirs, strict=True)),
    }
    return figures | ({"targets/s, stored": median(stored)} if isinstance(method, Lara) else {})


def affordable(method: Method, targets: Tensor) -> int:
    """How many of the targets to explain in one round: more and more, while that takes less than a second or makes the
    method a fifth faster (many take hardly longer for a hundred targets than for one), but not for minutes."""
    count, best = 1, 0.0
    while True:
        reached = rate(method.explain, targets[:count], targets.device)
        spent = count / reached
        if count == len(targets) or spent > LONGEST_ROUND or (spent > SECONDS_A_ROUND and reached < 1.2 * best):
            return count
        count, best = min(4 * count, len(targets)), max(best, reached)


def rate(call: Callable[[Tensor], Explanations], targets: Tensor, device: torch.device) -> float:
    start = clock(device)
    call(targets)
    return len(targets) / max(clock(device) - start, 1e-9)

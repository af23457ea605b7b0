"""What a report says that has to be computed: figures, tables, examples."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import Tensor

from dgl_lara._util.progress import log_info
from dgl_lara._util.randomness import sample_targets
from dgl_lara._util.timing import seconds
from dgl_lara.baselines.sampled import Sampled
from dgl_lara.evaluation.run_evaluation import Evaluation, evaluate
from dgl_lara.evaluation.runtime_estimate import announce
from dgl_lara.explanation import Explanation, Explanations, Summary
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.common.metric import EvalCase
from dgl_lara.metrics.fidelity import fidelity_per_target
from dgl_lara.reports.global_summary import explained_in_general
from dgl_lara.runs.run import Run

EACH = 4  # examples of best, typical and worst
SUMMED_UP = 500  # targets of the general view
TIMED = 10  # targets on which `sampled` is timed


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything the page says that had to be computed."""

    run: Run
    split: str
    seed: int
    targets: Tensor
    accuracy: dict[str, float] | None  # None: outputs are no classes, or there are no labels
    history: pd.DataFrame
    tables: dict[str, pd.DataFrame]  # fidelity, agreement, auc (empty without ground truth)
    speed: pd.DataFrame
    cost: str  # what f had to do for each explanation
    examples: dict[str, list[tuple[Explanation, float]]]  # best, typical, worst: with their delta
    general: list[tuple[Summary, Explanations]]  # a kind of players each
    again: str  # the options with which eval measures the same
    right: float | None  # share of the targets that f predicts rightly


def measure(run: Run, split: str, most: int, pairs: int | None, reference_pairs: int, seed: int) -> ReportData:
    dataset, lara = run.dataset, run.trained()
    targets = sample_targets(dataset.split(split), most, seed)
    subject = Evaluation(lara, EvalCase(lara.game, targets, dataset.motif, reference_pairs, seed), pairs)
    metrics = ("fidelity", "agreement", "auc")
    announce(subject, metrics, TIMED)
    tables = {}
    for metric in metrics:
        if METRICS[metric].unavailable(subject.case) is None:
            log_info(f"measuring {metric} on {len(targets)} {split} {dataset.task}s")
        tables[metric] = evaluate(subject, metric)
    log_info("timing explanations, choosing examples")
    explanations = subject.explanations[-1].named(**run.names)
    predicted, accuracy = lara.game.explained_class[targets], _accuracy(run)
    return ReportData(
        run=run,
        split=split,
        seed=seed,
        targets=targets,
        accuracy=accuracy,
        history=run.history,
        tables=tables,
        speed=_speed(subject),
        cost=subject.cost_in_words(),
        examples=examples_of(run, explanations),
        general=explained_in_general(run.parts, "all", SUMMED_UP),
        again=f"--run {shlex.quote(str(run.folder))}{' --trust' * bool(run.config.model)} --split {split} --targets "
        f"{len(targets)} --reference-pairs {reference_pairs} --seed {seed}",
        right=(predicted == dataset.labels[targets]).float().mean().item() if accuracy else None,
    )


def _speed(subject: Evaluation) -> pd.DataFrame:
    """A row for LARA at one target and at all of them, and one for direct sampling at a few."""
    lara, targets, device = subject.lara, subject.case.targets, subject.case.targets.device
    lara.embed()
    rows = []
    for count in sorted({1, len(targets)}):
        spent = seconds(lambda n=count: lara.explain(targets[:n]), device)  # type: ignore[misc]
        rows.append(("lara, embeddings stored", count, spent, count / spent))
    if any(explanations.method.startswith("sampled") for explanations in subject.explanations):
        few, sampled = targets[:TIMED], Sampled(lara.game, subject.case.seed, subject.pairs)
        spent = seconds(lambda: sampled.explain(few), device, repeats=1)
        rows.append((sampled.label, len(few), spent, len(few) / spent))
    return pd.DataFrame(rows, columns=["method", "targets", "seconds", "explanations a second"])


def examples_of(run: Run, lara: Explanations) -> dict[str, list[tuple[Explanation, float]]]:
    """By each target's own delta fidelity (target kept), averaged over sparsity."""
    plus, minus = fidelity_per_target(run.game, lara, keep_target=True)
    delta = (plus - minus).mean(dim=0).cpu().numpy()
    order = [place for place in np.argsort(-delta, kind="stable").tolist() if np.isfinite(delta[place])]
    best, rest = order[:EACH], order[EACH:]
    worst, rest = rest[max(len(rest) - EACH, 0) :], rest[: max(len(rest) - EACH, 0)]
    middle = max(len(rest) - EACH, 0) // 2
    groups = {"best": best, "typical": rest[middle : middle + EACH], "worst": worst}
    return {name: [(lara[place], float(delta[place])) for place in places] for name, places in groups.items()}


def _accuracy(run: Run) -> dict[str, float] | None:
    """Of the explained model on the three splits."""
    if not run.dataset.is_labelled or run.game.value == "output":
        return None
    right = run.game.explained_class == run.dataset.labels
    return {name: right[run.dataset.split(name)].float().mean().item() for name in ("train", "val", "test")}

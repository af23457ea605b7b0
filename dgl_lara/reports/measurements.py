"""The figures, tables and examples of a report."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import Tensor

from dgl_lara._util.notices import notice
from dgl_lara._util.randomness import sample_targets
from dgl_lara._util.timing import seconds
from dgl_lara.baselines.sampled import Sampled
from dgl_lara.evaluation.run_evaluation import Evaluation, evaluate
from dgl_lara.evaluation.runtime_estimate import announce
from dgl_lara.explanation import Explanation, Explanations, Summary
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.common.metric import EvalCase
from dgl_lara.metrics.fidelity import fidelity_per_target
from dgl_lara.reports.global_summary import summaries_of
from dgl_lara.runs.run import Run

NUM_EXAMPLES = 4  # of the best, typical and worst ones
MAX_SUMMARY_TARGETS = 500
NUM_SAMPLED_TARGETS = 10  # on which direct sampling is timed


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything on the page that had to be computed."""

    run: Run
    split: str
    seed: int
    targets: Tensor
    accuracy: dict[str, float] | None  # of the model on the three splits, if there are classes and labels
    history: pd.DataFrame
    tables: dict[str, pd.DataFrame]  # fidelity, agreement, auc (empty without ground truth)
    speed: pd.DataFrame
    cost: str  # model calls for each explanation
    examples: dict[str, list[tuple[Explanation, float]]]  # best, typical, worst, with their delta fidelity
    summaries: list[tuple[Summary, Explanations]]  # one for each player set
    eval_options: str  # with which `eval` gives equal figures
    target_accuracy: float | None  # of the model on the targets


def measure(run: Run, split: str, max_targets: int, pairs: int | None, reference_pairs: int, seed: int) -> ReportData:
    """Evaluate a trained run for a report. `pairs` are those of direct sampling (0 leaves it out)."""
    dataset, lara = run.dataset, run.trained()
    targets = sample_targets(dataset.split(split), max_targets, seed)
    evaluation = Evaluation(lara, EvalCase(lara.game, targets, dataset.motif, reference_pairs, seed), pairs)
    metrics = ("fidelity", "agreement", "auc")
    announce(evaluation, metrics, NUM_SAMPLED_TARGETS)
    tables = {}
    for metric in metrics:
        if METRICS[metric].unavailable(evaluation.case) is None:
            notice("report.measuring", metric=metric, count=len(targets), split=split, task=dataset.task)
        tables[metric] = evaluate(evaluation, metric)
    notice("report.examples")
    explanations = evaluation.explanations[-1].named(**run.names)
    predicted, accuracy = lara.game.explained_class[targets], _accuracy(run)
    return ReportData(
        run=run,
        split=split,
        seed=seed,
        targets=targets,
        accuracy=accuracy,
        history=run.history,
        tables=tables,
        speed=_speed(evaluation),
        cost=evaluation.cost_text(),
        examples=examples_of(run, explanations),
        summaries=summaries_of(run.parts, "all", MAX_SUMMARY_TARGETS),
        eval_options=f"--run {shlex.quote(str(run.folder))}{' --trust' * bool(run.config.model)} --split {split} "
        f"--targets {len(targets)} --reference-pairs {reference_pairs} --seed {seed}",
        target_accuracy=(predicted == dataset.labels[targets]).float().mean().item() if accuracy else None,
    )


def _speed(evaluation: Evaluation) -> pd.DataFrame:
    """Time LARA for one and for all targets, and direct sampling for a few."""
    lara, targets, device = evaluation.lara, evaluation.case.targets, evaluation.case.targets.device
    lara.embed()
    rows = []
    for count in sorted({1, len(targets)}):
        elapsed = seconds(lambda n=count: lara.explain(targets[:n]), device)  # type: ignore[misc]
        rows.append(("lara, embeddings stored", count, elapsed, count / elapsed))
    if any(explanations.method.startswith("sampled") for explanations in evaluation.explanations):
        some, sampled = targets[:NUM_SAMPLED_TARGETS], Sampled(lara.game, evaluation.case.seed, evaluation.pairs)
        elapsed = seconds(lambda: sampled.explain(some), device, repeats=1)
        rows.append((sampled.label, len(some), elapsed, len(some) / elapsed))
    return pd.DataFrame(rows, columns=["method", "targets", "seconds", "explanations a second"])


def examples_of(run: Run, explanations: Explanations) -> dict[str, list[tuple[Explanation, float]]]:
    """Return the explanations with the best, middle and worst delta fidelity (target kept, mean over sparsity)."""
    plus, minus = fidelity_per_target(run.game, explanations, keep_target=True)
    delta = (plus - minus).mean(dim=0).cpu().numpy()
    order = [row for row in np.argsort(-delta, kind="stable").tolist() if np.isfinite(delta[row])]
    best, rest = order[:NUM_EXAMPLES], order[NUM_EXAMPLES:]
    worst, rest = rest[max(len(rest) - NUM_EXAMPLES, 0) :], rest[: max(len(rest) - NUM_EXAMPLES, 0)]
    middle = max(len(rest) - NUM_EXAMPLES, 0) // 2
    groups = {"best": best, "typical": rest[middle : middle + NUM_EXAMPLES], "worst": worst}
    return {name: [(explanations[row], float(delta[row])) for row in rows] for name, rows in groups.items()}


def _accuracy(run: Run) -> dict[str, float] | None:
    if not run.dataset.is_labelled or run.game.value == "output":
        return None
    right = run.game.explained_class == run.dataset.labels
    return {name: right[run.dataset.split(name)].float().mean().item() for name in ("train", "val", "test")}

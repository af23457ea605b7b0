"""Command `dgl-lara eval`. Measure a trained explainer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dgl_lara.cli.console import echo, warn_about, width
from dgl_lara.cli.options import (
    COUNT,
    DATASET_NAME,
    INDEX,
    RUN,
    OutputPath,
    check_options,
    check_run,
    choose_device,
    device_option,
    options_set,
    players_option,
    seed_option,
    split_option,
    stored_name,
    trust_options,
)
from dgl_lara.errors import InputError, message
from dgl_lara.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd


@click.command("eval")
@click.option("--run", "folder", type=RUN, help="Run to evaluate. Default is the newest.")
@click.option("--dataset", "name", type=DATASET_NAME, help="Evaluate the newest run of this data set.")
@click.option("--metric", "metrics", type=click.Choice([*METRICS, "all"]), default=["fidelity"], multiple=True,
              show_default=True, help="Repeatable.")  # fmt: skip
@split_option("Measure on this split.", "test")
@click.option("--targets", type=COUNT, default=1000, show_default=True, help="Number of targets, at most.")
@click.option("--pairs", type=INDEX, help="Coalition pairs of the 'sampled' row. Default is 300, for graphs 100.")
@click.option("--reference-pairs", type=click.IntRange(100, 1_000_000), default=2000, show_default=True,
              help="Coalition pairs of the true attribution that agreement is measured against.")  # fmt: skip
@click.option(
    "--json",
    "json_file",
    type=OutputPath(dir_okay=False, allow_dash=True, path_type=Path),
    help="Write the figures to this file too. '-' is standard output, and everything else goes to standard error.",
)
@seed_option
@players_option
@device_option
@trust_options
def evaluate_command(
    folder: Path | None,
    name: str | None,
    metrics: tuple[str, ...],
    split: str,
    targets: int,
    pairs: int | None,
    reference_pairs: int,
    json_file: Path | None,
    seed: int,
    players: str | None,
    device: str,
    trust: bool | str,
) -> None:
    """Measure a trained explainer. Prints tables and writes CSV, JSON and plots."""
    from dgl_lara._util.randomness import sample_targets
    from dgl_lara.evaluation.run_evaluation import Evaluation, evaluate
    from dgl_lara.evaluation.runtime_estimate import announce
    from dgl_lara.metrics.common.metric import EvalCase
    from dgl_lara.reports.eval_tables import as_json, print_table, write_json, write_results
    from dgl_lara.runs.folder import newest_run
    from dgl_lara.runs.open import open_run
    from dgl_lara.runs.overview import RunSummary

    check_options(options_set(), exclusive=[("--run", "--dataset")])
    check_run(folder)
    where = folder or newest_run(name and stored_name(name))
    run = open_run(where, choose_device(device), trust=trust, players=players, to_explain=True)
    dataset, lara = run.dataset, run.trained()
    chosen = sample_targets(dataset.split(split), targets, seed)
    subject = Evaluation(lara, EvalCase(lara.game, chosen, dataset.motif, reference_pairs, seed), pairs)
    what = f"{dataset.name} ({dataset.source}), {len(chosen)} {split} {dataset.task}s, value: {lara.game.value}"
    what += "" if lara.players.name == "nodes" else f", players: {lara.players.name}"
    names = tuple(dict.fromkeys(METRICS if "all" in metrics else metrics))
    lacking = {each: reason for each in names if (reason := METRICS[each].unavailable(subject.case))}
    if len(lacking) == len(names):
        reasons = ", ".join(f"{each}: {message(reason)}" for each, reason in lacking.items())
        raise InputError("metric.unavailable", reasons=reasons)
    to_stdout = json_file == Path("-")
    report = partial(echo, err=to_stdout)
    report(f"{what}; run {run.folder}")
    warn_about(run.folder)
    for each, reason in lacking.items():
        report(f"no {each}: {message(reason)}")
    names = tuple(each for each in names if each not in lacking)
    announce(subject, names)
    question = {"targets": len(chosen), "split": split, "seed": seed, "pairs": pairs, "reference": reference_pairs}
    question["steps"] = RunSummary(run.folder).steps  # a continued training changes the explainer
    stem = "eval" if split == "test" else f"eval-{split}"
    results: dict[str, pd.DataFrame] = {}
    written: list[Path] = []
    for each in names:
        if METRICS[each] in [METRICS[done] for done in results]:
            continue  # one table shows both
        results[each] = evaluate(subject, each)
        written += write_results(each, results[each], run.folder, stem, what, question)
        report(f"\n{each}")
        report(print_table(each, results[each], width()))
    if cost := subject.cost_text():
        report("\n" + cost)
    if to_stdout:
        echo(as_json(what, question, results))
    elif json_file:
        written.append(write_json(json_file, what, question, results))
    if written:
        report("\nwritten: " + ", ".join(map(str, written)))

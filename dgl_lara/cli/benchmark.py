"""Command `dgl-lara benchmark`. Compare methods by metrics in one table."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import click

from dgl_lara._util.registry import closest
from dgl_lara.baselines import BASELINES
from dgl_lara.cli.console import echo
from dgl_lara.cli.options import (
    COUNT,
    FILE,
    NEW_FOLDER,
    RUN,
    Parsed,
    check_options,
    check_run,
    choose_device,
    dataset_options,
    device_option,
    gnn_for,
    load_dataset,
    options_set,
    trust_options,
)
from dgl_lara.constants import LARA_FORMS, VALUES
from dgl_lara.datasets import Options
from dgl_lara.errors import InputError, message
from dgl_lara.metrics import METRICS

METHODS = (*BASELINES.names, *LARA_FORMS)


def _comma_list(name: str, known: tuple[str, ...]) -> Parsed:
    """Return the type of words with commas between them, or of 'all'."""

    def parse(text: str) -> tuple[str, ...]:
        words = known if text == "all" else tuple(word.strip() for word in text.split(","))
        if wrong := [word for word in words if word not in known]:
            hint = closest(wrong[0], known)
            raise InputError("option.words", name=name, known=", ".join(known), got=wrong[0], hint=hint)
        return words

    return Parsed(name, parse)


@click.command()
@partial(dataset_options, required=False)
@click.option("--run", "folder", type=RUN, help="Compare on the model and data of this run.")
@click.option("--target", "target_file", type=FILE, help="Model to explain (.pt or .npz). Default is train one.")
@click.option("--methods", type=_comma_list("methods", METHODS), default="all", show_default=True,
              help=f"Comma-separated: {', '.join(METHODS)}.")  # fmt: skip
@click.option("--metric", "metrics", type=_comma_list("metrics", METRICS.names), default="all", show_default=True,
              help=f"Comma-separated: {', '.join(METRICS)}.")  # fmt: skip
@click.option("--targets", type=COUNT, default=200, show_default=True, help="Test targets, at most.")
@click.option("--seeds", type=COUNT, default=5, show_default=True, help="Repetitions of each method.")
@click.option("--value", type=click.Choice(VALUES), default="logit", show_default=True, help="Number to explain.")
@click.option("--quick", is_flag=True, help="Shorter training, mostly of the baselines, in minutes instead of hours.")
@click.option("--out", type=NEW_FOLDER, help="Folder of the results. Default is runs/benchmark-<dataset>.")
@device_option
@trust_options
def benchmark(
    name: str | None,
    options: Options,
    folder: Path | None,
    target_file: Path | None,
    methods: tuple[str, ...],
    metrics: tuple[str, ...],
    targets: int,
    seeds: int,
    value: str,
    quick: bool,
    out: Path | None,
    device: str,
    trust: bool | str,
) -> None:
    """Compare LARA with baselines. An interrupted comparison continues where it stopped."""
    check_run(folder)
    from dgl_lara._util.notices import notice
    from dgl_lara._util.writable import check_folder
    from dgl_lara.evaluation.benchmark import Benchmark, quick_note, results_folder, run_benchmark
    from dgl_lara.lara import LARA
    from dgl_lara.reports.benchmark_table import summary, terminal_table, write_comparison
    from dgl_lara.runs.folder import RUNS
    from dgl_lara.runs.open import open_run

    check_options(options_set(), one_of=("--dataset", "--run"))
    if out is None:
        check_folder(RUNS, "Name another place with --out.")
    if folder:
        run = open_run(folder, choose_device(device), trust=trust)
        dataset, game = run.dataset, run.game
    else:
        dataset = load_dataset(str(name), options, device)
        model, _ = gnn_for(dataset, target_file, 0)
        game = LARA(model, dataset.graph, dataset.features, dataset.task, value=value).game
    benchmark = Benchmark.on(dataset, game, targets, quick)
    many = f"{len(methods)} method{'s' * (len(methods) != 1)}, {seeds} seed{'s' * (seeds != 1)} of each"
    notice("benchmark.comparing", methods=many, targets=len(benchmark.targets))
    if folder and set(methods) & set(LARA_FORMS):
        notice("benchmark.trains_lara")
    if not quick:
        notice("benchmark.shorter")
    lacking = {metric: METRICS[metric].unavailable(benchmark.case) for metric in metrics}
    for metric, reason in lacking.items():
        if reason:
            notice("benchmark.no_metric", metric=metric, reason=message(reason))
    out = out or RUNS / f"benchmark-{dataset.name}"
    records = run_benchmark(benchmark, methods, metrics, seeds, results_folder(benchmark, metrics, out))
    table = summary(records)
    title = f"{dataset.name} ({dataset.source}), {len(benchmark.targets)} test targets, value: {game.value}"
    title += ", quick" if quick else ""
    echo(title)
    echo(terminal_table(table, shutil.get_terminal_size(fallback=(100, 24)).columns))
    note = quick_note() if quick else ""
    for _, row in table.iterrows():
        if isinstance(row.get("left out"), str):
            echo(f"left out: {row['name']} ({row['left out']})")
    files = write_comparison(records, table, title, out, note)
    echo("written: " + ", ".join(map(str, files)))

"""Command `dgl-lara report`. Write an HTML page about a run."""

from __future__ import annotations

from pathlib import Path

import click

from dgl_lara.cli.console import echo, note_run, warn_about
from dgl_lara.cli.options import (
    COUNT,
    INDEX,
    NEW_FILE,
    RUN,
    check_ending,
    check_run,
    choose_device,
    device_option,
    seed_option,
    split_option,
    trust_options,
)


@click.command("report")
@click.option("--run", "folder", type=RUN, help="Run to report on. Default is the newest.")
@click.option("--out", type=NEW_FILE, help="An .html file. Default is report.html in the run folder.")
@split_option("Measure on this split.", "test")
@click.option("--targets", type=COUNT, default=100, show_default=True, help="Number of targets, at most.")
@click.option("--pairs", type=INDEX, help="Coalition pairs of the 'sampled' row. Default is 300, for graphs 100.")
@click.option("--reference-pairs", type=click.IntRange(100, 1_000_000), default=1000, show_default=True,
              help="Coalition pairs of the true attribution that agreement is measured against.")  # fmt: skip
@seed_option
@device_option
@trust_options
def report(
    folder: Path | None,
    out: Path | None,
    split: str,
    targets: int,
    pairs: int | None,
    reference_pairs: int,
    seed: int,
    device: str,
    trust: bool | str,
) -> None:
    """Write a self-contained HTML page about a run, with quality, examples, settings and caveats."""
    if out:
        check_ending("--out", out, [".html"])
    check_run(folder)
    from dgl_lara._util.atomic import atomic_write
    from dgl_lara._util.memory import reuse_freed_memory
    from dgl_lara._util.writable import check_folder
    from dgl_lara.reports.html import render
    from dgl_lara.reports.measurements import measure
    from dgl_lara.runs.open import open_run

    reuse_freed_memory()
    folder = note_run(folder)
    if out is None:
        check_folder(folder, "Name another place with --out.")
    run = open_run(folder, choose_device(device), trust=trust, to_explain=True)
    warn_about(run.folder)
    page = render(measure(run, split, targets, pairs, reference_pairs, seed))
    out = out or folder / "report.html"
    with atomic_write(out) as temporary:
        temporary.write_text(page)
    echo(f"written: {out}")

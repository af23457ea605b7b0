"""`dgl-lara report`: one page on a run, to keep or to send."""

from __future__ import annotations

from pathlib import Path

import click

from dgl_lara.cli.console import echo, warn_about
from dgl_lara.cli.options import (
    NEW_FILE,
    RUN,
    Count,
    check_there,
    choose_device,
    device_option,
    seed_option,
    trust_options,
)


@click.command("report")
@click.option("--run", "folder", type=RUN, help="Run to report on. Default: the newest.")
@click.option("--out", type=NEW_FILE, help="An .html file. Default: report.html in the run folder.")
@click.option("--split", type=click.Choice(["train", "val", "test"]), default="test", show_default=True)
@click.option("--targets", type=Count(), default=100, show_default=True, help="Measure at most so many.")
@click.option("--pairs", type=Count(0), help="Coalition pairs of the 'sampled' row. [300; graphs: 100]")
@click.option("--reference-pairs", type=Count(100, 1_000_000), default=1000, show_default=True,
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
    """Write one self-contained HTML page: what was explained, how well, examples, settings, caveats."""
    if out and out.suffix != ".html":
        raise click.UsageError(f"--out must end in .html (got '{out.name}').")

    check_there(folder)
    from dgl_lara._util.atomic import atomic_write
    from dgl_lara._util.memory import reuse_freed_memory
    from dgl_lara._util.progress import log_info
    from dgl_lara._util.writable import check_folder
    from dgl_lara.reports.html import render
    from dgl_lara.reports.measurements import measure
    from dgl_lara.runs.folder import newest_run
    from dgl_lara.runs.open import open_run

    reuse_freed_memory()
    folder, how = folder or newest_run(), "" if folder else " (the newest; --run names another)"
    if out is None:
        check_folder(folder, "name another place with --out")
    run = open_run(folder, choose_device(device), trust=trust, to_explain=True)
    log_info(f"run {run.folder}{how}")
    warn_about(run.folder)
    page = render(measure(run, split, targets, pairs, reference_pairs, seed))
    out = out or folder / "report.html"
    with atomic_write(out) as temporary:
        temporary.write_text(page)
    echo(f"written: {out}")

"""`dgl-lara report`: one page on a run, to keep or to send."""

from __future__ import annotations

from pathlib import Path

import click

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
from dgl_lara.cli.printing import echo, warn_of


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
    from dgl_lara.reports.findings import measure
    from dgl_lara.reports.page import render
    from dgl_lara.runs import newest_run, open_run
    from dgl_lara.utils.files import written_whole
    from dgl_lara.utils.memory import reuse_freed_memory
    from dgl_lara.utils.places import check_folder
    from dgl_lara.utils.progress import say

    reuse_freed_memory()
    folder, how = folder or newest_run(), "" if folder else " (the newest; --run names another)"
    if out is None:
        check_folder(folder, "name another place with --out")
    run = open_run(folder, choose_device(device), trust=trust, to_explain=True)
    say(f"run {run.folder}{how}")
    warn_of(run.folder)
    page = render(measure(run, split, targets, pairs, reference_pairs, seed))
    out = out or folder / "report.html"
    with written_whole(out) as temporary:
        temporary.write_text(page)
    echo(f"written: {out}")

"""`dgl-lara summary`: what matters in general, over all nodes or graphs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dgl_lara.cli.console import echo, warn_about, width
from dgl_lara.cli.options import (
    NEW_FILE,
    RUN,
    ClassName,
    Count,
    check_there,
    choose_device,
    device_option,
    players_option,
    trust_options,
)
from dgl_lara.constants import SUMMARIES

if TYPE_CHECKING:
    from dgl_lara.explanation import Explanations, Summary

MOST = 2000  # targets
ROWS = 12  # of a table


@click.command("summary")
@click.option("--run", "folder", type=RUN, help="Run to sum up. Default: the newest.")
@click.option("--class", "asked_class", type=ClassName(),
              help="Only targets that the model gives this class, a number or its name.")  # fmt: skip
@click.option("--split", type=click.Choice(["train", "val", "test"]), help="Only targets of this split.")
@click.option("--targets", type=Count(), default=MOST, show_default=True,
              help="At most so many, drawn at random where there are more.")  # fmt: skip
@click.option("--out", type=NEW_FILE, multiple=True,
              help="A table (.csv) or a picture (.png, .svg, .pdf). Can be given several times.")  # fmt: skip
@players_option
@device_option
@trust_options
def summary(
    folder: Path | None,
    asked_class: int | str | None,
    split: str | None,
    targets: int,
    out: tuple[Path, ...],
    players: str | None,
    device: str,
    trust: bool | str,
) -> None:
    """Which features matter, how much comes from which hop and from whom, and which explanations are typical."""
    for path in out:
        if path.suffix not in SUMMARIES:
            raise click.UsageError(f"--out must end in {', '.join(SUMMARIES)} (got '{path.name}').")

    check_there(folder)
    from dgl_lara._util.memory import reuse_freed_memory
    from dgl_lara._util.progress import log_info
    from dgl_lara.explanation import save_summaries
    from dgl_lara.inference.targets import class_number
    from dgl_lara.reports.global_summary import summaries_of
    from dgl_lara.runs.folder import newest_run
    from dgl_lara.runs.open import open_run

    run = open_run(folder or newest_run(), choose_device(device), trust=trust, players=players, to_explain=True)
    log_info(f"run {run.folder}" + ("" if folder else " (the newest; --run names another)"))
    warn_about(run.folder)
    reuse_freed_memory(run.dataset.graph.num_nodes())
    parts = run.parts if players is None else [run]
    only = None
    if asked_class is not None:
        only = class_number("--class", asked_class, run.names.get("classes"), run.game.num_classes)
    found = summaries_of(parts, split or "all", targets, only, " (--targets takes more)")
    for place, (one, explanations) in enumerate(found):
        _print(one, explanations, first=not place)
    for path in out:
        save_summaries([one for one, _ in found], path)
    if out:
        echo("\nwritten: " + ", ".join(map(str, out)))


def _print(one: Summary, explanations: Explanations, first: bool) -> None:
    from dgl_lara._util.tables import text_table

    if first:
        echo(one.title)
    for table in one.groups:
        rows = table.head(ROWS)[["item", "for", "against", "share", "players"]].itertuples(index=False)
        echo("\n" + text_table([one.heading(table), "for", "against", "share", "players"], list(rows), width()))
        if len(table) > ROWS:
            echo(f"... and {len(table) - ROWS:,} more")
    echo(f"\ntypical, and the share of the {one.task}s that each stands for:")
    for place, share in zip(one.typical["row"], one.typical["share"], strict=True):
        echo(f"({share:.0%}) {explanations[place].in_words()}")

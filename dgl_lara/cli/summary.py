"""Command `dgl-lara summary`. Summarise the explanations of many nodes or graphs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dgl_lara.cli.console import echo, note_run, warn_about, width
from dgl_lara.cli.options import (
    CLASS,
    COUNT,
    NEW_FILE,
    RUN,
    check_ending,
    check_run,
    choose_device,
    device_option,
    players_option,
    split_option,
    trust_options,
)
from dgl_lara.constants import SUMMARIES

if TYPE_CHECKING:
    from dgl_lara.explanation import Explanations, Summary

MAX_TARGETS = 2000
MAX_ROWS = 12  # of a table


@click.command("summary")
@click.option("--run", "folder", type=RUN, help="Run to summarise. Default is the newest.")
@click.option("--class", "requested_class", type=CLASS,
              help="Only targets predicted as this class, a number or a name.")  # fmt: skip
@split_option("Only targets of this split.")
@click.option("--targets", type=COUNT, default=MAX_TARGETS, show_default=True,
              help="Number of targets, at most. They are drawn at random.")  # fmt: skip
@click.option("--out", type=NEW_FILE, multiple=True,
              help="A table (.csv) or a picture (.png, .svg, .pdf). Repeatable.")  # fmt: skip
@players_option
@device_option
@trust_options
def summary(
    folder: Path | None,
    requested_class: int | str | None,
    split: str | None,
    targets: int,
    out: tuple[Path, ...],
    players: str | None,
    device: str,
    trust: bool | str,
) -> None:
    """Show which features matter, the share of each hop and type, and typical explanations."""
    for path in out:
        check_ending("--out", path, SUMMARIES)
    check_run(folder)
    from dgl_lara._util.memory import reuse_freed_memory
    from dgl_lara.explanation import save_summaries
    from dgl_lara.inference.targets import class_number
    from dgl_lara.reports.global_summary import summaries_of
    from dgl_lara.runs.open import open_run

    folder = note_run(folder)
    run = open_run(folder, choose_device(device), trust=trust, players=players, to_explain=True)
    warn_about(run.folder)
    reuse_freed_memory(run.dataset.graph.num_nodes())
    parts = run.parts if players is None else [run]
    only = None
    if requested_class is not None:
        only = class_number("--class", requested_class, run.names.get("classes"), run.game.num_classes)
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
        rows = table.head(MAX_ROWS)[["item", "for", "against", "share", "players"]].itertuples(index=False)
        echo("\n" + text_table([one.heading(table), "for", "against", "share", "players"], list(rows), width()))
        if len(table) > MAX_ROWS:
            echo(f"... and {len(table) - MAX_ROWS:,} more")
    echo(f"\ntypical, and the share of the {one.task}s that each stands for:")
    for place, share in zip(one.typical["row"], one.typical["share"], strict=True):
        echo(f"({share:.0%}) {explanations[place].in_words()}")

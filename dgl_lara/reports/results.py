"""Evaluation tables: the short form for the terminal, the long one as CSV and JSON beside the run."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from dgl_lara.metrics import METRICS
from dgl_lara.utils.files import written_whole
from dgl_lara.utils.progress import say
from dgl_lara.utils.tables import text_table


def print_table(name: str, table: pd.DataFrame) -> str:
    """What a reader needs first; everything else is in the files."""
    metric = METRICS[name]
    return text_table(*metric.shown(table)) + (f"\n{metric.note}" if metric.note else "")


def write_results(
    results: dict[str, pd.DataFrame], folder: Path, stem: str, title: str, json_file: Path | None
) -> list[Path]:
    """<stem>-<metric>.csv and .json for each table, and its picture if it has one; `json_file` gets all of them."""
    written: list[Path] = []
    try:
        for metric, table in results.items():
            written += _write_one(metric, table, folder / f"{stem}-{metric}.csv", title)
    except OSError as error:  # a run folder that is read-only: the tables were shown
        say(f"the tables cannot be kept in {folder} ({error.strerror}).")
    if json_file:
        written.append(_write_json(json_file, title, results))
    return written


def _write_one(metric: str, table: pd.DataFrame, path: Path, title: str) -> list[Path]:
    with written_whole(path) as temporary:
        table.to_csv(temporary, index=False)
    written = [path, _write_json(path.with_suffix(".json"), title, {metric: table})]
    if len(table) and (figure := METRICS[metric].figure(table, title)):
        for ending in (".png", ".pdf"):
            with written_whole(path.with_suffix(ending)) as temporary:
                figure.savefig(temporary, dpi=150, format=ending[1:])
            written.append(path.with_suffix(ending))
    return written


def _write_json(path: Path, title: str, results: dict[str, pd.DataFrame]) -> Path:
    content = {
        "what": title,
        **{metric: json.loads(table.to_json(orient="records")) for metric, table in results.items()},
    }
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")
    return path

"""Evaluation tables, in a short form for the terminal and in full as CSV and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from dgl_lara._util.atomic import atomic_write
from dgl_lara._util.notices import notice
from dgl_lara._util.tables import text_blocks
from dgl_lara.metrics import METRICS


def print_table(name: str, table: pd.DataFrame, width: int) -> str:
    """Return the short form of the table of a metric, in pieces of this width (letters), with notes."""
    metric = METRICS[name]
    note = metric.note(table) if len(table) else ""
    return text_blocks(*metric.summary(table), width) + (f"\n{note}" if note else "")


def write_results(
    metric: str, table: pd.DataFrame, folder: Path, stem: str, title: str, question: Mapping[str, object]
) -> list[Path]:
    """Write <stem>-<metric>.csv and .json of a table, and its plot. Files of another question stay."""
    try:
        return _write(metric, table, free_path(folder / f"{stem}-{metric}.json", question), title, question)
    except OSError as error:
        notice("eval.not_kept", metric=metric, folder=folder, reason=error.strerror)
        return []


def _write(metric: str, table: pd.DataFrame, path: Path, title: str, question: Mapping[str, object]) -> list[Path]:
    written = [path.with_suffix(".csv"), write_json(path, title, question, {metric: table})]
    with atomic_write(written[0]) as temporary:
        table.to_csv(temporary, index=False)
    if len(table) and (figure := METRICS[metric].plot(table, title)):
        from dgl_lara.explanation.plot.figure import write

        for ending in (".png", ".pdf"):
            with atomic_write(path.with_suffix(ending)) as temporary:
                write(figure, temporary, ending)
            written.append(path.with_suffix(ending))
    return written


def free_path(first: Path, question: Mapping[str, object]) -> Path:
    """Return the file of this name with the same question, or the first name that is free."""
    path, number = first, 1
    while path.exists() and _question_of(path) != question:
        number += 1
        path = first.with_name(f"{first.stem}-{number}.json")
    return path


def _question_of(path: Path) -> object:
    try:
        return json.loads(path.read_text()).get("question")
    except (ValueError, AttributeError, RecursionError):
        return None  # damaged or not ours, so it stays


def write_json(path: Path, title: str, question: Mapping[str, object], results: Mapping[str, pd.DataFrame]) -> Path:
    """Write `as_json` to a file, and return the file."""
    with atomic_write(path) as temporary:
        temporary.write_text(as_json(title, question, results) + "\n")
    return path


def as_json(title: str, question: Mapping[str, object], results: Mapping[str, pd.DataFrame]) -> str:
    """Return tables of several metrics as JSON."""
    tables = {metric: json.loads(table.to_json(orient="records")) for metric, table in results.items()}
    return json.dumps({"what": title, "question": dict(question), **tables}, indent=2)

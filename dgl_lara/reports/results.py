"""Evaluation tables: the short form for the terminal, the long one as CSV and JSON beside the run."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from dgl_lara.reports.plots import fidelity_plot
from dgl_lara.utils.files import written_whole
from dgl_lara.utils.tables import text_table


def print_table(metric: str, table: pd.DataFrame) -> str:
    """What a reader needs first; everything else is in the files."""
    if table.empty:
        return "this data set has no ground truth."
    if metric != "fidelity":
        return text_table(list(table.columns), table.to_numpy().tolist())
    average = table[table["sparsity"] == "average"]
    measures = ("fidelity+", "fidelity-", "delta")
    rows = [
        [row["definition"], row["method"], *(f"{row[name]:7.3f} ± {row[f'{name} error']:.3f}" for name in measures)]
        for _, row in average.iterrows()
    ]
    header = ["definition", "method", "fidelity+ (high)", "fidelity- (low)", "delta (high)"]
    note = "average over sparsity 0.3 ... 0.7, ± standard error over targets; 'kept': the target itself stays"
    return text_table(header, sorted(rows, key=lambda row: row[0] != "paper")) + f"\n{note}"


def write_results(
    results: dict[str, pd.DataFrame], folder: Path, stem: str, title: str, json_file: Path | None
) -> list[Path]:
    """<stem>-<metric>.csv and .json for each table, and the plot of fidelity; `json_file` gets all tables at once."""
    written: list[Path] = []
    for metric, table in results.items():
        path = folder / f"{stem}-{metric}.csv"
        with written_whole(path) as temporary:
            table.to_csv(temporary, index=False)
        written += [path, _write_json(path.with_suffix(".json"), title, {metric: table})]
        if metric == "fidelity":
            written += fidelity_plot(table, title, folder / f"{stem}-fidelity")
    if json_file:
        written.append(_write_json(json_file, title, results))
    return written


def _write_json(path: Path, title: str, results: dict[str, pd.DataFrame]) -> Path:
    content = {
        "what": title,
        **{metric: json.loads(table.to_json(orient="records")) for metric, table in results.items()},
    }
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")
    return path

"""A benchmark as a table with one row for each method, for the terminal and as CSV, JSON and Markdown."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from dgl_lara._util.atomic import atomic_write
from dgl_lara._util.tables import markdown_table, text_blocks
from dgl_lara.errors import message
from dgl_lara.evaluation.benchmark import COST
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.agreement import far_apart
from dgl_lara.reports.eval_tables import free_path

# name -> +1 if high is good, -1 if low is good, 0 if neither
COLUMNS: dict[str, int] = {
    **{name: sign for metric in METRICS.values() for name, sign in metric.columns.items()},
    "fit (s)": 0,
    COST: 0,
}
FLOOR = "random"  # explains nothing, so it is never the best
SHORT_NAMES = {"LARA is x times faster": "x LARA", "LARA, stored, is x times faster": "x stored"}


def summary(records: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each method with mean and standard deviation of each figure over the seeds."""
    rows = []
    for name, group in records.groupby("method", sort=False):
        row: dict[str, object] = {"method": group["label"].iloc[-1], "name": name, "seeds": len(group)}
        for column in COLUMNS:
            if column in group and group[column].notna().any():
                row[column], row[f"{column} std"] = group[column].mean(), group[column].std(ddof=0)
        if "left out" in group and group["left out"].notna().any():
            row["left out"] = group["left out"].dropna().iloc[0]
        rows.append(row)
    return pd.DataFrame(rows)


def cells_of(table: pd.DataFrame, mark: Callable[[str], str]) -> tuple[list[str], list[list[str]]]:
    """Return header and cells, 'mean ± std', with the best cells of a column marked."""
    columns = [column for column in COLUMNS if column in table]
    rivals = table[table["name"] != FLOOR]
    rows = []
    for index, row in table.iterrows():
        cells = [str(row["method"])]
        for column in columns:
            if pd.isna(row[column]):
                cells.append("-")
                continue
            text = _number(row[column]) + (f" ± {_number(row[f'{column} std'])}" if row["seeds"] > 1 else "")
            sign = COLUMNS[column]
            merit = partial(_merit, column)
            own, others = merit(row[column]), rivals[column].map(merit)
            best = sign and index in rivals.index and _number(own) == _number(sign * (sign * others).max())
            cells.append(mark(text) if best else text)
        rows.append(cells)
    return ["method", *columns], rows


def terminal_table(table: pd.DataFrame, width: int) -> str:
    """Return the table in pieces of this width (letters), with short names and notes."""
    header, rows = cells_of(table, lambda text: f"*{text}")
    names = [SHORT_NAMES.get(name, name.removesuffix(", average").replace(" f ", " the model ")) for name in header]
    methods, *figures = zip(names, *rows, strict=True)
    aligned = [[text.rjust(max(map(len, column))) for text in column] for column in figures]
    head, *lines = zip(methods, *aligned, strict=True)
    notes = [message("benchmark.best", floor=FLOOR)]
    notes += [f"{short}: {name}" for name, short in SHORT_NAMES.items() if name in table]
    notes += map(message, note_codes(table))
    return "\n".join(
        [text_blocks(head, lines, width), *(line for note in notes for line in textwrap.wrap(note, width))]
    )


def note_codes(table: pd.DataFrame) -> list[str]:
    """Return the codes of the notes about the columns of a table."""
    is_fidelity = [name for name in table.columns if name.startswith(("F+", "F-", "Delta"))]
    above_one = table.filter(items=["R2", "R2, neighbours"]).round(2) > 1
    has_both = {"R2", "rank correlation"} <= {*table}
    notes = {
        "benchmark.seeds": bool((table["seeds"] > 1).any()),
        "benchmark.fidelity": bool(is_fidelity),
        "benchmark.fidelity_kept": any(" kept" in name for name in table.columns),
        "benchmark.truth": "rank correlation" in table,
        "benchmark.speed": "LARA is x times faster" in table,
        "benchmark.cost": COST in table,
        "benchmark.scale": "R2" in table,
        "benchmark.above_one": bool(above_one.any(axis=None)),
        "agreement.order_is_noise": has_both and far_apart(table["R2"], table["rank correlation"]),
        "benchmark.auc": "AUC" in table,
    }
    return [code for code, applies in notes.items() if applies]


def _merit(column: str, figure: float) -> float:
    """Return the figure that counts, without the noise that lifts an R2 above 1."""
    return min(figure, 1.0) if column.startswith("R2") else figure


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def write_comparison(
    records: pd.DataFrame, table: pd.DataFrame, title: str, folder: Path, note: str = ""
) -> list[Path]:
    """Write a benchmark as CSV, JSON and Markdown. Files of other methods, targets or seeds stay."""
    question = {"what": title, "methods": table["name"].tolist(), "seeds": int(table["seeds"].max())}
    content = {"what": title, "question": question, "records": json.loads(records.to_json(orient="records"))}
    first = free_path(folder / "benchmark.json", question)
    texts = {
        ".csv": table.to_csv(index=False),
        ".json": json.dumps(content),
        ".md": comparison_markdown(table, title, note),
    }
    for ending, text in texts.items():
        with atomic_write(first.with_suffix(ending)) as temporary:
            temporary.write_text(text)
    return [first.with_suffix(ending) for ending in texts]


def comparison_markdown(table: pd.DataFrame, title: str, note: str = "") -> str:
    """Return the table and its notes as Markdown."""
    notes = [text[0].upper() + text[1:].rstrip(".") + "." for text in map(message, note_codes(table))]
    lines = [f"# {title}", "", markdown_table(*cells_of(table, lambda text: f"**{text}**")), ""]
    lines += [message("benchmark.markdown"), *notes, *([note] if note else [])]
    if "left out" in table:
        skipped = table.dropna(subset="left out")
        lines += [f"- left out: {row['name']}: {row['left out']}" for _, row in skipped.iterrows()]
    return "\n".join(lines) + "\n"

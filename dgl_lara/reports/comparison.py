"""A comparison on paper: CSV and JSON of every figure, Markdown for reading."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from dgl_lara.benchmark import shown
from dgl_lara.datasets.storage import written_whole
from dgl_lara.reports.tables import markdown_table


def write_comparison(records: pd.DataFrame, table: pd.DataFrame, title: str, folder: Path) -> list[Path]:
    texts = {
        "benchmark.csv": table.to_csv(index=False),
        "benchmark.json": json.dumps({"what": title, "records": json.loads(records.to_json(orient="records"))}),
        "benchmark.md": comparison_markdown(table, title),
    }
    for name, text in texts.items():
        with written_whole(folder / name) as temporary:
            temporary.write_text(text)
    return [folder / name for name in texts]


def comparison_markdown(table: pd.DataFrame, title: str) -> str:
    lines = [f"# {title}", "", markdown_table(*shown(table, lambda text: f"**{text}**")), ""]
    lines += [
        "Mean ± standard deviation over seeds; best in bold. F+, F-: average over sparsity 0.3 ... 0.7, as the paper",
        "defines them and with the target kept. Speed: this method and LARA in turns, in one process.",
    ]
    if "left out" in table:
        lines += [
            f"- left out: {row['name']}: {row['left out']}" for _, row in table.dropna(subset="left out").iterrows()
        ]
    return "\n".join(lines) + "\n"

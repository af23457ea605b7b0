"""A comparison on paper: a row a method, the best marked; CSV and JSON of every figure, Markdown for reading."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from dgl_lara._util.atomic import atomic_write
from dgl_lara._util.tables import markdown_table, text_blocks
from dgl_lara.evaluation.benchmark import COST
from dgl_lara.messages import message
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.agreement import far_apart
from dgl_lara.reports.eval_tables import place_for

# figure -> +1 where high is good, -1 where low is good, 0 where neither
COLUMNS: dict[str, int] = {
    **{name: sign for metric in METRICS.values() for name, sign in metric.columns.items()},
    "fit (s)": 0,
    COST: 0,
}

FLOOR = "random"
SHORT = {"LARA is x times faster": "x LARA", "LARA, stored, is x times faster": "x stored"}
SPEED_NOTE = (
    "Times faster: LARA in its amortised form, the explainer's scores alone, against the method of the row, in turns "
    "in one process. Rows of LARA are compared with that form too; correcting scores takes them longer. Stored: LARA "
    "has its embeddings from before. Latency, the time that so many targets take, is their number divided by targets/s."
)
FIDELITY_NOTE = "F+, F-, Delta (F+ high, F- low is good): average over sparsity 0.3 ... 0.7"
SEEDS_NOTE = "±: standard deviation over seeds"
KEPT_NOTE = "; kept: the target itself stays"
TRUTH_NOTE = "rank correlation, R2: with the true attribution"
COST_NOTE = (
    "Nodes the model was given: of all graphs, for each target; learning is shared by all targets there are. Backward "
    "passes are not counted, nor what the model says of the whole graph, which every method is told."
)
ABOVE_ONE_NOTE = (
    "An R2 above 1 is noise: that of the true attribution is taken out, by a little too much. The star takes it for 1."
)
R2_NOTE = (
    "R2 asks for scores on the scale of the true attribution, which most methods' are not: their rank correlation says "
    "more."
)
AUC_NOTE = (
    "AUC ranks players by their signed scores, AUC |score| by their size. A node of the true motif may speak against "
    "the predicted class: a faithful signed score is then low, scores without a sign (OrphicX, edge masks) are not."
)


def summary(records: pd.DataFrame) -> pd.DataFrame:
    """One row a method: '<figure>' and '<figure> std' over the seeds."""
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


def shown(table: pd.DataFrame, mark: Callable[[str], str]) -> tuple[list[str], list[list[str]]]:
    """Header and cells, 'mean ± std', the best of each column marked (`random` explains nothing)."""
    columns = [column for column in COLUMNS if column in table]
    rivals = table[table["name"] != FLOOR]
    rows = []
    for place, row in table.iterrows():
        cells = [str(row["method"])]
        for column in columns:
            if pd.isna(row[column]):
                cells.append("-")
                continue
            text = _number(row[column]) + (f" ± {_number(row[f'{column} std'])}" if row["seeds"] > 1 else "")
            sign = COLUMNS[column]
            merit = partial(_merit, column)
            mine, theirs = merit(row[column]), rivals[column].map(merit)
            best = sign and place in rivals.index and _number(mine) == _best_of(sign, theirs)
            cells.append(mark(text) if best else text)
        rows.append(cells)
    return ["method", *columns], rows


def on_terminal(table: pd.DataFrame, width: int) -> str:
    """The table in pieces that fit the width, under shorter names, and what there is to say of it."""
    header, rows = shown(table, lambda text: f"*{text}")
    called = [SHORT.get(name, name.removesuffix(", average").replace(" f ", " the model ")) for name in header]
    methods, *figures = zip(called, *rows, strict=True)
    right = [[text.rjust(max(map(len, column))) for text in column] for column in figures]
    head, *lines = zip(methods, *right, strict=True)
    text = text_blocks(head, lines, width)
    notes = [f"* best of the column, {FLOOR} aside"]
    notes += [f"{short}: {long}" for long, short in SHORT.items() if long in table]
    notes += _notes(table)
    return "\n".join([text, *(line for note in notes for line in textwrap.wrap(note, width))])


def _notes(table: pd.DataFrame) -> list[str]:
    """What a reader of some columns must know, of those that are shown."""
    kept = any(" kept" in name for name in table.columns)
    notes = [
        (SEEDS_NOTE, bool((table["seeds"] > 1).any())),
        (FIDELITY_NOTE + KEPT_NOTE * kept, any(name.startswith(("F+", "F-", "Delta")) for name in table.columns)),
        (TRUTH_NOTE, "rank correlation" in table),
        (SPEED_NOTE, "LARA is x times faster" in table),
        (COST_NOTE, COST in table),
        (R2_NOTE, "R2" in table),
        (ABOVE_ONE_NOTE, bool((table.filter(items=["R2", "R2, neighbours"]).round(2) > 1).any(axis=None))),
        (message("agreement.order_is_noise"), _order_is_noise(table)),
        (AUC_NOTE, "AUC" in table),
    ]
    return [note for note, applies in notes if applies]


def _order_is_noise(table: pd.DataFrame) -> bool:
    return {"R2", "rank correlation"} <= {*table} and far_apart(table["R2"], table["rank correlation"])


def _sentences(notes: list[str]) -> list[str]:
    """Lines of a Markdown paragraph run together."""
    return [note[0].upper() + note[1:].rstrip(".") + "." for note in notes]


def _merit(column: str, figure: float) -> float:
    """What counts in the contest: noise that lifts an R2 above 1 makes nobody better."""
    return min(figure, 1.0) if column.startswith("R2") else figure


def _best_of(sign: int, figures: pd.Series) -> str:
    """As it is shown: whoever shows the same is as good."""
    return _number(sign * (sign * figures).max())


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def write_comparison(
    records: pd.DataFrame, table: pd.DataFrame, title: str, folder: Path, note: str = ""
) -> list[Path]:
    """What an earlier comparison of other methods, targets or seeds has written stays: the new files get a number."""
    question = {"what": title, "methods": table["name"].tolist(), "seeds": int(table["seeds"].max())}
    found = {"what": title, "question": question, "records": json.loads(records.to_json(orient="records"))}
    first = place_for(folder / "benchmark.json", question)
    texts = {
        ".csv": table.to_csv(index=False),
        ".json": json.dumps(found),
        ".md": comparison_markdown(table, title, note),
    }
    for ending, text in texts.items():
        with atomic_write(first.with_suffix(ending)) as temporary:
            temporary.write_text(text)
    return [first.with_suffix(ending) for ending in texts]


def comparison_markdown(table: pd.DataFrame, title: str, note: str = "") -> str:
    lines = [f"# {title}", "", markdown_table(*shown(table, lambda text: f"**{text}**")), ""]
    lines += [
        "Mean ± standard deviation over seeds; best in bold.",
        *_sentences(_notes(table)),
        *([note] if note else []),
    ]
    if "left out" in table:
        lines += [
            f"- left out: {row['name']}: {row['left out']}" for _, row in table.dropna(subset="left out").iterrows()
        ]
    return "\n".join(lines) + "\n"

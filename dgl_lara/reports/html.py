"""One page on a run to send to others, with figures, examples, settings and caveats.

`measurements.measure` computes the figures. `report.html` is the template, and `messages/reports.py` has the texts.
"""

from __future__ import annotations

import platform
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from markupsafe import Markup
from matplotlib.figure import Figure
from torch import Tensor

from dgl_lara import __version__
from dgl_lara._util.environment import environment
from dgl_lara._util.progress import Progress
from dgl_lara._util.templates import HtmlTable, rendered
from dgl_lara.errors import message
from dgl_lara.explanation.plot.figure import inline
from dgl_lara.explanation.plot.summary import draw_summaries
from dgl_lara.explanation.plot.training_curves import fidelity_figure, training_figure
from dgl_lara.gnns.base import ShippedModel
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.agreement import MAX_R2
from dgl_lara.metrics.fidelity import MEASURES, format_with_error
from dgl_lara.reports.deviations import deviations_of
from dgl_lara.runs.overview import RunSummary
from dgl_lara.runs.tables import setting_text, settings_of

if TYPE_CHECKING:
    from dgl_lara.explanation import Explanation
    from dgl_lara.reports.measurements import ReportData
    from dgl_lara.runs.run import Run

MAX_DRAWN_PLAYERS = 25  # of an example
MAX_GROUP_ROWS = 8  # of a table of groups
MIN_AGREEMENT = 0.8  # below it the page warns
MIN_TARGETS = 30  # below it the page warns
MARKDOWN = str.maketrans("", "", "`*")  # marks that the page does not show
MODEL_FIELDS = {  # of a shipped model, in words
    "in_dim": "features",
    "in_dims": "features of each type",
    "num_classes": "classes",
    "divide_by_row_sum": "features are divided by their row sum",
    "weigh_degrees": "weights of edges count in degrees",
}


def render(data: ReportData) -> str:
    """Return the HTML of a report."""
    run, game, dataset = data.run, data.run.game, data.run.dataset
    average, truth = _averages(data), data.tables["auc"]
    labels = dataset.labels if data.accuracy else None
    kept = " (target kept)" * game.player_set.includes_target
    count, splits = len(data.targets), ["train", "validation", "test"]
    chosen = {"count": count, "split": data.split, "task": game.task, "value": game.value, "kept": kept}
    device, threads = game.features.device.type, torch.get_num_threads()
    best = {"steps": int(data.history["step"].max()), "agreement": data.history["agreement"].max()}
    return rendered(
        __package__,
        "report.html",
        title=f"Explanations of {_model_name(run)} on {dataset.name}",
        made=f"Made {environment()['time']} by dgl-lara {__version__} from the run '{run.folder.name}'.",
        summary=_texts(_summary(data, average)),
        what=[*_texts(_what(data)), game.player_set.removal],
        accuracy=HtmlTable(splits, [list(data.accuracy.values())]) if data.accuracy else None,
        training=_picture(training_figure(data.history), "Loss and validation agreement against training steps"),
        trained=message("report.trained", **best),
        kept=game.player_set.includes_target,
        noun=game.player_set.noun,
        fidelity_plot=_picture(fidelity_figure(data.tables["fidelity"], ""), "Fidelity against sparsity"),
        fidelity=_fidelity_table(average),
        verdict=" ".join(_texts(_verdict(average))),
        reference=METRICS["agreement"].note(data.tables["agreement"]),
        measured=count,
        eval_options=data.eval_options,
        agreement=_table(data.tables["agreement"].drop(columns="reference")),
        truth=_table(truth) if len(truth) and truth["targets"].iloc[0] else None,
        truth_note=_truth_note(truth, count),
        speed=_table(data.speed),
        cost=data.cost,
        machine=message("report.machine", machine=platform.machine(), device=device, threads=threads),
        chosen=message("examples.chosen", **chosen),
        general=_general(data),
        examples={name: _examples(name, group, labels) for name, group in data.examples.items() if group},
        caveats=_texts(_caveats(data)),
        settings=HtmlTable(["setting", "value"], _settings(run)),
        deviations=HtmlTable(["", "paper", "dgl-lara", "reason"], _deviations(run)),
    )


Codes = dict[str, dict[str, Any]]  # texts to show: code -> fields


def _texts(codes: Codes) -> list[str]:
    return [message(code, **fields) for code, fields in codes.items()]


def _picture(figure: Figure, label: str) -> Markup:
    return Markup(inline(figure, label))


def _table(table: pd.DataFrame) -> HtmlTable:
    rows = [
        [None if isinstance(value, float) and not np.isfinite(value) else value for value in row]
        for row in table.itertuples(index=False)
    ]
    return HtmlTable(list(table.columns), rows)


def _truth_note(truth: pd.DataFrame, measured: int) -> str:
    """Return why the table of ground truth has fewer targets than the others, or ""."""
    count = int(truth["targets"].iloc[0]) if len(truth) else measured
    return "" if count == measured else message("report.truth_of_some", count=count, measured=measured)


def _averages(data: ReportData) -> pd.DataFrame:
    table = data.tables["fidelity"]
    return table[table["sparsity"] == "average"].reset_index(drop=True)


def _row(average: pd.DataFrame, method: str) -> pd.Series | None:
    """Return the row of a method, with the target kept if there is one."""
    rows = average[average["method"].str.startswith(method)]
    return rows.iloc[-1] if len(rows) else None  # 'kept' comes after 'paper'


def _fidelity_table(average: pd.DataFrame) -> HtmlTable:
    rows = [
        [row["definition"], row["method"], *(format_with_error(row, name) for name, _ in MEASURES.values())]
        for _, row in average.sort_values("definition", ascending=False, kind="stable").iterrows()
    ]
    return HtmlTable(["definition", "method", "Fidelity+ (high)", "Fidelity− (low)", "Δ (high)"], rows)


def _agreement(data: ReportData) -> pd.Series:
    table = data.tables["agreement"]
    return table[table["method"] == "lara"].iloc[0]


def _r2(value: Any) -> str:
    return f"{value:.3f}" if float(value) <= MAX_R2 else message("report.rough")  # NaN too


def _summary(data: ReportData, average: pd.DataFrame) -> Codes:
    game, agreement = data.run.game, _agreement(data)
    lara, chance = _row(average, "lara"), _row(average, "random")
    assert lara is not None and chance is not None
    codes: Codes = {}
    if data.accuracy:
        name = data.run.dataset.name
        codes["report.accuracy"] = {"accuracy": data.accuracy["test"], "task": game.task, "name": name}
    targets = {"count": len(data.targets), "split": data.split, "task": game.task}
    codes["report.agreement"] = {"r2": _r2(agreement["R2 corrected"]), **targets}
    if "neighbours only" in agreement:
        codes["report.agreement_of_neighbours"] = {"r2": _r2(agreement["neighbours only"])}
    kept = " with the target kept" * game.player_set.includes_target
    figures = {"lara": format_with_error(lara, "delta"), "random": format_with_error(chance, "delta")}
    codes["report.fidelity"] = {"kept": kept, **figures}
    codes["report.speed"] = {"milliseconds": data.speed["seconds"].iloc[0] * 1000}
    return codes


def _verdict(average: pd.DataFrame) -> Codes:
    """Return how LARA compares with direct sampling."""
    lara, sampled = _row(average, "lara"), _row(average, "sampled")
    if lara is None or sampled is None:
        return {"verdict.unknown": {}}
    gap = lara["delta"] - sampled["delta"]
    error = float(np.hypot(lara["delta error"], sampled["delta error"]))
    outcome = "equal" if abs(gap) <= 2 * error else "better" if gap > 0 else "worse"
    figures = message("verdict.figures", gap=gap, error=error)
    return {f"verdict.{outcome}": {"sampled": sampled["method"], "figures": figures}}


def _model_name(run: Run) -> str:
    if isinstance(run.model, ShippedModel):
        config = run.model.config
        return f"a {config.architecture.upper()} ({config.layers} layers of width {config.hidden})"
    return f"the model of {run.config.model.module}:{run.config.model.function}" if run.config.model else "a model"


def _what(data: ReportData) -> Codes:
    run, game, dataset = data.run, data.run.game, data.run.dataset
    size = f"{dataset.graph.num_nodes():,} nodes and {dataset.graph.num_edges():,} directed edges"
    if dataset.graph.batch_size > 1:
        size = f"{dataset.graph.batch_size:,} graphs with together {size}"
    is_plural = game.num_classes > 1
    outputs = "output" + "s" * is_plural if game.value == "output" else "class" + "es" * is_plural
    return {
        "report.data": {
            "name": dataset.name,
            "source": dataset.source,
            "size": size,
            "outputs": f"{game.num_classes} {outputs}",
        },
        "report.model": {"name": _model_name(run)},
        "report.players": {"value": game.value, "task": game.task, "players": game.player_set.description},
        **_explainer(run),
    }


def _explainer(run: Run) -> Codes:
    """Return how the explainer was trained, and whether its scores are corrected."""
    lara, split = run.trained(), run.config.training.train_on
    learners = f"all {run.game.task}s" if split == "all" else f"the {split} split"
    if lara.samples_ is None or lara.errors_ is None:
        return {"report.explainer": {"learners": learners}}
    return {"report.corrected_explainer": {"learners": learners, "pairs": lara.samples_.pairs}}


def _examples(name: str, group: list[tuple[Explanation, float]], labels: Tensor | None) -> list[tuple[Markup, str]]:
    """Return picture and caption of each example. `labels` are those of all targets, if there are any."""
    figures = []
    for explanation, delta in Progress(group, f"drawing the {name}"):
        text = [explanation.in_words()]
        if explanation.removed:
            text.append(message("examples.removed", names=", ".join(explanation.removed)))
        if labels is not None and (label := int(labels[explanation.target])) != explanation.predicted_class:
            text.append(message("examples.wrong", label=explanation.batch.names.of_class(label)))
        text.append(message("examples.fidelity", delta=delta))
        picture = explanation.plot(MAX_DRAWN_PLAYERS, words=False)
        figures.append((_picture(picture, text[0]), " ".join(text)))
    return figures


def _general(data: ReportData) -> dict[str, object]:
    """Return picture, table and typical explanations of the summaries."""
    summaries = [summary for summary, _ in data.summaries]
    tables = [table.head(MAX_GROUP_ROWS).assign(of=one.heading(table)) for one in summaries for table in one.groups]
    typical = [
        f"{explanations[row['row']].in_words()} ({row['share']:.0%})"
        for summary, explanations in data.summaries
        for row in summary.typical.to_dict("records")
    ]
    return {
        "about": summaries[0].title,
        "picture": _picture(draw_summaries(summaries), f"What matters in general: {summaries[0].title}"),
        "table": _table(pd.concat(tables)[["of", "item", "for", "against", "share", "players"]]),
        "typical": typical,
    }


def _caveats(data: ReportData) -> Codes:
    """Return what readers should keep in mind. Some caveats depend on the figures."""
    run, game, agreement, count = data.run, data.run.game, _agreement(data), len(data.targets)
    wrong = None if data.target_accuracy is None else 1 - data.target_accuracy
    r2, trained_on, source = agreement["R2 corrected"], run.config.training.train_on, run.dataset.source
    caveats: dict[str, tuple[bool, dict[str, Any]]] = {
        "caveat.not_causal": (True, {}),
        "caveat.unusual_inputs": (True, {"players": game.player_set.name}),
        "caveat.estimates": (True, {"count": count}),
        "caveat.model_errors": (bool(wrong), {"share": wrong, "count": count}),
        "caveat.own_attribution": (
            "neighbours only" in agreement,
            {"r2": _r2(agreement.get("neighbours only", float("nan")))},
        ),
        "caveat.low_agreement": (r2 < MIN_AGREEMENT, {"r2": r2, "least": MIN_AGREEMENT}),
        "caveat.trained_on_targets": (trained_on in ("all", data.split), {}),
        "caveat.few_targets": (count < MIN_TARGETS, {"count": count}),
        "caveat.other_data": ("stand-in" in source or "substitute" in source, {"source": source}),
        "caveat.best_examples": (True, {}),
    }
    return {code: fields for code, (applies, fields) in caveats.items() if applies}


def _settings(run: Run) -> list[list[object]]:
    """Return the settings of the run, and those of a shipped model."""
    stored = RunSummary(run.folder).environment
    rows: dict[str, object] = {"command": stored.get("command"), "started": stored.get("time")}
    rows |= {"code (git)": stored.get("git")} | settings_of(RunSummary(run.folder))
    if isinstance(run.model, ShippedModel):
        fields = asdict(run.model.config).items()
        rows |= {f"model: {MODEL_FIELDS.get(name, name.replace('_', ' '))}": value for name, value in fields}
    return [[name, setting_text(value)] for name, value in rows.items()]


def _deviations(run: Run) -> list[list[object]]:
    found = deviations_of(run.config.training, run.game.task)
    return [[one.number, *(text.translate(MARKDOWN) for text in (one.paper, one.ours, one.reason))] for one in found]

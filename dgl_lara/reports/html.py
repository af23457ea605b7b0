"""One page on a run that can be sent to someone: what was explained, how well, examples, settings, caveats.

`findings.measure` does the work; `render` words it, and report.html says where everything stands.
"""

from __future__ import annotations

import platform
from dataclasses import asdict
from typing import Any

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
from dgl_lara.explanation import Explanation
from dgl_lara.explanation.plot.figure import inline
from dgl_lara.explanation.plot.summary import draw_summaries
from dgl_lara.explanation.plot.training_curves import fidelity_figure, training_figure
from dgl_lara.gnns.base import ShippedModel
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.agreement import MAX_R2
from dgl_lara.metrics.fidelity import MEASURES, format_with_error
from dgl_lara.reports.deviations import applying
from dgl_lara.reports.measurements import ReportData
from dgl_lara.runs.overview import RunSummary
from dgl_lara.runs.run import Run
from dgl_lara.runs.tables import setting_text, settings_of

DRAWN = 25  # players of an example
MARKDOWN = str.maketrans("", "", "`*")  # marks of the changelog's table that a page does not show
TOO_ROUGH = "a figure that so few reference pairs cannot tell (--reference-pairs)"  # in the place of an R2
SHAPE = {  # of a model of ours, in words
    "in_dim": "features",
    "in_dims": "features of each type",
    "num_classes": "classes",
    "divide_by_row_sum": "features are divided by their row sum",
    "weigh_degrees": "weights of edges count in degrees",
}
MOST = 8  # rows of a way of sorting players
LOW = 0.8  # agreement below which the page warns
FEW = 30  # targets below which it does too


def render(found: ReportData) -> str:
    run, game, dataset = found.run, found.run.game, found.run.dataset
    average = _averages(found)
    truth, labels = found.tables["auc"], dataset.labels if found.accuracy else None
    return rendered(
        __package__,
        "report.html",
        title=f"Explanations of {_model_name(run)} on {dataset.name}",
        made=f"Made {environment()['time']} by dgl-lara {__version__} from the run '{run.folder.name}'.",
        summary=_summary(found, average),
        what=_what(found),
        accuracy=HtmlTable(["train", "validation", "test"], [list(found.accuracy.values())])
        if found.accuracy
        else None,
        training=_picture(training_figure(found.history), "Loss and validation agreement against training steps"),
        trained=f"{int(found.history['step'].max())} steps; the weights of the best validation agreement "
        f"({found.history['agreement'].max():.3f}) are used.",
        kept=game.player_set.includes_target,
        noun=game.player_set.noun,
        fidelity_plot=_picture(fidelity_figure(found.tables["fidelity"], ""), "Fidelity against sparsity"),
        fidelity=_fidelity_table(average),
        verdict=_verdict(average),
        reference=METRICS["agreement"].note(found.tables["agreement"]),
        measured=len(found.targets),
        again=found.again,
        agreement=_agreement_table(found),
        truth=_table(truth) if len(truth) and truth["targets"].iloc[0] else None,
        without_truth=_without_truth(truth, len(found.targets)),
        speed=_table(found.speed),
        cost=found.cost,
        machine=f"Measured on {platform.machine()} {game.features.device.type}, {torch.get_num_threads()} thread(s); "
        "median of three after a warm-up (sampled: one).",
        chosen=f"Of the {len(found.targets)} {found.split} {game.task}s measured, those with the highest, the middle "
        f"and the lowest Δ fidelity of their own{' (target kept)' * game.player_set.includes_target}. "
        f"Δ is in units of the "
        f"{game.value}, so targets whose {game.value} can fall far rank higher.",
        general=_general(found),
        examples={name: _examples(name, group, labels) for name, group in found.examples.items() if group},
        caveats=_caveats(found),
        settings=HtmlTable(["setting", "value"], _settings(run)),
        deviations=HtmlTable(
            ["", "the paper", "here", "why"],
            [
                [d.number, *(text.translate(MARKDOWN) for text in (d.paper, d.here, d.why))]
                for d in applying(run.config.training, game.task)
            ],
        ),
    )


def _picture(figure: Figure, words: str) -> Markup:
    return Markup(inline(figure, words))


def _table(table: pd.DataFrame) -> HtmlTable:
    rows = [[_plain(value) for value in row] for row in table.itertuples(index=False)]
    return HtmlTable(list(table.columns), rows)


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _without_truth(truth: pd.DataFrame, measured: int) -> str:
    """Why the table of ground truth is of fewer targets than the others."""
    having = int(truth["targets"].iloc[0]) if len(truth) else measured
    if having == measured:
        return ""
    return f"These are the targets with a motif, {having} of the {measured} measured; the others have none to find."


def _averages(found: ReportData) -> pd.DataFrame:
    table = found.tables["fidelity"]
    return table[table["sparsity"] == "average"].reset_index(drop=True)


def _row(average: pd.DataFrame, method: str) -> pd.Series | None:
    """The row of a method by the definition that tells methods apart: the target kept, where there is one."""
    mine = average[average["method"].str.startswith(method)]
    return mine.iloc[-1] if len(mine) else None  # 'kept' stands behind 'paper'


def _fidelity_table(average: pd.DataFrame) -> HtmlTable:
    rows = [
        [row["definition"], row["method"], *(format_with_error(row, name) for name, _ in MEASURES.values())]
        for _, row in average.sort_values("definition", ascending=False, kind="stable").iterrows()
    ]
    return HtmlTable(["definition", "method", "Fidelity+ (high)", "Fidelity− (low)", "Δ (high)"], rows)


def _agreement_table(found: ReportData) -> HtmlTable:
    return _table(found.tables["agreement"].drop(columns="reference"))


def _summary(found: ReportData, average: pd.DataFrame) -> list[str]:
    game = found.run.game
    agreement = found.tables["agreement"].set_index("method").loc["lara"]
    lara, chance = _row(average, "lara"), _row(average, "random")
    assert lara is not None and chance is not None
    corrected = " corrected" if _corrections(found.run) else ""
    alone = ""
    if game.player_set.includes_target:
        alone = f", and with {_r2(agreement['neighbours only'])} over the neighbours alone"
    right = f"The model is right on {found.accuracy['test']:.1%} of the test " if found.accuracy else ""
    return [
        *([f"{right}{game.task}s of {found.run.dataset.name}."] if right else []),
        f"The explainer's{corrected} scores agree with the true attribution with R² = "
        f"{_r2(agreement['R2 corrected'])} on {len(found.targets)} {found.split} {game.task}s "
        f"(1 is perfect; the reference's noise is taken out){alone}.",
        f"Δ fidelity{' with the target kept' * game.player_set.includes_target} is {format_with_error(lara, 'delta')}; "
        f"players ranked by chance reach {format_with_error(chance, 'delta')}.",
        f"One explanation takes {found.speed['seconds'].iloc[0] * 1000:.1f} ms once the explainer is trained.",
    ]


def _verdict(average: pd.DataFrame) -> str:
    """LARA against direct sampling, in words that the figures allow."""
    lara, sampled = _row(average, "lara"), _row(average, "sampled")
    if lara is None or sampled is None:
        return "Direct sampling was left out, so how far LARA is from a costly direct estimate is not known here."
    gap = lara["delta"] - sampled["delta"]
    error = float(np.hypot(lara["delta error"], sampled["delta error"]))
    figures = f"(difference of Δ {gap:+.2f}, standard error about {error:.2f})"
    if abs(gap) <= 2 * error:
        return f"LARA and {sampled['method']} cannot be told apart here {figures}."
    return f"LARA is {'better' if gap > 0 else 'worse'} than {sampled['method']} here {figures}."


def _model_name(run: Run) -> str:
    if isinstance(run.model, ShippedModel):
        config = run.model.config
        return f"a {config.architecture.upper()} ({config.layers} layers of width {config.hidden})"
    return f"the model of {run.config.model.module}:{run.config.model.function}" if run.config.model else "a model"


def _what(found: ReportData) -> list[str]:
    run, game = found.run, found.run.game
    graph, dataset = run.dataset.graph, run.dataset
    size = f"{graph.num_nodes():,} nodes and {graph.num_edges():,} directed edges"
    if not game.task.has_distances:
        size = f"{graph.batch_size:,} graphs with together {size}"
    many = game.num_classes > 1
    outputs = "output" + "s" * many if game.value == "output" else "class" + "es" * many
    return [
        f"Data: {dataset.name} ({dataset.source}), {size}, {game.num_classes} {outputs}.",
        f"Model: {_model_name(run)}, a black box to the explainer: only its outputs are used, no gradients, no hidden "
        "layers.",
        f"Explained is, for every {game.task}, the {game.value} of the class that the model predicts. The players are "
        f"{game.player_set.description}. A player's score estimates its removal-based attribution φ: the "
        "mean value of the model over random coalitions with it, less the mean over those without it (Eq. 5 of the "
        "paper; the Banzhaf value). A positive score speaks for the class, a negative one against it.",
        game.player_set.removal,
        f"Explainer: LARA, one small network trained on {_learners(run)} without any label; "
        f"afterwards a score is a dot product, {_corrections(run)}without a call of the model.",
    ]


def _learners(run: Run) -> str:
    split = run.config.training.train_on
    return f"all {run.game.task}s" if split == "all" else f"the {split} split"


def _corrections(run: Run) -> str:
    """What becomes of the scores whose figures stand on the page, where training has kept what it takes."""
    lara = run.trained()
    if lara.samples_ is None or lara.errors_ is None:
        return ""
    told = f"what the model said in training about {lara.samples_.pairs:,} pairs of coalitions"
    return f"corrected by {told} (“amortised” in the tables: not corrected), both "


def _examples(name: str, group: list[tuple[Explanation, float]], labels: Tensor | None) -> list[tuple[Markup, str]]:
    """(picture, caption) of each. labels: None where there are none."""
    figures = []
    for explanation, delta in Progress(group, f"drawing the {name}"):
        words = explanation.in_words()
        picture = explanation.plot(DRAWN, words=False)
        wrong = ""
        if labels is not None and (label := int(labels[explanation.target])) != explanation.predicted_class:
            wrong = f" The prediction is wrong: the label is {explanation.batch.names.of_class(label)}."
        removed = f" Removed together: {', '.join(explanation.removed)}." if explanation.removed else ""
        figures.append((_picture(picture, words), f"{words}{removed}{wrong} Δ fidelity {delta:.2f}."))
    return figures


def _general(found: ReportData) -> dict[str, object]:
    """Picture, table and typical explanations of what matters over all targets."""
    summaries = [summary for summary, _ in found.general]
    rows = pd.concat([table.head(MOST).assign(of=one.heading(table)) for one in summaries for table in one.groups])
    typical = [
        f"{explanations[row['index']].in_words()} ({row['share']:.0%})"
        for summary, explanations in found.general
        for row in summary.typical.to_dict("records")
    ]
    return {
        "about": summaries[0].title,
        "picture": _picture(draw_summaries(summaries), f"What matters in general: {summaries[0].title}"),
        "table": _table(rows[["of", "item", "for", "against", "share", "players"]]),
        "typical": typical,
    }


def _r2(value: Any) -> str:
    return f"{value:.3f}" if float(value) <= MAX_R2 else TOO_ROUGH  # NaN too


def _caveats(found: ReportData) -> list[str]:
    """What a careful reader would ask; those that depend on figures appear where the figures call for them."""
    run, game = found.run, found.run.game
    lara = found.tables["agreement"].set_index("method").loc["lara"]
    caveats = [
        "The explanations say what this model does, not what is true of the world: they are not causal statements "
        "about the data, and a model can be wrong for reasons that are explained faithfully.",
        f"Removing {game.player_set.name} makes inputs that the model was not trained on; its answers there, on which "
        "attribution and fidelity rest, may be unusual.",
        f"Scores are estimates. The agreement is a figure over all {len(found.targets)} targets; for a single one the "
        "error can be much larger. Where a single explanation matters, check it by direct sampling.",
    ]
    if found.right is not None and found.right < 1:
        caveats.append(
            f"The model is wrong on {1 - found.right:.1%} of the {len(found.targets)} targets measured here; their "
            "explanations explain the mistake."
        )
    if game.player_set.includes_target:
        caveats.append(
            "R² is dominated by the target's own, large attribution; over the neighbours alone it is "
            f"{_r2(lara['neighbours only'])}."
        )
    if lara["R2 corrected"] < LOW:
        caveats.append(
            f"The agreement is low (R² {lara['R2 corrected']:.2f}, below {LOW}): do not rely on these explanations; "
            "train longer, or on all targets (--train-on all)."
        )
    if found.split == run.config.training.train_on or run.config.training.train_on == "all":
        caveats.append(
            "The explainer was trained on the targets measured here: the figures say nothing of unseen ones."
        )
    if len(found.targets) < FEW:
        caveats.append(f"Only {len(found.targets)} targets were measured; the standard errors are rough.")
    if any(word in run.dataset.source for word in ("stand-in", "substitute")):
        caveats.append(f"The data are not the original ones: {run.dataset.source}.")
    caveats.append(
        "The best examples flatter any method; the typical and the worst are shown beside them for that reason."
    )
    return caveats


def _settings(run: Run) -> list[list[object]]:
    """What `runs show` tells of the run, and the shape of the model where it is one of ours."""
    stored = RunSummary(run.folder).environment
    rows: dict[str, object] = {"command": stored.get("command"), "started": stored.get("time")}
    rows |= {"code (git)": stored.get("git")} | settings_of(RunSummary(run.folder))
    if isinstance(run.model, ShippedModel):
        shape = asdict(run.model.config).items()
        rows |= {f"model: {SHAPE.get(name, name.replace('_', ' '))}": value for name, value in shape}
    return [[name, setting_text(value)] for name, value in rows.items()]

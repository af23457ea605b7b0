"""One page on a run that can be sent to someone: what was explained, how well, examples, settings, caveats.

`measure` does the work and gives a `Findings`; `render` turns it into HTML and decides nothing.
"""

from __future__ import annotations

import html
import json
import platform
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dgl_lara import __version__
from dgl_lara.baselines.sampled import Sampled
from dgl_lara.drawing.pictures import draw, inline
from dgl_lara.evaluation import run_evaluation
from dgl_lara.explanation import Explanation, Explanations
from dgl_lara.inference.scores import Embeddings, explain
from dgl_lara.metrics.fidelity import fidelity_per_target
from dgl_lara.metrics.speed import seconds
from dgl_lara.reports.deviations import applying
from dgl_lara.reports.plots import fidelity_figure, training_figure
from dgl_lara.runs import Run, environment
from dgl_lara.targets.models import TargetModel
from dgl_lara.training.subgraphs import some_targets
from dgl_lara.utils.progress import Progress, say
from dgl_lara.utils.tables import html_table
from dgl_lara.utils.templates import fill

EACH = 4  # examples of best, typical and worst
DRAWN = 25  # players of an example
MARKDOWN = str.maketrans("", "", "`*")  # marks of the changelog's table that a page does not show
LOW = 0.8  # agreement below which the page warns
FEW = 30  # targets below which it does too
TIMED = 10  # targets on which `sampled` is timed


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything the page says that had to be computed."""

    run: Run
    split: str
    seed: int
    targets: Tensor
    accuracy: dict[str, float]
    history: pd.DataFrame
    tables: dict[str, pd.DataFrame]  # fidelity, agreement, auc (empty without ground truth)
    speed: pd.DataFrame
    examples: dict[str, list[tuple[Explanation, float]]]  # best, typical, worst: with their delta
    right: float  # share of the targets that f predicts rightly


def measure(run: Run, split: str, most: int, pairs: int, reference_pairs: int, seed: int) -> Findings:
    dataset, explainer = run.dataset, run.explainer()
    targets = some_targets(dataset.split(split), most, seed)
    subject = run_evaluation.Subject(
        game=run.game,
        explainer=explainer,
        inputs=run.config.training.inputs,
        targets=targets,
        motif=dataset.motif,
        pairs=pairs,
        reference_pairs=reference_pairs,
        seed=seed,
    )
    tables = {}
    for metric in ("fidelity", "agreement", "auc"):
        say(f"measuring {metric} on {len(targets)} {split} {dataset.task}s")
        tables[metric] = run_evaluation.evaluate(subject, metric)
    lara = subject.explanations[-1].named(dataset.node_labels, dataset.node_names, dataset.motif)
    predicted = run.game.explained_class[targets]
    return Findings(
        run=run,
        split=split,
        seed=seed,
        targets=targets,
        accuracy=_accuracy(run),
        history=pd.read_csv(run.folder / "metrics.csv"),
        tables=tables,
        speed=_speed(subject, run.embeddings(explainer)),
        examples=_examples(run, lara),
        right=(predicted == dataset.labels[targets]).float().mean().item(),
    )


def _speed(subject: run_evaluation.Subject, stored: Embeddings) -> pd.DataFrame:
    """A row for LARA at one target and at all of them, and one for direct sampling at a few."""
    game, targets, device = subject.game, subject.targets, subject.targets.device
    rows = []
    for count in sorted({1, len(targets)}):
        spent = seconds(lambda n=count: explain(subject.explainer, game, stored, targets[:n]), device)  # type: ignore[misc]
        rows.append(("lara, embeddings stored", count, spent, count / spent))
    if len(subject.explanations) == 3:
        few = targets[:TIMED]
        spent = seconds(lambda: Sampled(game, subject.seed, subject.pairs).explain(few), device, repeats=1)
        rows.append((f"sampled {subject.pairs}", len(few), spent, len(few) / spent))
    return pd.DataFrame(rows, columns=["method", "targets", "seconds", "explanations a second"])


def _examples(run: Run, lara: Explanations) -> dict[str, list[tuple[Explanation, float]]]:
    """By each target's own delta fidelity (target kept), averaged over sparsity."""
    plus, minus = fidelity_per_target(run.game, lara, keep_target=True)
    delta = (plus - minus).mean(dim=0).cpu().numpy()
    order = [place for place in np.argsort(-delta, kind="stable").tolist() if np.isfinite(delta[place])]
    best, rest = order[:EACH], order[EACH:]
    worst, rest = rest[max(len(rest) - EACH, 0) :], rest[: max(len(rest) - EACH, 0)]
    middle = max(len(rest) - EACH, 0) // 2
    groups = {"best": best, "typical": rest[middle : middle + EACH], "worst": worst}
    return {name: [(lara[place], float(delta[place])) for place in places] for name, places in groups.items()}


# --- the page ---------------------------------------------------------------------------------------------------


def render(found: Findings) -> str:
    run, game, dataset = found.run, found.run.game, found.run.dataset
    made = environment()
    average = _averages(found)
    reference = found.tables["agreement"]["reference"].iloc[0]
    parts = {
        "title": _text(f"Explanations of {_model_name(run)} on {dataset.name}"),
        "made": _text(f"Made {made['time']} by dgl-lara {__version__} from the run '{run.folder.name}'."),
        "summary": _summary(found, average),
        "what": _what(found),
        "accuracy": html_table(["train", "validation", "test"], [list(found.accuracy.values())]),
        "training": inline(training_figure(found.history), "Loss and validation agreement against training steps"),
        "trained": _text(
            f"{int(found.history['step'].max())} steps; the weights of the best validation agreement "
            f"({found.history['agreement'].max():.3f}) are used."
        ),
        "definitions": _text(
            "Two definitions: the paper's, where the target itself may be removed, and “kept”, where it stays; the "
            "first is dominated by whether the target is removed, the second tells methods apart."
            if game.task == "node"
            else ""
        ),
        "fidelity_plot": inline(fidelity_figure(found.tables["fidelity"], ""), "Fidelity against sparsity"),
        "fidelity_table": _fidelity_table(average),
        "verdict": _text(_verdict(average)),
        "reference": _text(f"{reference}, on the same {len(found.targets)} targets"),
        "agreement": _frame(found.tables["agreement"].drop(columns="reference")),
        "truth": _truth(found),
        "speed": _frame(found.speed),
        "machine": _text(
            f"Measured on {platform.machine()} {game.features.device.type}, {torch.get_num_threads()} thread(s); "
            "median of three after a warm-up (sampled: one)."
        ),
        "chosen": _text(
            f"Of the {len(found.targets)} {found.split} {game.task}s measured, those with the highest, the middle and "
            f"the lowest Δ fidelity of their own{' (target kept)' * (game.task == 'node')}. Δ is in units of the "
            f"{game.value}, so targets whose {game.value} can fall far rank higher."
        ),
        "examples": "\n".join(_group(name, group, dataset.labels) for name, group in found.examples.items() if group),
        "caveats": "<ul>" + "".join(f"<li>{_text(caveat)}</li>\n" for caveat in _caveats(found)) + "</ul>",
        "settings": html_table(["setting", "value"], _settings(run)),
        "deviations": html_table(
            ["", "the paper", "here", "why"],
            [
                [d.number, *(text.translate(MARKDOWN) for text in (d.paper, d.here, d.why))]
                for d in applying(run.config.training, game.task)
            ],
        ),
    }
    return fill(__package__, "report.html", parts)


def _text(text: object) -> str:
    return html.escape(str(text))


def _frame(table: pd.DataFrame) -> str:
    rows = [[_plain(value) for value in row] for row in table.itertuples(index=False)]
    return html_table(list(table.columns), rows)


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _averages(found: Findings) -> pd.DataFrame:
    table = found.tables["fidelity"]
    return table[table["sparsity"] == "average"].reset_index(drop=True)


def _row(average: pd.DataFrame, method: str) -> pd.Series | None:
    """The row of a method by the definition that tells methods apart: the target kept, where there is one."""
    mine = average[average["method"].str.startswith(method)]
    return mine.iloc[-1] if len(mine) else None  # 'kept' stands behind 'paper'


def _with_error(row: pd.Series, measure: str = "delta") -> str:
    return f"{row[measure]:.2f} ± {row[f'{measure} error']:.2f}"


def _fidelity_table(average: pd.DataFrame) -> str:
    measures = ("fidelity+", "fidelity-", "delta")
    rows = [
        [row["definition"], row["method"], *(_with_error(row, name) for name in measures)]
        for _, row in average.sort_values("definition", ascending=False, kind="stable").iterrows()
    ]
    header = ["definition", "method", "Fidelity+ (high)", "Fidelity− (low)", "Δ (high)"]
    return html_table(header, rows) + '<p class="soft">Mean over sparsity 0.3 … 0.7, ± standard error over targets.</p>'


def _summary(found: Findings, average: pd.DataFrame) -> str:
    game = found.run.game
    agreement = found.tables["agreement"].set_index("method").loc["lara"]
    lara, chance = _row(average, "lara"), _row(average, "random")
    assert lara is not None and chance is not None
    lines = [
        f"The model is right on {found.accuracy['test']:.1%} of the test {game.task}s of {found.run.dataset.name}.",
        f"The explainer's scores agree with the true attribution with R² = {agreement['R2 corrected']:.3f} on "
        f"{len(found.targets)} {found.split} {game.task}s (1 is perfect; corrected for the noise of the reference).",
        f"Δ fidelity{' with the target kept' * (game.task == 'node')} is {_with_error(lara)}; players ranked by chance "
        f"reach {_with_error(chance)}.",
        f"One explanation takes {found.speed['seconds'].iloc[0] * 1000:.1f} ms once the explainer is trained.",
    ]
    return "".join(f"<p>{_text(line)}</p>\n" for line in lines)


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
    if isinstance(run.target, TargetModel):
        config = run.target.config
        return f"a {config.architecture.upper()} ({config.layers} layers of width {config.hidden})"
    return f"the model of {run.config.model.module}:{run.config.model.function}" if run.config.model else "a model"


def _accuracy(run: Run) -> dict[str, float]:
    """Of the explained model on the three splits."""
    right = run.game.explained_class == run.dataset.labels
    return {name: right[run.dataset.split(name)].float().mean().item() for name in ("train", "val", "test")}


def _what(found: Findings) -> str:
    run, game = found.run, found.run.game
    graph, dataset = run.dataset.graph, run.dataset
    size = f"{graph.num_nodes():,} nodes and {graph.num_edges():,} directed edges"
    if game.task == "graph":
        size = f"{graph.batch_size:,} graphs with together {size}"
    players = (
        f"its {game.hops}-hop in-neighbourhood, itself included" if game.task == "node" else "all nodes of the graph"
    )
    lines = [
        f"Data: {dataset.name} ({dataset.source}), {size}, {dataset.num_classes} classes.",
        f"Model: {_model_name(run)}, a black box to the explainer: only its outputs are used, no gradients, no hidden "
        "layers.",
        f"Explained is, for every {game.task}, the {game.value} of the class that the model predicts. The players are "
        f"{players}. A player's score estimates its removal-based attribution φ: the mean value of the model over "
        "random coalitions with that player, less the mean over those without it (Eq. 5 of the paper; the Banzhaf "
        "value). A positive score speaks for the class, a negative one against it.",
        "To remove a player is to take the node, its features and its edges out of the graph. "
        "A removed target, or an empty graph, has the model's prediction for one isolated node without features.",
        f"Explainer: LARA, one small network trained on the {run.config.training.train_on} split without any label; "
        "afterwards a score is a dot product, without a call of the model.",
    ]
    return "".join(f"<p>{_text(line)}</p>\n" for line in lines)


def _truth(found: Findings) -> str:
    table = found.tables["auc"]
    if table.empty or not table["targets"].iloc[0]:
        return ""
    note = (
        "Probability that a node of the true motif scores higher than another. A motif node may speak against the "
        "predicted class, so a faithful signed score need not be high there."
    )
    return f'<h3>Ground truth</h3><p>{_text(note)}</p><div class="scroll">{_frame(table)}</div>'


def _group(name: str, group: list[tuple[Explanation, float]], labels: Tensor) -> str:
    figures = []
    for explanation, delta in Progress(group, f"drawing the {name}"):
        words = explanation.in_words()
        picture = draw(explanation.scene(DRAWN), "", explanation.explained_class, explanation.game.value)
        label = int(labels[explanation.target])
        wrong = f" The prediction is wrong: the label is {label}." if label != explanation.predicted_class else ""
        caption = f"{words}{wrong} Δ fidelity {delta:.2f}."
        figures.append(f"<figure>{inline(picture, words)}<figcaption>{_text(caption)}</figcaption></figure>")
    return f'<h3>{name.capitalize()}</h3>\n<div class="examples">' + "\n".join(figures) + "</div>"


def _caveats(found: Findings) -> list[str]:
    """What a careful reader would ask; those that depend on figures appear where the figures call for them."""
    run, game = found.run, found.run.game
    lara = found.tables["agreement"].set_index("method").loc["lara"]
    caveats = [
        "The explanations say what this model does, not what is true of the world: they are not causal statements "
        "about the data, and a model can be wrong for reasons that are explained faithfully.",
        f"The model is wrong on {1 - found.right:.1%} of the {len(found.targets)} targets measured here; their "
        "explanations explain the mistake.",
        "Removing nodes makes graphs that the model was not trained on; its answers there, on which attribution and "
        "fidelity rest, may be unusual.",
        f"Scores are estimates. The agreement is a figure over all {len(found.targets)} targets; for a single one the "
        "error can be much larger. Where a single explanation matters, check it by direct sampling.",
    ]
    if game.task == "node":
        caveats.append(
            "R² is dominated by the target's own, large attribution; over the neighbours alone it is "
            f"{lara['neighbours only']:.3f}."
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
    stored = json.loads((run.folder / "environment.json").read_text())
    config = run.config.to_dict()
    training, options = config.pop("training"), config.pop("options")
    rows = [("command", stored["command"]), ("started", stored["time"]), ("code (git)", stored["git"])]
    rows += [(f"version of {name}", version) for name, version in stored["versions"].items()]
    rows += [*config.items(), *((f"data: {name}", value) for name, value in options.items())]
    if isinstance(run.target, TargetModel):
        rows += [(f"model: {name}", value) for name, value in asdict(run.target.config).items()]
    rows += [(f"training: {name}", value) for name, value in training.items()]
    return [[name, "-" if value is None else str(value)] for name, value in rows]

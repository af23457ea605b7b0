"""Print single explanations as a sentence and a table, and draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from dgl_lara._util.tables import text_table
from dgl_lara.cli.console import UsageError, echo, warn_about, width
from dgl_lara.explanation import Explanation, Explanations
from dgl_lara.game.values import ClassQuery
from dgl_lara.inference.novelty import with_novelty
from dgl_lara.inference.request import ExplainRequest, RefineOptions, refine_as_requested
from dgl_lara.runs.explain_job import class_indices, open_requested_run
from dgl_lara.runs.run import Run

STRONGEST_NEGATIVE = 3  # rows below the best players


def explain_single(
    request: ExplainRequest,
    indices: Mapping[str, tuple[Any, ...]],
    pairs: Sequence[tuple[int, int]],
    files: Sequence[Path],
) -> None:
    """Print the explanation of each target and save it.

    Args:
        request: How to explain.
        indices: Numbers of targets by task.
        pairs: Links to explain.
        files: Pictures and tables to write. Names get the number of the target if there are several.
    """
    run = open_requested_run(request, pairs)
    targets, classes = _targets(run, indices), class_indices(request, run)
    warn_about(run.folder)
    switchable = any(file.suffix == ".html" for file in files) and request.players is None and not request.graph
    others = run.parts[1:] if switchable else []  # player sets that an interactive page can switch to
    for position, target in enumerate(targets):
        if position:
            echo()
        explanation = _print_explanation(run, target, classes, request.refine, request.top)
        if not position:
            echo(explanation.meaning)
        beside = [_explain(part, target, classes, request.refine)[0][0] for part in others]
        numbered = [file if len(targets) == 1 else file.with_stem(f"{file.stem}-{target}") for file in files]
        for file in numbered:
            explanation.save(file, beside)
        if numbered:
            echo("\nwritten: " + ", ".join(map(str, numbered)))


def _targets(run: Run, indices: Mapping[str, tuple[Any, ...]]) -> tuple[int, ...]:
    """Return the numbers of the run's task, without repetitions."""
    task, dataset = run.trained().task, run.dataset
    targets = tuple(dict.fromkeys(indices[task.name]))
    if not targets:
        raise UsageError("explain.other_task", task=task.name, option=task.option, dataset=dataset.name)
    for target in targets:
        if target >= dataset.num_targets:
            raise UsageError("explain.target", option=task.option, most=dataset.num_targets - 1, got=target)
    return targets


def _explain(run: Run, target: int, classes: list[int], options: RefineOptions) -> tuple[Explanations, list[str]]:
    """Return the explanation of one target, and lines about the model calls spent on it."""
    lara, lines = run.trained(), []
    query = ClassQuery.repeat(classes, 1)
    explanations = lara.explain(run.dataset.targets(torch.tensor([target])), query, options.corrected)
    if run.on_other_graph:
        explanations = with_novelty(explanations, lara.explainer_, lara.config_.inputs)
    stretch = lara.fitted.stretch
    game = explanations.game or lara.game
    explanations, columns, cost = refine_as_requested(game, explanations, options, stretch)
    if options.min_confidence:
        lines.append(cost.text(options.min_confidence))
    if options.pairs:
        moved = columns["moved"].item()
        lines.append(f"refined with {options.pairs} pairs of model calls, which changed the scores by {moved:.0%}")
    return explanations.named(**run.names), lines


def _print_explanation(
    run: Run, target: int, classes: list[int], options: RefineOptions, top: int | None
) -> Explanation:
    explanations, lines = _explain(run, target, classes, options)
    explanation = explanations[0]
    for line in lines:
        echo(line)
    echo(explanation.in_words())
    echo(explanation.how_sure())
    echo("\n" + _table(explanation, len(explanation) if top is None else top))
    if explanation.removed:
        echo(explanation.removed_in_words)
    if options.verify:
        row = run.trained().verify(explanations).iloc[0]
        figures = [f"{row[name]:.2f}" for name in ("fidelity+", "fidelity-", "random fidelity+", "random fidelity-")]
        echo(
            f"\nfidelity+ {figures[0]} (high is good), fidelity- {figures[1]} (low is good); random players: "
            f"{figures[2]}, {figures[3]}" + "; WORSE THAN RANDOM" * bool(row["worse_than_random"])
        )
    return explanation


def _table(explanation: Explanation, top: int) -> str:
    """Return the best players and the most negative ones as a table."""
    names = dict(zip(explanation.players.tolist(), explanation.player_names(), strict=True))
    local = explanation.task.has_distances and explanation.batch.players.player_type != "features"
    columns = ["hop", "score", "rank"] if local else ["score", "rank"]
    frame = explanation.internal_frame()
    frame["(name)"] = [names[player] for player in frame.player]
    classes = explanation.player_classes()
    if classes is not None:  # the model's prediction for the players themselves
        predicted = dict(zip(explanation.players.tolist(), map(explanation.batch.names.of_class, classes), strict=True))
        frame["class"] = [predicted[player] for player in frame.player]
        columns.append("class")
    best, rest = frame.head(top), frame.iloc[top:]
    negative = rest[rest.score < 0].tail(STRONGEST_NEGATIVE)
    rows = [[list(row) for row in part[["(name)", *columns]].itertuples(index=False)] for part in (best, negative)]
    hidden = len(rest) - len(negative)
    gap = [[f"({hidden:,} more)", *[""] * len(columns)]] if hidden and len(negative) else []
    first = "node" if explanation.batch.includes_target else explanation.noun
    return text_table([first, *columns], [*rows[0], *gap, *rows[1]], width())

"""Summaries of a run, one for each of its player sets."""

from __future__ import annotations

from collections.abc import Sequence

from dgl_lara._util.notices import notice
from dgl_lara._util.randomness import sample_targets
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations, Summary
from dgl_lara.runs.run import Run


def summaries_of(
    parts: Sequence[Run], split: str, max_targets: int, explained_class: int | None = None, hint: str = ""
) -> list[tuple[Summary, Explanations]]:
    """Return a summary for each player set, with its explanations of randomly drawn targets."""
    first, found = parts[0], []
    targets = first.dataset.split(split).to(first.lara.features.device)
    if explained_class is not None:
        targets = targets[first.game.explained_class[targets] == explained_class]
        if not len(targets):
            raise InputError("summary.class_of_no_target", got=explained_class, task=first.lara.task, split=split)
    sample = sample_targets(targets, max_targets, seed=0).sort().values
    if len(sample) < len(targets):
        notice("summary.sampled", count=len(sample), total=len(targets), task=first.lara.task, hint=hint)
    for part in parts:
        lara = part.trained()
        lara.embed()
        explanations = lara.explain(sample).named(**part.names)
        found.append((explanations.summary(), explanations))
    return found

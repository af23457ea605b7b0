"""What matters in general to a run: a summary for each kind of players that it holds."""

from __future__ import annotations

from collections.abc import Sequence

from dgl_lara._util.progress import log_info
from dgl_lara._util.randomness import sample_targets
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations, Summary
from dgl_lara.runs.run import Run


def explained_in_general(
    parts: Sequence[Run], split: str, most: int, explained_class: int | None = None, hint: str = ""
) -> list[tuple[Summary, Explanations]]:
    """Summaries, each with the explanations that its places name; of those targets alone that f gives a class, if one
    is asked for. `hint` says how more targets can be had, where some are left out."""
    first, found = parts[0], []
    every = first.dataset.split(split).to(first.lara.features.device)
    if explained_class is not None:
        every = every[first.game.explained_class[every] == explained_class]
        if not len(every):
            raise InputError(f"the model gives class {explained_class} to no {first.lara.task} of the split '{split}'.")
    targets = sample_targets(every, most, seed=0).sort().values
    if len(targets) < len(every):
        log_info(f"summing up {len(targets):,} of {len(every):,} {first.lara.task}s, drawn at random{hint}")
    for part in parts:
        lara = part.trained()
        lara.embed()
        explanations = lara.explain(targets).named(**part.names)
        found.append((explanations.summary(), explanations))
    return found

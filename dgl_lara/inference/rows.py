"""Rows of an export with what is known of each explanation: source, confidence, model calls spent on it, fidelity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import Tensor

from dgl_lara.explanation import Explanations
from dgl_lara.inference.adaptive import refine_until_confident
from dgl_lara.inference.refine import refine
from dgl_lara.inference.top_players import BulkExplainer
from dgl_lara.inference.verification import verify

Rows = Callable[[BulkExplainer, Tensor, int | None], pd.DataFrame]


@dataclass
class RefineBudget:
    """What is bought with model calls at the time of asking."""

    refine: int | None = None  # pairs of coalitions for each explanation
    at_least: float | None = None  # or: for those in doubt, until they reach this confidence
    stretch: float = 1.0  # of their errors, see `ErrorModel`
    verify: bool = False
    doubtful: int = 0  # how many were in doubt, as the rows are made
    pairs: int = 0  # and what was spent on them
    still: int = 0  # how many of them are in doubt yet


def trusted_rows(explain: Callable[[Tensor], Explanations], bought: RefineBudget, seed: int) -> Rows:
    """Rows for `export.explain_to_file`. `explain` gives the explanations of some targets."""

    def rows(bulk: BulkExplainer, targets: Tensor, top: int | None) -> pd.DataFrame:
        explanations, more = _improved(bulk, explain(targets), bought, seed)
        frame = explanations.to_frame()
        row = explanations.players.row.cpu().numpy()
        if top is not None:
            order = np.lexsort((frame["rank"], row))  # as `bulk.top`: best first
            order = order[frame["rank"].to_numpy()[order] <= top]
            frame, row = frame.iloc[order].reset_index(drop=True), row[order]
        for name, known in explanations.trust().items():
            frame[name] = known[row]
        for name, values in more.items():
            frame[name] = values.cpu().numpy()[row]
        if bought.verify:
            verdict = verify(bulk.game, explanations, seed=seed).drop(columns="target")
            frame[verdict.columns] = verdict.iloc[row].to_numpy()
            frame = frame.astype(verdict.dtypes)
        return frame

    return rows


def _improved(
    bulk: BulkExplainer, explanations: Explanations, bought: RefineBudget, seed: int
) -> tuple[Explanations, dict[str, Tensor]]:
    """The explanations after what was bought for them, and columns that say what it did."""
    if bought.refine:
        refined = refine(bulk.game, explanations, bought.refine, bought.stretch, seed)
        return refined.explanations, {"moved": refined.moved}
    if bought.at_least:
        settled = refine_until_confident(bulk.game, explanations, bought.stretch, bought.at_least, seed)
        bought.doubtful += int((settled.pairs > 0).sum())
        bought.pairs += int(settled.pairs.sum())
        bought.still += int(settled.still.sum())
        return settled.explanations, {"pairs": settled.pairs}
    return explanations, {}

"""Rows of an export with the trust in each explanation: source, confidence, model calls, fidelity."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from torch import Tensor

from dgl_lara.explanation import Explanations
from dgl_lara.inference.request import RefineCost, RefineOptions, refine_as_requested
from dgl_lara.inference.top_players import BulkExplainer
from dgl_lara.inference.verification import verify

Rows = Callable[[BulkExplainer, Tensor, int | None], pd.DataFrame]


def refined_rows(
    explain: Callable[[Tensor], Explanations], options: RefineOptions, stretch: float, seed: int, cost: RefineCost
) -> Rows:
    """Return the rows of `export.explain_to_file`, with trust and with what refining changed.

    Args:
        explain: Explains some targets.
        options: Model calls to spend on each.
        stretch: Factor of the expected errors, see `ErrorModel`.
        seed: Seed of the coalitions.
        cost: Grows by what is spent.
    """

    def rows(bulk: BulkExplainer, targets: Tensor, top: int | None) -> pd.DataFrame:
        explanations, more, spent = refine_as_requested(bulk.game, explain(targets), options, stretch, seed)
        cost.num_doubtful += spent.num_doubtful
        cost.num_pairs += spent.num_pairs
        cost.num_still_doubtful += spent.num_still_doubtful
        frame = explanations.to_frame()
        row = explanations.players.row.cpu().numpy()
        if top is not None:
            order = np.lexsort((frame["rank"], row))  # as `bulk.top`: best first
            order = order[frame["rank"].to_numpy()[order] <= top]
            frame, row = frame.iloc[order].reset_index(drop=True), row[order]
        for name, column in explanations.trust().items():
            frame[name] = column[row]
        for name, values in more.items():
            frame[name] = values.cpu().numpy()[row]
        if options.verify:
            verdict = verify(bulk.game, explanations, seed=seed).drop(columns="target")
            frame[verdict.columns] = verdict.iloc[row].to_numpy()
            frame = frame.astype(verdict.dtypes)
        return frame

    return rows

"""Rows of an export that are refined, or carry their fidelity beside them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from torch import Tensor

from dgl_lara.inference.refinement import refine
from dgl_lara.inference.scores import explain
from dgl_lara.inference.top_players import BulkExplainer
from dgl_lara.inference.verification import verify


def trusted_rows(
    pairs: int | None, verified: bool, seed: int
) -> Callable[[BulkExplainer, Tensor, int | None], pd.DataFrame]:
    """Rows for `export.explain_to_file`: refined with `pairs`, and with the columns of `verify` where asked for."""

    def rows(bulk: BulkExplainer, targets: Tensor, top: int | None) -> pd.DataFrame:
        explanations = explain(bulk.explainer, bulk.game, bulk.embeddings, targets)
        moved = None
        if pairs:
            refined = refine(bulk.game, explanations, pairs, seed)
            explanations, moved = refined.explanations, refined.moved
        frame = explanations.to_frame()
        row = explanations.players.row.cpu().numpy()
        if moved is not None:
            frame["moved"] = moved.cpu().numpy()[row]
        if verified:
            verdict = verify(bulk.game, explanations, seed=seed).drop(columns="target")
            frame[verdict.columns] = verdict.iloc[row].to_numpy()
            frame = frame.astype(verdict.dtypes)
        if top is None:
            return frame
        order = np.lexsort((frame["rank"], row))  # as `bulk.top`: best first
        return frame.iloc[order[frame["rank"].to_numpy()[order] <= top]]

    return rows

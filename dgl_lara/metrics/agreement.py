"""Agreement of scores with phi: R squared and rank correlation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from torch import Tensor

from dgl_lara.attribution.r_squared import r_squared
from dgl_lara.explanation import Explanations
from dgl_lara.game.player_index import Players
from dgl_lara.metrics.common.metric import EvalCase, Metric, Rows
from dgl_lara.metrics.common.reference import Reference

MAX_R2 = 1.05  # a corrected R2 may be a little above 1. Above this it is only noise
HIGH_R2, LARGE_GAP = 0.9, 0.3  # a rank correlation this far below a high R2 needs an explanation


class Agreement(Metric):
    columns = {"R2, neighbours": 1, "rank correlation": 1, "R2": 1}

    def table(self, case: EvalCase, explanations: Explanations) -> pd.DataFrame:
        return pd.DataFrame([{**agreement(explanations, case.phi), "reference": case.phi.description}])

    def summary(self, table: pd.DataFrame) -> Rows:
        return super().summary(table.drop(columns="reference"))

    def notes(self, table: pd.DataFrame) -> dict[str, dict[str, Any]]:
        corrected = table.filter(["R2 corrected", "neighbours only"])
        notes: dict[str, dict[str, Any]] = {"agreement.reference": {"description": table["reference"].iloc[0]}}
        if (table["noise ceiling"] < 1).any():
            notes["agreement.ceiling" if "neighbours only" in table else "agreement.ceiling_of_graphs"] = {}
        if (corrected > MAX_R2).to_numpy().any():
            notes["agreement.above_one"] = {}
        if far_apart(table["R2 corrected"], table["rank correlation"]):
            notes["agreement.order_is_noise"] = {}
        if corrected.isna().to_numpy().any():
            notes["agreement.only_noise"] = {}
        return notes

    def values(self, table: pd.DataFrame) -> dict[str, float]:
        row = table.iloc[0]
        names = {"R2": "R2 corrected", "R2, neighbours": "neighbours only", "rank correlation": "rank correlation"}
        return {name: row[column] for name, column in names.items() if column in row}


def far_apart(r2: pd.Series, rank_correlation: pd.Series) -> bool:
    """Return whether a method has a high R2 but a low rank correlation."""
    return bool((r2.clip(upper=1) - rank_correlation > LARGE_GAP)[r2 > HIGH_R2].any())


def agreement(explanations: Explanations, against: Reference) -> dict[str, float]:
    """Compute the agreement of scores with phi.

    The target's own phi is by far the largest, so R squared is also given over the neighbours alone.

    Args:
        explanations: Scores of the pairs of the reference.
        against: phi of these pairs.

    Returns:
        R squared over all pairs, raw and corrected for noise, its ceiling, and the mean rank correlation of a target.
    """
    scores, phi = explanations.scores, against.estimate.phi
    result = {"R2": r_squared(scores, phi), "R2 corrected": against.r_squared(scores)}
    if explanations.includes_target:
        result["neighbours only"] = against.r_squared(scores, ~explanations.is_target)
    rank_correlation = _mean_rank_correlation(scores, phi, against.players)
    return result | {"noise ceiling": against.ceiling, "rank correlation": rank_correlation}


def _mean_rank_correlation(scores: Tensor, phi: Tensor, players: Players) -> float:
    values = []
    for pairs in players.slices:
        ours, true = scores[pairs].cpu().numpy(), phi[pairs].cpu().numpy()
        if len(ours) > 2 and np.ptp(ours) > 0 and np.ptp(true) > 0:
            values.append(spearmanr(ours, true).statistic)
    return float(pd.Series(values, dtype=float).mean())


METRIC = Agreement()

"""Agreement of scores with phi: R squared and rank correlation, against exact values where they can be had."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from torch import Tensor

from dgl_lara.attribution.r_squared import r_squared
from dgl_lara.explanation import Explanations
from dgl_lara.game.players import Players
from dgl_lara.metrics.common.metric import Case, Metric, Rows
from dgl_lara.metrics.common.reference import Reference

ROUGH = 1.05  # noise is taken out, so that an R2 may come out somewhat above 1; further above there was only noise
CEILING = (
    "the ceiling is of the column R2, whose reference has noise of its own; R2 corrected and neighbours only have that "
    "noise taken out, and may stand above it"
)
TOO_ROUGH = "an R2 above 1 is noise: so few reference pairs cannot tell it (--reference-pairs asks for more)"


class Agreement(Metric):
    columns = {
        "R2, neighbours": 1,
        "rank correlation": 1,
        "R2": 1,
    }

    def table(self, case: Case, explanations: Explanations) -> pd.DataFrame:
        return pd.DataFrame([{**agreement(explanations, case.phi), "reference": case.phi.how}])

    def shown(self, table: pd.DataFrame) -> Rows:
        return super().shown(table.drop(columns="reference"))

    def note(self, table: pd.DataFrame) -> str:
        lines = [f"the true attribution (phi): {table['reference'].iloc[0]}"]
        if (table["noise ceiling"] < 1).any():
            lines.append(CEILING)
        if (table[["R2 corrected", "neighbours only"]] > ROUGH).to_numpy().any():
            lines.append(TOO_ROUGH)
        return "\n".join(lines)

    def figures(self, table: pd.DataFrame) -> dict[str, float]:
        row = table.iloc[0]
        return {
            "R2": row["R2 corrected"],
            "R2, neighbours": row["neighbours only"],
            "rank correlation": row["rank correlation"],
        }


def agreement(explanations: Explanations, against: Reference) -> dict[str, float]:
    """R squared over all pairs, raw and corrected for the reference's noise; mean rank correlation a target.

    The target's own phi is by far the largest, so R squared is also given over the neighbours alone.
    """
    scores, phi = explanations.scores, against.estimate.phi
    others = ~explanations.is_target
    return {
        "R2": r_squared(scores, phi),
        "R2 corrected": against.r_squared(scores),
        "neighbours only": against.r_squared(scores, others),
        "noise ceiling": against.ceiling,
        "rank correlation": _mean_rank_correlation(scores, phi, against.players),
    }


def _mean_rank_correlation(scores: Tensor, phi: Tensor, players: Players) -> float:
    values = []
    for pairs in players.slices:
        mine, theirs = scores[pairs].cpu().numpy(), phi[pairs].cpu().numpy()
        if len(mine) > 2 and np.ptp(mine) > 0 and np.ptp(theirs) > 0:
            values.append(spearmanr(mine, theirs).statistic)
    return float(pd.Series(values, dtype=float).mean())


METRIC = Agreement()

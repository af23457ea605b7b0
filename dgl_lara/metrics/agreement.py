"""Agreement of scores with phi: R squared and rank correlation, against exact values where they can be had."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from torch import Tensor

from dgl_lara.attribution.r_squared import r_squared
from dgl_lara.explanation import Explanations
from dgl_lara.game.player_index import Players
from dgl_lara.metrics.common.metric import EvalCase, Metric, Rows
from dgl_lara.metrics.common.reference import Reference

ROUGH = 1.05  # noise is taken out, so that an R2 may come out somewhat above 1; further above there was only noise
CEILING = (
    "Its estimate for a single player is noisy, so perfect scores would reach only the noise ceiling in the column R2."
    "\nR2 corrected{too} that noise taken out: perfect scores reach 1, which may be above the ceiling."
)
TOO_ROUGH = "An R2 above 1 is noise: so few reference pairs cannot tell it (--reference-pairs asks for more)."

AGREES, FAR = 0.9, 0.3  # R2 from which on it is high, and how far below it a rank correlation needs a word
NEXT_TO_NOTHING = "Rank correlation is far below R2 where most players count next to nothing: their order is noise."
NOTHING_BUT_NOISE = (
    "- stands where the true attribution can hardly be told from its noise (players that count next to nothing, or too "
    "few reference pairs): no R2 means anything there."
)


class Agreement(Metric):
    columns = {
        "R2, neighbours": 1,
        "rank correlation": 1,
        "R2": 1,
    }

    def table(self, case: EvalCase, explanations: Explanations) -> pd.DataFrame:
        return pd.DataFrame([{**agreement(explanations, case.phi), "reference": case.phi.how}])

    def shown(self, table: pd.DataFrame) -> Rows:
        return super().shown(table.drop(columns="reference"))

    def note(self, table: pd.DataFrame) -> str:
        lines = [f"The true attribution is {table['reference'].iloc[0]}."]
        if (table["noise ceiling"] < 1).any():
            lines.append(CEILING.format(too=" and neighbours only have" if "neighbours only" in table else " has"))
        if (table.filter(["R2 corrected", "neighbours only"]) > ROUGH).to_numpy().any():
            lines.append(TOO_ROUGH)
        if far_apart(table["R2 corrected"], table["rank correlation"]):
            lines.append(NEXT_TO_NOTHING)
        if table.filter(["R2 corrected", "neighbours only"]).isna().to_numpy().any():
            lines.append(NOTHING_BUT_NOISE)
        return "\n".join(lines)

    def figures(self, table: pd.DataFrame) -> dict[str, float]:
        row = table.iloc[0]
        names = {"R2": "R2 corrected", "R2, neighbours": "neighbours only", "rank correlation": "rank correlation"}
        return {name: row[long] for name, long in names.items() if long in row}


def far_apart(r2: pd.Series, rank_correlation: pd.Series) -> bool:
    """Some method's, which a reader could not put together."""
    return bool((r2.clip(upper=1) - rank_correlation > FAR)[r2 > AGREES].any())


def agreement(explanations: Explanations, against: Reference) -> dict[str, float]:
    """R squared over all pairs, raw and corrected for the reference's noise; mean rank correlation a target.

    Where the target is a player, its own phi is by far the largest, so R squared is also given over the neighbours
    alone.
    """
    scores, phi = explanations.scores, against.estimate.phi
    beside = {}
    if explanations.includes_target:
        beside["neighbours only"] = against.r_squared(scores, ~explanations.is_target)
    return {
        "R2": r_squared(scores, phi),
        "R2 corrected": against.r_squared(scores),
        **beside,
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

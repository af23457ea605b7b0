"""Ground-truth AUC: do the nodes of the motif score higher than the others?

Signed and absolute, because they answer different questions: a motif node can speak *against* the predicted class,
and then a faithful signed score is low although the node matters.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from scipy.stats import rankdata
from torch import Tensor

from dgl_lara.explanation import Explanations
from dgl_lara.metrics.common.metric import EvalCase, Metric


class GroundTruthAUC(Metric):
    columns = {"AUC": 1, "AUC |score|": 1}

    def missing(self, case: EvalCase) -> str | None:
        if case.game.player_set.name == "features":
            return "no ground truth says which features matter."
        if case.motif is None:
            return "this data set has no ground truth."
        if not bool((case.motif[case.game.task.target_nodes(case.game.graph, case.targets)] >= 0).any()):
            return "none of these targets has a ground truth; ask about more of them (--targets)."
        return None

    def table(self, case: EvalCase, explanations: Explanations) -> pd.DataFrame:
        assert case.motif is not None
        return pd.DataFrame([auc(explanations, case.motif)])

    def note(self, table: pd.DataFrame) -> str:
        return (
            "Signed: by the score; absolute: by its size, for who speaks against the class matters too. Pooled: all "
            "players of all targets together. Targets without a ground truth are left out."
        )

    def figures(self, table: pd.DataFrame) -> dict[str, float]:
        return {"AUC": table["signed, pooled"].iloc[0], "AUC |score|": table["absolute, pooled"].iloc[0]}


def roc_auc(truth: np.ndarray, scores: np.ndarray) -> float:
    """Probability that a true one scores higher than a false one (ties count half); NaN without both kinds."""
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[truth].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def truth_of_pairs(explanations: Explanations, motif: Tensor) -> tuple[Tensor, Tensor]:
    """(num_pairs,) bool: the player is in the target's own motif (graph task: in any motif of the graph); and
    (num_targets,) bool: the target has a motif."""
    truth = explanations.in_motif(motif)
    has = torch.zeros(len(explanations), dtype=torch.bool, device=truth.device)
    has[explanations.players.row[truth]] = True
    return truth, has


def auc(explanations: Explanations, motif: Tensor) -> dict[str, int | float]:
    """Pooled over all pairs, and the mean over targets; of the signed and of the absolute score."""
    truth, has = truth_of_pairs(explanations, motif)
    row = explanations.players.row
    chosen = has[row]
    result = {}
    for kind, scores in (("signed", explanations.scores), ("absolute", explanations.scores.abs())):
        y, s, r = (values[chosen].cpu().numpy() for values in (truth, scores, row))
        result[f"{kind}, pooled"] = roc_auc(y, s)
        each = [roc_auc(y[r == target], s[r == target]) for target in np.unique(r)]
        result[f"{kind}, per target"] = float(np.nanmean(each)) if np.isfinite(each).any() else float("nan")
    return {"targets": int(has.sum()), **result}


METRIC = GroundTruthAUC()

"""Ground-truth AUC: whether the nodes of the motif have higher scores than other nodes.

Signed and absolute: a motif node can be evidence against the predicted class. A faithful signed score is then low,
although the node matters.
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
    note_code = "auc.note"

    def unavailable(self, case: EvalCase) -> str | None:
        if not case.game.player_set.in_graph:
            return "auc.features"
        if case.motif is None:
            return "auc.no_ground_truth"
        nodes = case.game.task.target_nodes(case.game.graph, case.targets)
        return None if bool((case.motif[nodes] >= 0).any()) else "auc.no_target_in_motif"

    def table(self, case: EvalCase, explanations: Explanations) -> pd.DataFrame:
        assert case.motif is not None
        return pd.DataFrame([auc(explanations, case.motif)])

    def values(self, table: pd.DataFrame) -> dict[str, float]:
        return {"AUC": table["signed, pooled"].iloc[0], "AUC |score|": table["absolute, pooled"].iloc[0]}


def roc_auc(truth: np.ndarray, scores: np.ndarray) -> float:
    """Compute the probability that a true one scores higher than a false one. Ties count half.

    Returns:
        The probability, or NaN if all are true or all are false.
    """
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if not positives or not negatives:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[truth].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def auc(explanations: Explanations, motif: Tensor) -> dict[str, int | float]:
    """Compute the AUC of the signed and the absolute scores, over all pairs and as the mean over targets.

    A player is true if it is in the target's own motif (of a graph, in any motif). Targets without one are left out.

    Args:
        explanations: The scores.
        motif: (num_nodes,) motif of each node, -1 for none.
    """
    truth, row = explanations.in_motif(motif), explanations.players.row
    has_motif = torch.zeros(len(explanations), dtype=torch.bool, device=truth.device)
    has_motif[row[truth]] = True
    counted = has_motif[row]
    result = {}
    for name, scores in (("signed", explanations.scores), ("absolute", explanations.scores.abs())):
        y, s, r = (values[counted].cpu().numpy() for values in (truth, scores, row))
        result[f"{name}, pooled"] = roc_auc(y, s)
        each = [roc_auc(y[r == target], s[r == target]) for target in np.unique(r)]
        result[f"{name}, per target"] = float(np.nanmean(each)) if np.isfinite(each).any() else float("nan")
    return {"targets": int(has_motif.sum()), **result}


METRIC = GroundTruthAUC()

"""Characterization score by PyTorch Geometric's definition (GraphFramEx): the harmonic mean of fid+ and 1 - fid-."""

from __future__ import annotations

import pandas as pd
from torch import Tensor

from dgl_lara.metrics.common.label_flips import LabelMetric, MaskedPredictions
from dgl_lara.metrics.common.metric import Rows
from dgl_lara.metrics.fidelity import AVERAGE, SPARSITIES


class _CharacterizationScore(LabelMetric):
    note_code = "characterization.note"

    def rows(self, predictions: MaskedPredictions) -> list[dict[str, object]]:
        plus, minus = predictions.fidelity
        score = characterization_score(plus, minus)
        rows: list[dict[str, object]] = [
            {"sparsity": f"{sparsity:.1f}", "fid+": p, "fid-": m, "characterization": s}
            for sparsity, p, m, s in zip(SPARSITIES, plus.tolist(), minus.tolist(), score.tolist(), strict=True)
        ]
        means = {"fid+": plus, "fid-": minus, "characterization": score}
        return [*rows, {"sparsity": AVERAGE, **{name: float(values.mean()) for name, values in means.items()}}]

    def summary(self, table: pd.DataFrame) -> Rows:
        rows = [
            [row["definition"], row["method"], *(f"{row[name]:.3f}" for name in ("fid+", "fid-", "characterization"))]
            for _, row in table[table["sparsity"] == AVERAGE].iterrows()
        ]
        header = ["definition", "method", "fid+ (high)", "fid- (low)", "characterization (high)"]
        return header, sorted(rows, key=lambda row: row[0] != "paper")


def characterization_score(plus: Tensor, minus: Tensor, plus_weight: float = 0.5) -> Tensor:
    """Compute 1 / (w+ / fid+ + w- / (1 - fid-)) with weights that add up to 1. It is 0 if fid+ is 0 or fid- is 1."""
    return 1 / (plus_weight / plus + (1 - plus_weight) / (1 - minus))


METRIC = _CharacterizationScore()

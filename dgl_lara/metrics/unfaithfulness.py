"""Unfaithfulness by PyTorch Geometric's definition (GraphXAI): 1 - exp(-KL) of probabilities.

The two distributions are f's on the full graph and with the important players alone. The divergence is the one that PyG
computes. Its documentation names the other direction.
"""

from __future__ import annotations

import pandas as pd
from torch import Tensor

from dgl_lara.metrics.common.label_flips import LabelMetric, MaskedPredictions
from dgl_lara.metrics.common.metric import Rows
from dgl_lara.metrics.fidelity import AVERAGE, SPARSITIES, format_with_error, standard_error


class _Unfaithfulness(LabelMetric):
    note_code = "unfaithfulness.note"

    def rows(self, predictions: MaskedPredictions) -> list[dict[str, object]]:
        values = unfaithfulness(predictions.full, predictions.only)
        each = [(f"{sparsity:.1f}", row) for sparsity, row in zip(SPARSITIES, values, strict=True)]
        return [
            {"sparsity": name, "unfaithfulness": float(row.mean()), "unfaithfulness error": standard_error(row)}
            for name, row in [*each, (AVERAGE, values.mean(0))]
        ]

    def summary(self, table: pd.DataFrame) -> Rows:
        rows = [
            [row["definition"], row["method"], format_with_error(row, "unfaithfulness", ".3f", ".3f")]
            for _, row in table[table["sparsity"] == AVERAGE].iterrows()
        ]
        return ["definition", "method", "unfaithfulness (low)"], sorted(rows, key=lambda row: row[0] != "paper")


def unfaithfulness(full: Tensor, only: Tensor) -> Tensor:
    """Compute 1 - exp(-KL(y_hat || y)) from logits with classes last.

    Args:
        full: (num_targets, num_classes) logits of y.
        only: (..., num_targets, num_classes) logits of y_hat.

    Returns:
        (..., num_targets)
    """
    y, y_hat = full.double().log_softmax(-1), only.double().log_softmax(-1)
    return -(-(y_hat.exp() * (y_hat - y)).sum(-1)).expm1()


METRIC = _Unfaithfulness()

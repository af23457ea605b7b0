"""Unfaithfulness, by PyTorch Geometric's definition (GraphXAI): 1 - exp(-KL) of f's probabilities and those with the
important players alone. As PyG computes it: of the second from the first, the other way round than it is documented."""

from __future__ import annotations

import pandas as pd
from torch import Tensor

from dgl_lara.metrics.common.label_flips import LabelMetric, MaskedPredictions
from dgl_lara.metrics.common.metric import Rows
from dgl_lara.metrics.fidelity import SPARSITIES, format_with_error, standard_error


class Unfaithfulness(LabelMetric):
    def note(self, table: pd.DataFrame) -> str:
        return "average over sparsity 0.3 ... 0.7, ± standard error over targets; from 0 (the model says the same) to 1"

    def rows(self, said: MaskedPredictions) -> list[dict[str, object]]:
        values = unfaithfulness(said.full, said.only)
        each = [(f"{sparsity:.1f}", values[place]) for place, sparsity in enumerate(SPARSITIES)]
        return [
            {"sparsity": name, "unfaithfulness": float(some.mean()), "unfaithfulness error": standard_error(some)}
            for name, some in [*each, ("average", values.mean(0))]
        ]

    def shown(self, table: pd.DataFrame) -> Rows:
        rows = [
            [row["definition"], row["method"], format_with_error(row, "unfaithfulness", ".3f", ".3f")]
            for _, row in table[table["sparsity"] == "average"].iterrows()
        ]
        return ["definition", "method", "unfaithfulness (low)"], sorted(rows, key=lambda row: row[0] != "paper")


def unfaithfulness(full: Tensor, only: Tensor) -> Tensor:
    """(..., num_targets) 1 - exp(-KL(y_hat || y)), of logits with classes last; y: f itself, y_hat: what is left."""
    y, y_hat = full.double().log_softmax(-1), only.double().log_softmax(-1)
    return -(-(y_hat.exp() * (y_hat - y)).sum(-1)).expm1()


METRIC = Unfaithfulness()

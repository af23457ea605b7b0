"""Area of the fidelity curve, by PyTorch Geometric's definition (GraphFramEx): of fid+ / (1 - fid-) over sparsity."""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from dgl_lara.metrics.common.label_flips import LabelMetric, MaskedPredictions
from dgl_lara.metrics.fidelity import SPARSITIES


class FidelityCurve(LabelMetric):
    def note(self, table: pd.DataFrame) -> str:
        return "of fid+ / (1 - fid-) over sparsity 0.3 ... 0.7; high is good, 0.4 where only the important matter"

    def rows(self, said: MaskedPredictions) -> list[dict[str, object]]:
        x = torch.tensor(SPARSITIES, dtype=torch.float64, device=said.full.device)
        return [{"area (high)": round(float(fidelity_curve_area(*said.fidelity, x)), 4)}]


def fidelity_curve_area(plus: Tensor, minus: Tensor, x: Tensor) -> Tensor:
    """By trapezoids over rising x; NaN where fid- is 1 somewhere, where PyG raises an error."""
    return torch.trapezoid((plus / (1 - minus)).masked_fill(minus == 1, torch.nan), x)


METRIC = FidelityCurve()

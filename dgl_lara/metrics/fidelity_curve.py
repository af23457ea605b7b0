"""Area of the fidelity curve by PyTorch Geometric's definition (GraphFramEx): fid+ / (1 - fid-) over sparsity."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.metrics.common.label_flips import LabelMetric, MaskedPredictions
from dgl_lara.metrics.fidelity import SPARSITIES


class _FidelityCurve(LabelMetric):
    note_code = "fidelity_curve.note"

    def rows(self, predictions: MaskedPredictions) -> list[dict[str, object]]:
        x = torch.tensor(SPARSITIES, dtype=torch.float64, device=predictions.full.device)
        return [{"area (high)": round(float(fidelity_curve_area(*predictions.fidelity, x)), 4)}]


def fidelity_curve_area(plus: Tensor, minus: Tensor, x: Tensor) -> Tensor:
    """Integrate by trapezoids over ascending x. The area is NaN if fid- is 1 somewhere (PyG raises an error)."""
    return torch.trapezoid((plus / (1 - minus)).masked_fill(minus == 1, torch.nan), x)


METRIC = _FidelityCurve()

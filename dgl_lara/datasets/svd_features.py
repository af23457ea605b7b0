"""Features from the leading singular vectors of a sparse table, equal on every machine."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import svds
from torch import Tensor

DECIMALS = 5  # rounding and the number of threads change about 1e-12


def svd_features(table: sp.csr_matrix, dim: int) -> Tensor:
    """Return (num_columns, dim) coordinates of the columns in the `dim` leading directions, with deviation 1 each."""
    _, strength, directions = svds(table, k=dim, v0=np.ones(min(table.shape)))
    rows = directions[np.argsort(-strength)].T  # (num_columns, dim), the strongest direction first
    rows = rows * np.sign(rows[np.abs(rows).argmax(axis=0), np.arange(dim)])  # fixes the sign of a direction
    return torch.as_tensor((rows / rows.std(axis=0)).round(DECIMALS)).float()

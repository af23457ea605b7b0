"""Features out of a sparse table: its leading singular vectors, the same numbers on every machine."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import svds
from torch import Tensor

DECIMALS = 5  # far above what rounding and the number of threads change, which is about 1e-12


def leading_directions(table: sp.csr_matrix, dim: int) -> Tensor:
    """(num_columns, dim): the columns of the table in its `dim` leading directions, each direction of deviation 1."""
    _, strength, directions = svds(table, k=dim, v0=np.ones(min(table.shape)))
    rows = directions[np.argsort(-strength)].T  # (num_columns, dim), the strongest direction first
    rows = rows * np.sign(rows[np.abs(rows).argmax(axis=0), np.arange(dim)])  # a direction and its opposite are one
    return torch.as_tensor((rows / rows.std(axis=0)).round(DECIMALS)).float()

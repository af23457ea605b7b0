"""The error of scores without knowing phi, from the residual of the responses.

With r(S) = y(S) - sum_j z_j phi_hat_j and two independent coalitions S, S', the mean of z_j(S) r(S) z_j(S') r(S') is
(phi_j - phi_hat_j)^2, because E[z z^T] = I.

If the target is a player, its own score is by far the largest. It is fitted first, and the residual of the others is
orthogonal to its column of the design.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara.attribution.monte_carlo import sum_of_squares


@dataclass(frozen=True, eq=False)
class Residual:
    """What one target's scores leave of the responses.

    Attributes:
        z: (samples, others) design of the players that are not the target itself.
        left: (samples,) the residual, orthogonal to the column of the target.
        own: () the error of the target's own score, None if the target is no player.
        own_column: (samples,) the column of the target.
    """

    z: Tensor
    left: Tensor
    own: Tensor | None
    own_column: Tensor | None

    @property
    def spread(self) -> Tensor:
        """() Return the variance of the residual."""
        return self.left.square().sum() / max(len(self.left) - 1, 1)

    def project(self, values: Tensor) -> Tensor:
        """Remove the part of (samples, n) values along the column of the target."""
        return values if self.own_column is None else values - torch.outer(self.own_column, self.along(values))

    def along(self, values: Tensor) -> Tensor:
        """(n,) Fit (samples, n) values on the column of the target."""
        assert self.own_column is not None
        return (self.own_column.unsqueeze(1) * values).mean(0) / self.own_column.square().mean()


def residual(z: Tensor, y: Tensor, scores: Tensor, own: Tensor) -> Residual:
    """Compute the residual of one target.

    Args:
        z: (samples, players) the design.
        y: (samples,) the responses.
        scores: (players,)
        own: (players,) bool, the target itself.
    """
    left = y - z @ scores
    if not bool(own.any()):
        return Residual(z, left, None, None)
    column = z[:, own].squeeze(1)
    error = (column * left).mean() / column.square().mean()
    return Residual(z[:, ~own], left - column * error, error, column)


def squared_errors(residual: Residual) -> Tensor:
    """(others,) Estimate (phi_j - phi_hat_j)^2 without bias. Some estimates are negative."""
    count = len(residual.left)
    energy = sum_of_squares(residual.left, residual.z)
    return ((residual.left @ residual.z).square() - energy) / max(count * (count - 1), 1)


def own_squared_error(residual: Residual) -> Tensor:
    """() Estimate the squared error of the target's own score."""
    assert residual.own is not None and residual.own_column is not None
    return residual.own.square() - residual.spread / residual.own_column.square().sum()

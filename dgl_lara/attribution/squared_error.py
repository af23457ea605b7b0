"""The error of scores without knowing phi, from their residuals of d(S).

With r(S) = d(S) - sum_j sigma_j phi_hat_j and two independent coalitions S, S', E[sigma_j(S) r(S) sigma_j(S') r(S')] is
exactly (phi_j - phi_hat_j)^2, because E[sigma sigma^T] = I.

If the target is a player, everything is seen from its side: a node is in exactly one of S and the rest. So with its own
sign sigma_i, the product sigma_i r has the error of its own score as mean, and varies with the errors of the
others, with
the signs sigma_i sigma_j.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Residual:
    """Residuals of d(S) for the scores of one target, seen from the target."""

    signs: Tensor  # (pairs, others): of the players that are not the target itself
    left: Tensor  # (pairs,) with mean 0 where the target is a player
    own: Tensor | None  # (): the error of the target's own score; None where it is no player

    @property
    def spread(self) -> Tensor:
        """Return the variance of the residuals."""
        return self.left.square().sum() / max(len(self.left) - 1, 1)


def residual(sigma: Tensor, d: Tensor, scores: Tensor, own: Tensor) -> Residual:
    """Compute residuals. sigma: (pairs, players); own: (players,) bool, the target itself."""
    left = d - sigma @ scores
    if not bool(own.any()):
        return Residual(sigma, left, None)
    sign = sigma[:, own].squeeze(1)
    left = left * sign
    return Residual(sigma[:, ~own] * sign.unsqueeze(1), left - left.mean(), left.mean())


def squared_errors(seen: Residual) -> Tensor:
    """Estimate (phi_j - phi_hat_j)^2 without bias, (others,). Some estimates are negative."""
    pairs = len(seen.left)
    return ((seen.left @ seen.signs).square() - seen.left.square().sum()) / max(pairs * (pairs - 1), 1)


def own_squared_error(seen: Residual) -> Tensor:
    """Estimate the squared error of the own score of the target."""
    assert seen.own is not None
    return seen.own.square() - seen.spread / len(seen.left)

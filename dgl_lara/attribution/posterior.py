"""Better scores from samples: they are the mean of a Gaussian prior, and the residual of the responses moves them.

    y(S) = sum_j z_j phi_j + noise,    phi_j - phi_hat_j ~ N(0, prior_j)

The noise is what no sum of scores explains, the interactions of players.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara.attribution.squared_error import Residual, residual, squared_errors

MIN_SCALE, MIN_NOISE = 0.05, 0.05  # of the prior, of the variance of the residual
MIN_SOLVABLE_NOISE = 1e-9  # of the prior; with less the equations have no single solution
NUM_ITERATIONS = 60  # of the fixed point in `posterior_variance`


@dataclass(frozen=True, eq=False)
class _Posterior:
    """(players,) scores of one target and their expected squared errors."""

    scores: Tensor
    variance: Tensor


def posterior_update(
    z: Tensor, y: Tensor, scores: Tensor, prior: Tensor, own: Tensor, stretch: float = 1.0
) -> _Posterior:
    """Compute the posterior of one target's scores.

    The target's own score is not shrunk towards the prior, because every sample is informative about it.

    Args:
        z: (samples, players) the design.
        y: (samples,) the responses.
        scores: (players,) the mean of the prior.
        prior: (players,) its variance, the expected squared errors.
        own: (players,) bool, the target itself.
        stretch: Factor of the posterior variances. They never exceed the prior ones.
    """
    observed = residual(z, y, scores, own)
    others = ~own
    scaled, noise = prior_and_noise(observed, prior[others])
    step = _step(observed, scaled, noise)
    better, variance = scores.clone(), prior.clone()
    better[others] += step
    variance[others] = torch.minimum(stretch * posterior_variance(scaled, noise, len(y)), scaled)
    if observed.own is not None and observed.own_column is not None:
        better[own] += observed.own - observed.along(observed.z) @ step
        variance[own] = stretch * noise / observed.own_column.square().sum()
    return _Posterior(better, variance)


def prior_and_noise(observed: Residual, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Scale the prior to the errors of this target, and estimate the variance of the noise.

    Two estimates of the total squared error are weighted by precision: the prior, with relative error 1, and that of
    the samples, with the variance of a U-statistic.
    """
    pairs, spread, expected = len(observed.left), observed.spread, prior.sum().clamp(min=1e-30)
    found = squared_errors(observed).sum()
    uncertain = 2 * len(prior) * (spread / pairs).square() + 4 * spread * expected / pairs
    weight = expected.square() / (expected.square() + uncertain)
    scale = ((weight * found + (1 - weight) * expected) / expected).clamp(min=MIN_SCALE)
    scaled = prior * scale
    return scaled, (spread - scaled.sum()).clamp(min=MIN_NOISE * spread.item()).clamp(min=1e-30)


def _step(observed: Residual, prior: Tensor, noise: Tensor) -> Tensor:
    """Compute the posterior mean of phi - phi_hat, in the smaller of samples and players."""
    z, left = observed.project(observed.z).double(), observed.left.double()
    prior = prior.double().clamp(min=1e-30)
    noise = noise.double().clamp(min=MIN_SOLVABLE_NOISE * prior.sum().item())
    if z.shape[1] <= len(left):
        root = prior.sqrt()
        precision = (z * root).T @ (z * root) / noise
        precision.diagonal().add_(1)
        return (root * torch.linalg.solve(precision, root * (left @ z) / noise)).to(observed.left)
    covariance = (z * prior) @ z.T
    covariance.diagonal().add_(noise)
    return (prior * (torch.linalg.solve(covariance, left) @ z)).to(observed.left)


def posterior_variance(prior: Tensor, noise: Tensor, pairs: int) -> Tensor:
    """(players,) Compute prior_j k / (k + pairs prior_j), k being the noise plus all other variances, a fixed point.

    It is exact on average over random designs. The exact variances would need an inverse per target.
    """
    k = noise
    for _ in range(NUM_ITERATIONS):
        k = noise + (prior * k / (k + pairs * prior)).sum()
    return prior * k / (k + pairs * prior)

"""Scores improved with samples: scores are the mean of a Gaussian prior, and their residuals of d(S) move them.

    d(S) = sum_j sigma_j phi_j + noise,    phi_j - phi_hat_j ~ N(0, prior_j)

The noise is what no sum of scores explains (interactions of players). The size of the errors of a target is estimated
from the same samples (`squared_error.py`), and combined with that of similar explanations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara.attribution.squared_error import Residual, residual, squared_errors

LEAST_SCALE, LEAST_NOISE = 0.05, 0.05  # of the prior; of the variance that is left
SOLVABLE = 1e-9  # of the prior: less noise than that makes equations that have no one solution
ROUNDS = 60  # of the fixed point in `remaining`


@dataclass(frozen=True, eq=False)
class Posterior:
    """Scores of the players of one target, and their expected squared errors."""

    scores: Tensor
    variance: Tensor  # their expected squared errors


def posterior_update(
    sigma: Tensor, d: Tensor, scores: Tensor, prior: Tensor, own: Tensor, stretch: float = 1.0
) -> Posterior:
    """Compute the posterior of the scores of one target.

    The score of the target itself is not shrunk towards the prior, because every pair of coalitions is informative
    about it.

    Args:
        sigma: (pairs, players).
        d: (pairs,).
        scores: (players,).
        prior: (players,) expected squared errors.
        own: (players,) bool, the target itself.
        stretch: Factor of the posterior variance, which never exceeds the prior.
    """
    seen = residual(sigma, d, scores, own)
    others = ~own
    scaled, noise = prior_and_noise(seen, prior[others])
    step = _step(seen, scaled, noise)
    better, variance = scores.clone(), prior.clone()
    better[others] += step
    variance[others] = torch.minimum(stretch * remaining(scaled, noise, len(d)), scaled)
    if seen.own is not None:
        better[own] += seen.own - seen.signs.mean(0) @ step
        variance[own] = stretch * noise / len(d)
    return Posterior(better, variance)


def prior_and_noise(seen: Residual, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Return the prior scaled to the errors that these scores seem to have, and the variance of the noise.

    Two estimates of the total squared error are combined, weighted by precision: the prior, with relative error 1,
    and the
    samples, with the variance of a U-statistic.
    """
    pairs, spread, said = len(seen.left), seen.spread, prior.sum().clamp(min=1e-30)
    found = squared_errors(seen).sum()
    uncertain = 2 * len(prior) * (spread / pairs).square() + 4 * spread * said / pairs
    weight = said.square() / (said.square() + uncertain)
    scale = ((weight * found + (1 - weight) * said) / said).clamp(min=LEAST_SCALE)
    scaled = prior * scale
    return scaled, (spread - scaled.sum()).clamp(min=LEAST_NOISE * spread.item()).clamp(min=1e-30)


def _step(seen: Residual, prior: Tensor, noise: Tensor) -> Tensor:
    """Compute the posterior mean of phi - phi_hat, in the smaller of pairs and players."""
    signs = seen.signs if seen.own is None else seen.signs - seen.signs.mean(0)
    signs, left, prior = signs.double(), seen.left.double(), prior.double().clamp(min=1e-30)
    noise = noise.double().clamp(min=SOLVABLE * prior.sum().item())
    if signs.shape[1] <= len(left):
        root = prior.sqrt()
        precision = (signs * root).T @ (signs * root) / noise
        precision.diagonal().add_(1)
        return (root * torch.linalg.solve(precision, root * (left @ signs) / noise)).to(seen.left)
    covariance = (signs * prior) @ signs.T
    covariance.diagonal().add_(noise)
    return (prior * (torch.linalg.solve(covariance, left) @ signs)).to(seen.left)


def remaining(prior: Tensor, noise: Tensor, pairs: int) -> Tensor:
    """Compute the posterior variances, (players,), for random signs.

    They are prior_j k / (k + pairs prior_j), where k is the noise plus all other unknown variance, a fixed point.
    The exact
    ones need an inverse for each target, and a test compares the two.
    """
    k = noise
    for _ in range(ROUNDS):
        k = noise + (prior * k / (k + pairs * prior)).sum()
    return prior * k / (k + pairs * prior)

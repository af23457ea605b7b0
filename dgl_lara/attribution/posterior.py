"""Better scores from samples: the scores are the mean of a Gaussian prior, and what they leave of d(S) moves them.

    d(S) = sum_j sigma_j phi_j + noise,    phi_j - phi_hat_j ~ N(0, prior_j)

The noise is what no sum of scores explains (interactions of players). How wrong the scores of this very target are is
read off the same samples (`squared_error.py`), and weighed against what is known of explanations like it.
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
    """Of the players of one target."""

    scores: Tensor
    variance: Tensor  # their expected squared errors


def posterior_update(
    sigma: Tensor, d: Tensor, scores: Tensor, prior: Tensor, own: Tensor, stretch: float = 1.0
) -> Posterior:
    """The posterior of one target's scores. sigma: (pairs, players); prior: (players,) expected squared errors.

    The target's own score is not drawn to where it was: every pair of coalitions speaks of it. `stretch`: how much
    larger errors are than the posterior says; never larger than they seemed before it.
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
    """The prior, scaled to how wrong these scores seem to be, and the variance of the noise.

    Both the prior and the samples speak of the sum of squared errors; each counts by how well it knows it: the prior's
    word is taken to be off by as much as it says, the samples' word has the variance of a U-statistic.
    """
    pairs, spread, said = len(seen.left), seen.spread, prior.sum().clamp(min=1e-30)
    found = squared_errors(seen).sum()
    uncertain = 2 * len(prior) * (spread / pairs).square() + 4 * spread * said / pairs
    weight = said.square() / (said.square() + uncertain)
    scale = ((weight * found + (1 - weight) * said) / said).clamp(min=LEAST_SCALE)
    scaled = prior * scale
    return scaled, (spread - scaled.sum()).clamp(min=LEAST_NOISE * spread.item()).clamp(min=1e-30)


def _step(seen: Residual, prior: Tensor, noise: Tensor) -> Tensor:
    """The posterior mean of phi - phi_hat, in the smaller of pairs and players."""
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
    """(players,) the posterior variances, for random signs: prior_j k / (k + pairs prior_j), where k is the noise plus
    what is unknown of all others, a fixed point. The exact ones need an inverse a target; a test compares the two.
    """
    k = noise
    for _ in range(ROUNDS):
        k = noise + (prior * k / (k + pairs * prior)).sum()
    return prior * k / (k + pairs * prior)

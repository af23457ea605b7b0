"""Correction of scores by further model calls, with pairs of a coalition S and its complement for each target.

The scores are the mean of a Gaussian prior. Their residual d(S) - sum_j sigma_j phi_hat_j is regressed on sigma. For
nodes and links the prior variance is the expected error (`attribution/posterior.py`). If errors are unknown, and for
graphs, whose players have correlated errors, the marginal likelihood of the data scales the prior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dgl_lara._util.validation import whole_number
from dgl_lara.attribution.efficiency import complete
from dgl_lara.attribution.monte_carlo import BYTES_A_DRAW, responses
from dgl_lara.explainer.inputs import CLIP, explainer_inputs
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.inference.adaptive import with_own_samples
from dgl_lara.inference.draws import per_target_masks

RATIOS = torch.logspace(-8, 4, 73)
KERNEL_WIDTH = 0.5  # distance of inputs at which errors of players are hardly correlated
SHARED_ERROR = 0.8  # share of an error that players with equal inputs have in common


@dataclass(frozen=True, eq=False)
class RefineResult:
    """Corrected explanations.

    Attributes:
        explanations: The explanations.
        moved: (num_targets,) |new - old| / |old| over the neighbours.
    """

    explanations: Explanations
    moved: Tensor


def refine(game: Game, explanations: Explanations, pairs: int, stretch: float = 1.0, seed: int = 0) -> RefineResult:
    """Correct scores with 2 * pairs evaluations of f for each target.

    Args:
        game: The game that is explained.
        explanations: The explanations.
        pairs: Pairs of coalitions for each target.
        stretch: Factor of the posterior variance, see `ErrorModel`.
        seed: Seed of the coalitions.
    """
    pairs = whole_number("pairs, of coalitions for each target,", pairs)
    players, old = explanations.players, explanations.scores
    needed = BYTES_A_DRAW * pairs * len(old) + 32 * pairs * (pairs + int(players.counts.max()))
    game.budget.check(needed, f"refining {len(explanations)} {game.task}s with {pairs:,} pairs")
    all_targets = torch.ones(len(explanations), dtype=torch.bool, device=old.device)
    if game.task.prior_variance(explanations.variance) is not None:
        corrected = with_own_samples(game, explanations, all_targets, pairs, stretch, seed)
    else:
        corrected = _by_likelihood(game, explanations, pairs, seed)
    is_corrected = None if explanations.corrected is None else all_targets.cpu()
    corrected = replace(corrected, method=f"{explanations.method} + {pairs}", corrected=is_corrected)
    moved, size = (_norms(one, explanations) for one in (corrected.scores - old, old))
    return RefineResult(corrected, moved / size.clamp(min=1e-12))


def _norms(values: Tensor, explanations: Explanations) -> Tensor:
    """Return norms over the neighbours, (num_targets,). The own score of a target would dominate."""
    others, zeros = ~explanations.is_target, torch.zeros(len(explanations), device=values.device)
    return zeros.index_add(0, explanations.players.row[others], values[others].square()).sqrt()


def _by_likelihood(game: Game, explanations: Explanations, pairs: int, seed: int) -> Explanations:
    """Correct scores if the prior variance is unknown.

    Nodes and links have no expected errors afterwards. On BA-Shapes the confidence of this posterior was up to .10 too
    high.
    """
    players, old = explanations.players, explanations.scores
    masks = per_target_masks(game, players, pairs, seed)
    y, z = responses(game, players, masks, explanations.query), game.index.design(masks)
    inputs = _player_inputs(game)
    scores, variance = old.clone(), torch.zeros_like(old)
    for row, pairs_of_row in enumerate(players.slices):
        prior = covariance(old[pairs_of_row], players.hop[pairs_of_row], inputs[players.player[pairs_of_row]])
        step, variance[pairs_of_row] = correction(z[:, pairs_of_row], y[:, row], old[pairs_of_row], prior)
        scores[pairs_of_row] += step
    scores = complete(game, players, explanations.query, scores)
    return replace(explanations, scores=scores, variance=game.task.likelihood_variance(variance))


def _player_inputs(game: Game) -> Tensor:
    """Return normalised inputs of g for each player, (num_players, dim)."""
    inputs = explainer_inputs(game, "rich", game.valid_targets)
    normalised = ((inputs - inputs.mean(0)) / inputs.std(0, unbiased=False).clamp(min=1e-3)).clamp(-CLIP, CLIP)
    if game.valid_targets is None:
        return game.player_set.player_inputs(normalised)
    rows = normalised.new_full((game.graph.num_nodes(), normalised.shape[1]), torch.nan)
    rows[game.valid_targets] = normalised  # rows of other nodes are not used
    return game.player_set.player_inputs(rows)


def covariance(scores: Tensor, hop: Tensor, inputs: Tensor) -> Tensor:
    """Return the prior covariance of the errors of scores, up to a factor.

    Large scores have larger errors, and similar players of one distance have correlated errors.
    """
    unit = scores.square().mean().sqrt().clamp(min=1e-12)
    size = scores.abs() / unit + 1
    distance = torch.cdist(inputs, inputs).square() / (KERNEL_WIDTH**2 * inputs.shape[1])
    distance = distance + ((scores.unsqueeze(1) - scores) / unit).square()
    similarity = torch.exp(-distance / 2) * (hop.unsqueeze(1) == hop)
    own = torch.eye(len(scores), device=scores.device)
    return torch.outer(size, size) * (SHARED_ERROR * similarity + (1 - SHARED_ERROR) * own)


def correction(sigma: Tensor, d: Tensor, scores: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """Return the posterior mean of phi - scores, and its variance.

    d = sigma phi + noise, phi - scores ~ N(0, ratio * noise * prior). The ratio is unknown, so each one is weighted by
    the marginal likelihood of d, with the noise maximised in closed form. The most likely ratio alone made correct
    explanations worse.
    """
    residual = (d - sigma @ scores).double()
    shared = prior.double() @ sigma.T.double()  # (players, pairs): covariance of the errors with d
    strength, basis = torch.linalg.eigh(sigma.double() @ shared)
    strength, along_basis = strength.clamp(min=0), basis.T @ residual
    ratios = RATIOS.to(residual).unsqueeze(1)
    spread = 1 + ratios * strength  # (ratios, pairs)
    noise = (along_basis.square() / spread).mean(1, keepdim=True).clamp(min=1e-30)
    weight = torch.softmax(-(len(d) * noise.log() + spread.log().sum(1, keepdim=True)) / 2, dim=0)
    shared_basis = shared @ basis
    steps = (along_basis * ratios / spread) @ shared_basis.T  # (ratios, players)
    step = (weight * steps).sum(0)
    remaining = ratios * noise * (prior.double().diagonal() - (ratios / spread) @ shared_basis.square().T)
    variance = (weight * (remaining + (steps - step).square())).sum(0)
    return step.to(scores), variance.to(scores)

"""Make explanations better: `pairs` coalitions S and their complements correct the scores of every one of them.

It is Bayesian: the scores are the mean of a Gaussian prior, and what they leave unexplained,
d(S) - sum_j sigma_j phi_hat_j, is regressed on sigma. Of nodes and links the prior is what is known of their errors
(`attribution/posterior.py`). Where nothing is, and of graphs, whose players err alike more than that says, the data
themselves say, by their marginal likelihood, how far the prior is to be left; an explanation that was right hardly
moves.
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
WIDTH, ALIKE = 0.5, 0.8  # how near players must look to err alike, and how much of an error they share then


@dataclass(frozen=True, eq=False)
class RefineResult:
    """Better explanations, and how far each moved: |new - old| / |old| over the neighbours."""

    explanations: Explanations
    moved: Tensor


def refine(game: Game, explanations: Explanations, pairs: int, stretch: float = 1.0, seed: int = 0) -> RefineResult:
    """Correct scores with 2 * pairs evaluations of f for each target. stretch: see `ErrorModel`."""
    pairs = whole_number("pairs, of coalitions for each target,", pairs)
    players, old = explanations.players, explanations.scores
    needed = BYTES_A_DRAW * pairs * len(old) + 32 * pairs * (pairs + int(players.counts.max()))
    game.budget.check(needed, f"refining {len(explanations)} {game.task}s with {pairs:,} pairs")
    everyone = torch.ones(len(explanations), dtype=torch.bool, device=old.device)
    if game.task.prior_variance(explanations.variance) is not None:
        better = with_own_samples(game, explanations, everyone, pairs, stretch, seed)
    else:
        better = _by_likelihood(game, explanations, pairs, seed)
    known = None if explanations.corrected is None else everyone.cpu()
    named = replace(better, method=f"{explanations.method} + {pairs}", corrected=known)
    moved, size = (_norms(one, explanations) for one in (better.scores - old, old))
    return RefineResult(named, moved / size.clamp(min=1e-12))


def _norms(values: Tensor, explanations: Explanations) -> Tensor:
    """Return norms over the neighbours, (num_targets,). The own score of a target would dominate."""
    others, nothing = ~explanations.is_target, torch.zeros(len(explanations), device=values.device)
    return nothing.index_add(0, explanations.players.row[others], values[others].square()).sqrt()


def _by_likelihood(game: Game, explanations: Explanations, pairs: int, seed: int) -> Explanations:
    """Nodes and links have no expected errors then: on BA-Shapes this posterior promised up to .10 too much."""
    players, old = explanations.players, explanations.scores
    masks = per_target_masks(game, players, pairs, seed)
    y, z = responses(game, players, masks, explanations.query), game.index.design(masks)
    looks = _looks(game)
    scores, variance = old.clone(), torch.zeros_like(old)
    for row, mine in enumerate(players.slices):
        prior = covariance(old[mine], players.hop[mine], looks[players.player[mine]])
        step, variance[mine] = correction(z[:, mine], y[:, row], old[mine], prior)
        scores[mine] += step
    scores = complete(game, players, explanations.query, scores)
    return replace(explanations, scores=scores, variance=game.task.likelihood_variance(variance))


def _looks(game: Game) -> Tensor:
    """(num_players, dim): what is known of each player, on one scale."""
    inputs = explainer_inputs(game, "rich", game.valid_targets)
    looks = ((inputs - inputs.mean(0)) / inputs.std(0, unbiased=False).clamp(min=1e-3)).clamp(-CLIP, CLIP)
    if game.valid_targets is None:
        return game.player_set.player_inputs(looks)
    everyone = looks.new_full((game.graph.num_nodes(), looks.shape[1]), torch.nan)  # nobody asks about the others
    everyone[game.valid_targets] = looks
    return game.player_set.player_inputs(everyone)


def covariance(scores: Tensor, hop: Tensor, looks: Tensor) -> Tensor:
    """Return the prior covariance of the errors of scores, up to a factor.

    Large scores have larger errors, and similar players of one distance have correlated errors.
    """
    unit = scores.square().mean().sqrt().clamp(min=1e-12)
    size = scores.abs() / unit + 1
    away = torch.cdist(looks, looks).square() / (WIDTH**2 * looks.shape[1])
    away = away + ((scores.unsqueeze(1) - scores) / unit).square()
    like = torch.exp(-away / 2) * (hop.unsqueeze(1) == hop)
    return torch.outer(size, size) * (ALIKE * like + (1 - ALIKE) * torch.eye(len(scores), device=scores.device))


def correction(sigma: Tensor, d: Tensor, scores: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """The posterior mean of phi - scores, and its variance. d = sigma phi + noise, phi - scores ~ N(0, ratio * noise *
    prior). The ratio is unknown: every one counts as much as it makes these d likely (marginal likelihood, the noise
    maximised in closed form). To take the likeliest alone made explanations that were right already worse."""
    residual = (d - sigma @ scores).double()
    shared = prior.double() @ sigma.T.double()  # (players, pairs): covariance of the errors with d
    strength, basis = torch.linalg.eigh(sigma.double() @ shared)
    strength, seen = strength.clamp(min=0), basis.T @ residual
    ratios = RATIOS.to(residual).unsqueeze(1)
    spread = 1 + ratios * strength  # (ratios, pairs)
    noise = (seen.square() / spread).mean(1, keepdim=True).clamp(min=1e-30)
    belief = torch.softmax(-(len(d) * noise.log() + spread.log().sum(1, keepdim=True)) / 2, dim=0)
    along = shared @ basis
    steps = (seen * ratios / spread) @ along.T  # (ratios, players)
    step = (belief * steps).sum(0)
    left = ratios * noise * (prior.double().diagonal() - (ratios / spread) @ along.square().T)
    variance = (belief * (left + (steps - step).square())).sum(0)
    return step.to(scores), variance.to(scores)

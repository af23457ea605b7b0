"""Expected errors of amortised scores, learned from validation targets. Predicting them needs no model call.

The expected squared error of a score depends on the distance of the player and on the size of the score. A factor for
the whole explanation depends on its features, which are the number of players, the spread of scores over distances,
and the confidence of f. Both are fitted to unbiased estimates of the squared errors (`attribution/squared_error.py`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dgl_lara._util.schema import between, tensor, validate
from dgl_lara.attribution.monte_carlo import Samples
from dgl_lara.attribution.posterior import posterior_update
from dgl_lara.attribution.squared_error import own_squared_error, residual, squared_errors
from dgl_lara.explanation import Explanations

MIN_SQUARES = 1e-9  # added to sums of squared scores before their logarithm
REWEIGHTING_ROUNDS = 6
PENALTY = 10.0  # on the weights of the features, in validation targets that count as much
MAX_DEVIATIONS = 3.0  # features are clipped at this many standard deviations
MAX_LOG_FACTOR = 8.0
MAX_STRETCH = 10.0
MIN_STRETCH_SAMPLES = 16
ANY = tensor(torch.float, None)


@dataclass(frozen=True, eq=False)
class ErrorModel:
    """E[(phi - score)^2] = factor(explanation) (constant[hop] + slope[hop] score^2).

    Attributes:
        constant: (hops + 1,).
        slope: (hops + 1,).
        centre: (num_features,) means of the features of explanations.
        spread: (num_features,) their standard deviations.
        weights: (num_features,) of the logarithm of the factor.
        stretch: How much larger errors of corrected scores are than their posterior variance.
    """

    constant: Tensor
    slope: Tensor
    centre: Tensor
    spread: Tensor
    weights: Tensor
    stretch: float = 1.0

    def variance(self, explanations: Explanations) -> Tensor:
        """Return the expected squared error of each amortised score, (num_pairs,)."""
        players = explanations.players
        exponent = (self._deviations(explanations) @ self.weights).clamp(-MAX_LOG_FACTOR, MAX_LOG_FACTOR)
        return self._without_factor(explanations) * exponent.exp()[players.row]

    def _deviations(self, explanations: Explanations) -> Tensor:
        """Return the features of explanations in standard deviations, (num_targets, num_features)."""
        deviations = (_features(explanations) - self.centre) / self.spread
        return deviations.clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS)

    def _without_factor(self, explanations: Explanations) -> Tensor:
        hop = explanations.players.hop.clamp(max=len(self.constant) - 1)
        return self.constant[hop] + self.slope[hop] * explanations.scores.square()

    def to(self, device: torch.device) -> ErrorModel:
        tensors: dict[str, Any] = {name: one.to(device) for name, one in vars(self).items() if name != "stretch"}
        return replace(self, **tensors)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(content: Any, hops: int, where: object) -> ErrorModel:
        """Return the model that `to_dict` stored.

        Args:
            content: Result of `to_dict`.
            hops: Largest distance of a player.
            where: Source of the content, for errors.

        Raises:
            LaraError: If the content is damaged.
        """
        by_hop = tensor(torch.float, len(validate(content, {"constant": ANY}, where)["constant"]))
        by_feature = tensor(torch.float, hops + 3)
        fields = {
            "constant": by_hop, "slope": by_hop, "centre": by_feature, "spread": by_feature, "weights": by_feature,
            "stretch": between(1, MAX_STRETCH),
        }  # fmt: skip
        validate(content, fields, where)
        return ErrorModel(**{name: content[name] for name in fields})


def _features(explanations: Explanations) -> Tensor:
    """Return features of explanations that need no model calls, (num_targets, num_features)."""
    players, game, own = explanations.players, explanations.game, explanations.is_target
    assert game is not None
    count, hops = len(explanations), game.task.max_distance(game.hops) + 1
    squares = torch.zeros(count, hops, device=explanations.scores.device)
    squares.view(-1).index_add_(0, players.row * hops + players.hop, explanations.scores.square())
    logits = game.full_logits[players.targets]
    probability = logits.softmax(1).amax(1) if logits.shape[1] > 1 else torch.ones_like(logits[:, 0])
    others = torch.zeros(count, device=squares.device).index_add(
        0, players.row[~own], torch.ones_like(players.row[~own], dtype=torch.float)
    )
    return torch.cat([(squares + MIN_SQUARES).log(), others.log1p().unsqueeze(1), probability.unsqueeze(1)], dim=1)


def learn_errors(explanations: Explanations, samples: Samples) -> ErrorModel | None:
    """Learn the expected errors from validation targets.

    Args:
        explanations: Their amortised explanations.
        samples: Their samples.

    Returns:
        The model, or None if no target has neighbours.
    """
    scores, own = explanations.scores, explanations.is_target
    errors = torch.zeros_like(scores)  # unbiased estimate of the squared error of each pair
    noise = torch.zeros_like(scores)  # variance of its noise, squared
    for pairs, sigma, d in samples.each():
        residuals = residual(sigma, d, scores[pairs], own[pairs])
        estimates = torch.empty_like(scores[pairs])
        estimates[~own[pairs]] = squared_errors(residuals)
        if residuals.own is not None:
            estimates[own[pairs]] = own_squared_error(residuals)
        errors[pairs], noise[pairs] = estimates, residuals.spread / len(d)
    if bool(own.all()):
        return None
    hop = explanations.players.hop
    constant, slope = _by_hop(errors, noise, scores, hop, int(hop.max()) + 1)
    features = _features(explanations)
    spread = features.std(0, unbiased=False)
    initial = ErrorModel(constant, slope, features.mean(0), spread.clamp(min=1e-3), torch.zeros_like(spread))
    learned = replace(initial, weights=_factor_weights(initial, explanations, errors))
    return replace(learned, stretch=_stretch(learned, explanations, samples))


def _by_hop(errors: Tensor, noise: Tensor, scores: Tensor, hop: Tensor, hops: int) -> tuple[Tensor, Tensor]:
    """Fit constant and slope by non-negative least squares, weighted by precision."""
    from scipy.optimize import nnls  # not at the top, since the import takes half a second

    columns = torch.zeros(len(errors), 2 * hops, dtype=torch.float64)
    pairs = torch.arange(len(errors))
    columns[pairs, hop.cpu()] = 1
    columns[pairs, hops + hop.cpu()] = scores.square().double().cpu()
    observed, uncertainty = errors.double().cpu(), noise.double().cpu()
    scale = observed.abs().mean().clamp(min=1e-30)
    expected = torch.full_like(observed, observed.mean().clamp(min=1e-3 * scale).item())
    result = torch.zeros(2 * hops, dtype=torch.float64)
    for _ in range(REWEIGHTING_ROUNDS):
        weight = 1 / (expected + uncertainty)
        weight = weight / weight.mean()  # squares of small errors would underflow
        result = torch.from_numpy(nnls((columns * weight.unsqueeze(1)).numpy(), (observed * weight).numpy())[0])
        expected = (columns @ result).clamp(min=1e-6 * scale)
    return result[:hops].to(scores), result[hops:].to(scores)


def _factor_weights(initial: ErrorModel, explanations: Explanations, errors: Tensor) -> Tensor:
    """Fit the weights of the features by a Poisson regression of squared errors on expected ones.

    Its equations are unbiased even if single estimates are negative.
    """
    others, row = ~explanations.is_target, explanations.players.row
    count = len(explanations)
    total = torch.zeros(count, device=errors.device)
    observed = total.index_add(0, row[others], errors[others]).double()
    expected = total.index_add(0, row[others], initial._without_factor(explanations)[others]).double()
    is_counted = expected > 0
    scale = expected[is_counted].mean().clamp(min=1e-30)
    observed, expected = observed[is_counted] / scale, expected[is_counted] / scale
    deviations = initial._deviations(explanations).double()[is_counted]
    weights = torch.zeros(deviations.shape[1], dtype=torch.float64, device=errors.device, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        exponent = (deviations @ weights).clamp(-MAX_LOG_FACTOR, MAX_LOG_FACTOR)
        penalty = PENALTY * weights.square().sum() / len(deviations)
        value = (expected * exponent.exp() - observed * exponent).mean() + penalty
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(loss)
    return weights.detach().to(errors)


def _stretch(model: ErrorModel, explanations: Explanations, samples: Samples) -> float:
    """Estimate how much larger errors of corrected scores are than their posterior variance.

    Scores are corrected with half of the samples, and the other half measures their errors.
    """
    own, prior = explanations.is_target, model.variance(explanations)
    if len(samples.responses) < MIN_STRETCH_SAMPLES:
        return 1.0
    expected, observed = 0.0, 0.0
    for pairs, sigma, d in samples.each():
        is_own, half = own[pairs], len(d) // 2
        corrected = posterior_update(sigma[:half], d[:half], explanations.scores[pairs], prior[pairs], is_own)
        expected += float(corrected.variance[~is_own].sum())
        observed += float(squared_errors(residual(sigma[half:], d[half:], corrected.scores, is_own)).sum())
    return min(max(observed / max(expected, 1e-30), 1.0), MAX_STRETCH)

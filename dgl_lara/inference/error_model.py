"""How far an explanation can be trusted, without any model call: what g's errors are like, learned from targets that
it was not taught with.

A score's expected squared error depends on how far the player is and on how large the score is, and the errors of a
whole explanation on how it looks: how many players it has, how its scores are spread over the distances, how sure f is.
Both are fitted to estimates of the squared errors that are right on average (`attribution/squared_error.py`).
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

TINY = 1e-9  # a sum of squared scores that counts as none
ROUNDS = 6  # of reweighting
PENALTY = 10.0  # on the weights of `looks`, as many validation targets as that count as much
FURTHEST = 3.0  # standard deviations of `looks` that are believed
WIDEST = 8.0  # logarithm of the factor: nobody is so many times more or less sure
MOST_STRETCH = 10.0
ANY = tensor(torch.float, None)


@dataclass(frozen=True, eq=False)
class ErrorModel:
    """E[(phi - score)^2] = factor(explanation) (constant[hop] + slope[hop] score^2), and the stretch."""

    constant: Tensor  # (hops + 1,)
    slope: Tensor  # (hops + 1,)
    centre: Tensor  # (looks,)
    spread: Tensor  # (looks,)
    weights: Tensor  # (looks,) of the logarithm of the factor
    stretch: float = 1.0

    def variance(self, explanations: Explanations) -> Tensor:
        """Return the expected squared error of each amortised score, (num_pairs,)."""
        players = explanations.players
        off = ((looks(explanations) - self.centre) / self.spread).clamp(-FURTHEST, FURTHEST)
        return self._plain(explanations) * (off @ self.weights).clamp(-WIDEST, WIDEST).exp()[players.row]

    def _plain(self, explanations: Explanations) -> Tensor:
        hop = explanations.players.hop.clamp(max=len(self.constant) - 1)
        return self.constant[hop] + self.slope[hop] * explanations.scores.square()

    def to(self, device: torch.device) -> ErrorModel:
        parts: dict[str, Any] = {name: part.to(device) for name, part in vars(self).items() if name != "stretch"}
        return replace(self, **parts)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(content: Any, hops: int, where: object) -> ErrorModel:
        """Return what `to_dict` returned. Raise LaraError if it is damaged. hops: largest distance of a player."""
        distances = tensor(torch.float, len(validate(content, {"constant": ANY}, where)["constant"]))
        sights = tensor(torch.float, hops + 3)
        fields = {
            "constant": distances, "slope": distances, "centre": sights, "spread": sights, "weights": sights,
            "stretch": between(1, MOST_STRETCH),
        }  # fmt: skip
        validate(content, fields, where)
        return ErrorModel(**{name: content[name] for name in fields})


def looks(explanations: Explanations) -> Tensor:
    """Return features of explanations that cost nothing, (num_targets, features)."""
    players, game, own = explanations.players, explanations.game, explanations.is_target
    assert game is not None
    count, hops = len(explanations), game.task.max_distance(game.hops) + 1
    squares = torch.zeros(count, hops, device=explanations.scores.device)
    squares.view(-1).index_add_(0, players.row * hops + players.hop, explanations.scores.square())
    logits = game.full_logits[players.targets]
    sure = logits.softmax(1).amax(1) if logits.shape[1] > 1 else torch.ones_like(logits[:, 0])
    others = torch.zeros(count, device=squares.device).index_add(
        0, players.row[~own], torch.ones_like(players.row[~own], dtype=torch.float)
    )
    return torch.cat([(squares + TINY).log(), others.log1p().unsqueeze(1), sure.unsqueeze(1)], dim=1)


def learn_errors(explanations: Explanations, samples: Samples) -> ErrorModel | None:
    """Learn the errors from amortised explanations of validation targets and their samples, None without neighbours."""
    scores, own = explanations.scores, explanations.is_target
    found = torch.zeros_like(scores)  # of each pair: its squared error, right on average
    noise = torch.zeros_like(scores)  # and the variance of the estimate's own noise, squared
    for pairs, sigma, d in samples.each():
        seen = residual(sigma, d, scores[pairs], own[pairs])
        mine = torch.empty_like(scores[pairs])
        mine[~own[pairs]] = squared_errors(seen)
        if seen.own is not None:
            mine[own[pairs]] = own_squared_error(seen)
        found[pairs], noise[pairs] = mine, seen.spread / len(d)
    if bool(own.all()):
        return None
    hop = explanations.players.hop
    constant, slope = _by_hop(found, noise, scores, hop, int(hop.max()) + 1)
    look = looks(explanations)
    spread = look.std(0, unbiased=False)
    plain = ErrorModel(constant, slope, look.mean(0), spread.clamp(min=1e-3), torch.zeros_like(spread))
    learned = replace(plain, weights=_factor(plain, explanations, found))
    return replace(learned, stretch=_stretch(learned, explanations, samples))


def _by_hop(found: Tensor, noise: Tensor, scores: Tensor, hop: Tensor, hops: int) -> tuple[Tensor, Tensor]:
    """Fit constant and slope by non-negative least squares, weighted by precision."""
    from scipy.optimize import nnls  # half a second, which only learning needs

    columns = torch.zeros(len(found), 2 * hops, dtype=torch.float64)
    everyone = torch.arange(len(found))
    columns[everyone, hop.cpu()] = 1
    columns[everyone, hops + hop.cpu()] = scores.square().double().cpu()
    wanted, unsure = found.double().cpu(), noise.double().cpu()
    scale = wanted.abs().mean().clamp(min=1e-30)
    expected = torch.full_like(wanted, wanted.mean().clamp(min=1e-3 * scale).item())
    result = torch.zeros(2 * hops, dtype=torch.float64)
    for _ in range(ROUNDS):
        weight = 1 / (expected + unsure)
        weight = weight / weight.mean()  # or squares of small errors leave what numbers can hold
        result = torch.from_numpy(nnls((columns * weight.unsqueeze(1)).numpy(), (wanted * weight).numpy())[0])
        expected = (columns @ result).clamp(min=1e-6 * scale)
    return result[:hops].to(scores), result[hops:].to(scores)


def _factor(plain: ErrorModel, explanations: Explanations, found: Tensor) -> Tensor:
    """Weights of `looks`: a Poisson regression of the squared errors on what is expected of them. Its equations are
    right on average even where single estimates are negative."""
    others, row = ~explanations.is_target, explanations.players.row
    count = len(explanations)
    total = torch.zeros(count, device=found.device)
    wanted = total.index_add(0, row[others], found[others]).double()
    expected = total.index_add(0, row[others], plain._plain(explanations)[others]).double()
    counted = expected > 0
    scale = expected[counted].mean().clamp(min=1e-30)
    wanted, expected = wanted[counted] / scale, expected[counted] / scale
    off = ((looks(explanations) - plain.centre) / plain.spread).clamp(-FURTHEST, FURTHEST).double()[counted]
    weights = torch.zeros(off.shape[1], dtype=torch.float64, device=found.device, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        exponent = (off @ weights).clamp(-WIDEST, WIDEST)
        value = (expected * exponent.exp() - wanted * exponent).mean() + PENALTY * weights.square().sum() / len(off)
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(loss)
    return weights.detach().to(found)


def _stretch(model: ErrorModel, explanations: Explanations, samples: Samples) -> float:
    """Estimate how much larger errors of corrected scores are than their posterior variance.

    Scores are corrected with half of the samples, and the other half measures their errors.
    """
    own, prior = explanations.is_target, model.variance(explanations)
    if len(samples.responses) < 16:
        return 1.0
    said, found = 0.0, 0.0
    for pairs, sigma, d in samples.each():
        mine, half = own[pairs], len(d) // 2
        better = posterior_update(sigma[:half], d[:half], explanations.scores[pairs], prior[pairs], mine)
        said += float(better.variance[~mine].sum())
        found += float(squared_errors(residual(sigma[half:], d[half:], better.scores, mine)).sum())
    return min(max(found / max(said, 1e-30), 1.0), MOST_STRETCH)

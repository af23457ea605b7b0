"""How well scores agree with phi, when phi itself is only known up to sampling noise."""

from __future__ import annotations

from torch import Tensor

from dgl_lara.attribution.monte_carlo import Estimate

CLEAR = 4.0  # standard errors of the noise: a spread that is not so much above it may be all noise


def r_squared(scores: Tensor, phi: Tensor) -> float:
    """1 - squared error / variance of phi, over all pairs."""
    return 1 - ((scores - phi).square().mean() / (phi - phi.mean()).square().mean()).item()


def corrected_r_squared(scores: Tensor, reference: Estimate) -> float:
    """The same against the true phi: the reference's own noise is taken out of both error and variance."""
    noise = reference.error.square().mean()
    error = (scores - reference.phi).square().mean() - noise
    spread = _spread(reference.phi)
    variance = (spread - noise).clamp(min=0.01 * spread.item() + 1e-12)  # all noise: keep the order of errors
    return 1 - (error / variance).item()


def is_clear(reference: Estimate, least: float) -> bool:
    """Whether an R squared against it means anything: phi is more than noise, and more than rounding, `least`. Over
    many pairs little is told apart from much noise, as on dense graphs."""
    spread, noise = _spread(reference.phi).item(), reference.error.square().mean().item()
    return spread > least**2 and spread - noise > CLEAR * noise / len(reference.phi) ** 0.5


def _spread(phi: Tensor) -> Tensor:
    return (phi - phi.mean()).square().mean()

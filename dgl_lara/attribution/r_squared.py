"""Agreement of scores with phi, when phi itself is known up to sampling noise."""

from __future__ import annotations

from torch import Tensor

from dgl_lara.attribution.monte_carlo import Estimate

CLEAR = 4.0  # standard errors of the noise: a spread that is not so much above it may be all noise


def r_squared(scores: Tensor, phi: Tensor) -> float:
    """Compute 1 - squared error / variance of phi, over all pairs."""
    return 1 - ((scores - phi).square().mean() / (phi - phi.mean()).square().mean()).item()


def corrected_r_squared(scores: Tensor, reference: Estimate) -> float:
    """Compute R squared against the true phi, without the noise of the reference in error and variance."""
    noise = reference.error.square().mean()
    error = (scores - reference.phi).square().mean() - noise
    spread = _spread(reference.phi)
    variance = (spread - noise).clamp(min=0.01 * spread.item() + 1e-12)  # all noise: keep the order of errors
    return 1 - (error / variance).item()


def is_clear(reference: Estimate, least: float) -> bool:
    """Return whether an R squared against a reference is meaningful: phi exceeds noise and rounding (`least`)."""
    spread, noise = _spread(reference.phi).item(), reference.error.square().mean().item()
    return spread > least**2 and spread - noise > CLEAR * noise / len(reference.phi) ** 0.5


def _spread(phi: Tensor) -> Tensor:
    return (phi - phi.mean()).square().mean()

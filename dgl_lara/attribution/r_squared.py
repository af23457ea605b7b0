"""How well scores agree with phi, when phi itself is only known up to sampling noise."""

from __future__ import annotations

from torch import Tensor

from dgl_lara.attribution.monte_carlo import Estimate


def r_squared(scores: Tensor, phi: Tensor) -> float:
    """1 - squared error / variance of phi, over all pairs."""
    return 1 - ((scores - phi).square().mean() / (phi - phi.mean()).square().mean()).item()


def corrected_r_squared(scores: Tensor, reference: Estimate) -> float:
    """The same against the true phi: the reference's own noise is taken out of both error and variance."""
    noise = reference.error.square().mean()
    error = (scores - reference.phi).square().mean() - noise
    spread = (reference.phi - reference.phi.mean()).square().mean()
    variance = (spread - noise).clamp(min=0.01 * spread.item() + 1e-12)  # all noise: keep the order of errors
    return 1 - (error / variance).item()

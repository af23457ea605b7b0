"""Amortised scores, corrected with samples of every target that training has left (`attribution/shared_samples.py`).

The arithmetic of one target is `attribution/posterior.py`; on the CPU compiled code does the same for many targets.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from dgl_lara.attribution.posterior import posterior_update
from dgl_lara.attribution.shared_samples import SharedSamples
from dgl_lara.explanation import Explanations
from dgl_lara.inference.error_model import ErrorModel


def corrected(explanations: Explanations, samples: SharedSamples, errors: ErrorModel) -> Explanations:
    """The same with better scores, for every target and class that the samples speak of."""
    assert explanations.game is not None
    known = samples.know(explanations.game, explanations.players.targets, explanations.explained_class)
    if explanations.rather_than is not None:  # the samples speak of one class alone
        known = torch.zeros_like(known)
    prior = errors.variance(explanations)
    if not bool(known.any()):
        return replace(explanations, variance=prior, corrected=known)
    route = _compiled if explanations.scores.device.type == "cpu" else _one_by_one
    scores, variance = route(explanations, samples, prior, known)
    corrected_pair = known.to(scores.device)[explanations.players.row]
    variance = torch.where(corrected_pair, variance * errors.stretch, prior)
    return replace(explanations, scores=scores, variance=variance, corrected=known)


def _one_by_one(
    explanations: Explanations, samples: SharedSamples, prior: Tensor, known: Tensor
) -> tuple[Tensor, Tensor]:
    """On any device, target after target."""
    scores, variance = explanations.scores.clone(), prior.clone()
    own = explanations.is_target
    each = samples.of(explanations.players, own).each()
    for (pairs, sigma, d), wanted in zip(each, known.tolist(), strict=True):
        if wanted:
            better = posterior_update(sigma, d, scores[pairs], prior[pairs], own[pairs])
            scores[pairs], variance[pairs] = better.scores, better.variance
    return scores, variance


def _compiled(
    explanations: Explanations, samples: SharedSamples, prior: Tensor, known: Tensor
) -> tuple[Tensor, Tensor]:
    from dgl_lara.inference.kernels.posterior import correct_all  # not at the top: it waits for the compiler

    return correct_all(explanations.players, explanations.is_target, explanations.scores, samples, prior, known)

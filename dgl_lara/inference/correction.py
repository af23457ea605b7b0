"""Amortised scores, corrected with the samples that training keeps (`attribution/shared_samples.py`).

`attribution/posterior.py` corrects one target. On the CPU compiled code does so for many targets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara._util.notices import notice
from dgl_lara.attribution.efficiency import complete
from dgl_lara.attribution.posterior import posterior_update

if TYPE_CHECKING:
    from dgl_lara.attribution.shared_samples import SharedSamples
    from dgl_lara.explanation import Explanations
    from dgl_lara.inference.error_model import ErrorModel


def correct_with_samples(
    explanations: Explanations, samples: SharedSamples | None, errors: ErrorModel | None
) -> Explanations:
    """Return explanations with their expected errors, and corrected scores for targets that have samples.

    Args:
        explanations: Amortised explanations.
        samples: Samples of training. None means scores are not corrected.
        errors: Expected errors. None means scores are not corrected either.
    """
    if errors is None:
        return replace(explanations, corrected=torch.zeros(len(explanations), dtype=torch.bool))
    prior = errors.variance(explanations)
    valid = torch.zeros(len(explanations), dtype=torch.bool)
    if samples is not None:
        game, targets = explanations.game, explanations.players.targets
        assert game is not None
        if samples.are_of_another(game, targets):
            notice("samples.other_model", task=game.task)
        if explanations.rather_than is None:  # samples belong to one class
            valid = samples.know(game, targets, explanations.explained_class)
    if samples is None or not bool(valid.any()):
        return replace(explanations, variance=prior, corrected=valid)
    correct = _compiled if explanations.scores.device.type == "cpu" else _one_by_one
    scores, variance = correct(explanations, samples, prior, valid)
    is_corrected = valid.to(scores.device)[explanations.players.row]
    variance = torch.where(is_corrected, variance * errors.stretch, prior)
    assert explanations.game is not None
    scores = complete(explanations.game, explanations.players, explanations.query, scores)
    return replace(explanations, scores=scores, variance=variance, corrected=valid)


def _one_by_one(
    explanations: Explanations, samples: SharedSamples, prior: Tensor, valid: Tensor
) -> tuple[Tensor, Tensor]:
    """Correct target after target, on any device."""
    scores, variance = explanations.scores.clone(), prior.clone()
    own = explanations.is_target
    each = samples.of(explanations.players, own).each()
    for (pairs, sigma, d), is_valid in zip(each, valid.tolist(), strict=True):
        if is_valid:
            better = posterior_update(sigma, d, scores[pairs], prior[pairs], own[pairs])
            scores[pairs], variance[pairs] = better.scores, better.variance
    return scores, variance


def _compiled(
    explanations: Explanations, samples: SharedSamples, prior: Tensor, valid: Tensor
) -> tuple[Tensor, Tensor]:
    from dgl_lara.inference.kernels.posterior import correct_all  # not at the top, since it loads the compiler

    return correct_all(explanations.players, explanations.is_target, explanations.scores, samples, prior, valid)

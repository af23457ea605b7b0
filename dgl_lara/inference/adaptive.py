"""Correction of doubtful explanations by model calls until they reach a confidence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara._util.progress import status
from dgl_lara.attribution.efficiency import complete
from dgl_lara.attribution.monte_carlo import Samples, responses
from dgl_lara.attribution.posterior import posterior_update
from dgl_lara.errors import InputError
from dgl_lara.inference.draws import per_target_masks

if TYPE_CHECKING:
    from dgl_lara.explanation import Explanations
    from dgl_lara.game.game import Game

ROUNDS = (64, 128, 256)  # pairs of coalitions of each round
AT_LEAST = 0.9
MAX_PAIRS_SPENT = sum(ROUNDS)


@dataclass(frozen=True, eq=False)
class AdaptiveResult:
    """Corrected explanations.

    Attributes:
        explanations: The explanations.
        pairs: (num_targets,) pairs of coalitions spent on each.
        still: (num_targets,) bool, whether each is doubtful afterwards.
    """

    explanations: Explanations
    pairs: Tensor
    still: Tensor


def refine_until_confident(
    game: Game, explanations: Explanations, stretch: float, at_least: float = AT_LEAST, seed: int = 0
) -> AdaptiveResult:
    """Correct explanations whose confidence is too low.

    Args:
        game: The game that is explained.
        explanations: The explanations.
        stretch: Factor of the posterior variance, see `ErrorModel`.
        at_least: Confidence to reach.
        seed: Seed of the coalitions.

    Raises:
        InputError: If the errors of the scores are unknown.
    """
    if not 0 < at_least < 1:
        raise InputError("confidence.range", got=at_least)
    if explanations.variance is None:
        raise InputError("confidence.unknown")
    spent = torch.zeros(len(explanations), dtype=torch.long)
    for number, pairs in enumerate(ROUNDS, 1):
        doubtful = _doubtful(explanations, at_least)
        if not bool(doubtful.any()):
            break
        with status(f"refining {int(doubtful.sum()):,} in doubt, round {number} of {len(ROUNDS)}"):
            explanations = with_own_samples(game, explanations, doubtful, pairs, stretch, seed)
        spent[doubtful.cpu()] += pairs
    return AdaptiveResult(explanations, spent, _doubtful(explanations, at_least).cpu())


def _doubtful(explanations: Explanations, at_least: float) -> Tensor:
    """Return which explanations are doubtful. Targets without neighbours are not (NaN confidence)."""
    assert explanations.confidence is not None
    return explanations.confidence < at_least


def with_own_samples(
    game: Game, explanations: Explanations, chosen: Tensor, pairs: int, stretch: float, seed: int
) -> Explanations:
    """Correct some explanations that have expected errors with new samples.

    Args:
        game: The game that is explained.
        explanations: The explanations.
        chosen: (num_targets,) bool, which ones to correct.
        pairs: Pairs of coalitions for each of them.
        stretch: Factor of the posterior variance.
        seed: Seed of the coalitions.
    """
    players, prior = explanations.players, explanations.variance
    assert prior is not None
    scores, variance, own = explanations.scores.clone(), prior.clone(), explanations.is_target
    chosen_players, positions = players.only(chosen), chosen[players.row].nonzero().flatten()
    masks = per_target_masks(game, chosen_players, pairs, seed, pairs)  # each round draws other masks
    y = responses(game, chosen_players, masks, explanations.query[chosen])
    for each, sigma, d in Samples(game.index, chosen_players, masks, y, own[positions]).each():
        index = positions[each]
        update = posterior_update(sigma, d, scores[index], variance[index], own[index], stretch)
        scores[index], variance[index] = update.scores, update.variance
    scores = complete(game, players, explanations.query, scores)
    corrected = explanations.corrected
    corrected = chosen.cpu() if corrected is None else corrected | chosen.cpu()
    return replace(explanations, scores=scores, variance=variance, corrected=corrected)

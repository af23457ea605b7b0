"""Model calls only for doubtful explanations: samples of their own correct them until they are trusted."""

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

ROUNDS = (64, 128, 256)  # pairs of coalitions that are spent on a target, one after the other
AT_LEAST = 0.9
MOST_SPENT = sum(ROUNDS)


@dataclass(frozen=True, eq=False)
class AdaptiveResult:
    """Explanations, the pairs of coalitions spent on each, and whether each is `still` doubtful."""

    explanations: Explanations
    pairs: Tensor  # (num_targets,)
    still: Tensor  # (num_targets,) bool


def refine_until_confident(
    game: Game, explanations: Explanations, stretch: float, at_least: float = AT_LEAST, seed: int = 0
) -> AdaptiveResult:
    """Correct explanations whose confidence is below `at_least`. stretch: see `ErrorModel`."""
    if not 0 < at_least < 1:
        raise InputError(f"the confidence to reach must be above 0 and below 1 (got {at_least}).")
    if explanations.variance is None:
        raise InputError(
            "nothing is known of how wrong these scores are, so the doubtful ones cannot be told; refine all of them "
            "with a number of pairs, or train again, which learns it."
        )
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
    """Correct some explanations, whose errors are known, with samples of their own."""
    players, known = explanations.players, explanations.variance
    assert known is not None
    scores, variance, own = explanations.scores.clone(), known.clone(), explanations.is_target
    some, places = players.only(chosen), chosen[players.row].nonzero().flatten()
    masks = per_target_masks(game, some, pairs, seed, pairs)  # a round has pairs of its own
    y = responses(game, some, masks, explanations.query[chosen])
    for each, sigma, d in Samples(game.index, some, masks, y, own[places]).each():
        place = places[each]
        better = posterior_update(sigma, d, scores[place], variance[place], own[place], stretch)
        scores[place], variance[place] = better.scores, better.variance
    scores = complete(game, players, explanations.query, scores)
    corrected = explanations.corrected
    corrected = chosen.cpu() if corrected is None else corrected | chosen.cpu()
    return replace(explanations, scores=scores, variance=variance, corrected=corrected)

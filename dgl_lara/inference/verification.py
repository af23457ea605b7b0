"""Fidelity of explanations, compared with that of random players, by model calls."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import torch
from torch import Tensor

from dgl_lara._util.validation import whole_number
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.inference.draws import per_target_uniform
from dgl_lara.metrics.fidelity import SPARSITIES, fidelity_per_target

DRAWS = 3  # random explanations that each one is compared with


def verify(game: Game, explanations: Explanations, draws: int = DRAWS, seed: int = 0) -> pd.DataFrame:
    """Compare each explanation with an equal number of random players.

    Fidelity+ and Fidelity- (Eq. 1, 2) are means over sparsity .3 to .7, and the target itself is kept. A target without
    neighbours has none (NaN).

    Args:
        game: The game.
        explanations: Explanations to verify.
        draws: Random explanations for each target.
        seed: Seed of the random players.

    Returns:
        A row for each target. `worse_than_random`: F+ - F- is below that of random players.
    """
    draws = whole_number("draws, of random players for each target,", draws)
    plus, minus = _fidelity(game, explanations)
    chance = torch.zeros(2, len(explanations), device=plus.device)
    for scores in per_target_uniform(game, explanations.players, draws, seed, 1):
        chance += torch.stack(_fidelity(game, replace(explanations, scores=scores))) / draws
    return pd.DataFrame(
        {
            "target": explanations.players.targets.cpu().numpy(),
            "fidelity+": plus.cpu().numpy(),
            "fidelity-": minus.cpu().numpy(),
            "random fidelity+": chance[0].cpu().numpy(),
            "random fidelity-": chance[1].cpu().numpy(),
            "worse_than_random": (plus - minus < chance[0] - chance[1]).cpu().numpy(),
        }
    )


def _fidelity(game: Game, explanations: Explanations) -> tuple[Tensor, Tensor]:
    plus, minus = fidelity_per_target(game, explanations, SPARSITIES, keep_target=explanations.includes_target)
    return plus.mean(0), minus.mean(0)

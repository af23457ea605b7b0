"""The phi that scores are compared with: exact if possible, else estimated in two halves that show its noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara._util.randomness import generator
from dgl_lara.attribution.exact import exact
from dgl_lara.attribution.monte_carlo import Estimate, sample, sample_shared, split_half_estimate
from dgl_lara.attribution.r_squared import corrected_r_squared, is_clear
from dgl_lara.errors import message

if TYPE_CHECKING:
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players

MAX_EXACT_PLAYERS = 12  # 4,096 coalitions
MAX_NODES_PER_TARGET = 60_000_000  # that are evaluated if every target has masks of its own


@dataclass(frozen=True, eq=False)
class Reference:
    """An unbiased estimate of phi from two independent halves.

    Attributes:
        players: (target, player) pairs.
        estimate: phi and its error.
        ceiling: The uncorrected R squared of a perfect explainer.
        description: How phi was computed.
        min_resolvable: The largest value that may be rounding.
    """

    players: Players
    estimate: Estimate
    ceiling: float
    description: str
    min_resolvable: float = 0.0

    def r_squared(self, scores: Tensor, pairs: Tensor | slice = slice(None)) -> float:
        """Compute R squared with the true phi, corrected for the noise of the estimate.

        Args:
            scores: (num_pairs,) scores.
            pairs: The pairs that count.

        Returns:
            R squared, or NaN if phi is only noise.
        """
        counted = Estimate(self.estimate.phi[pairs], self.estimate.error[pairs])
        return corrected_r_squared(scores[pairs], counted) if is_clear(counted, self.min_resolvable) else math.nan


def reference(game: Game, targets: Tensor, pairs: int, seed: int) -> Reference:
    """Compute phi exactly if all neighbourhoods are small, else estimate it.

    Args:
        game: The game.
        targets: The targets.
        pairs: Pairs of coalitions for each target, half of them in each half.
        seed: Seed of the coalitions.
    """
    players = game.players(targets)
    largest = int(players.counts.max()) if len(players.counts) else 0
    if len(players.counts) and largest <= MAX_EXACT_PLAYERS:
        phi = exact(game, players)
        estimate = Estimate(phi, torch.zeros_like(phi))
        return Reference(players, estimate, 1.0, message("reference.exact"), game.min_resolvable)
    shared = game.shares_masks and 2 * pairs * int(players.counts.sum()) > MAX_NODES_PER_TARGET
    draw = sample_shared if shared else sample
    first, second = (draw(game, players, pairs // 2, generator(1000 + seed * 2 + half)) for half in (0, 1))
    estimate = split_half_estimate(first, second)
    variance = (estimate.phi - estimate.phi.mean()).square().mean()
    ceiling = 1 - (estimate.error.square().mean() / variance).item() if variance > 0 else math.nan
    description = message("reference.estimated_together" if shared else "reference.estimated", pairs=pairs)
    description += "" if first.enough else message("reference.too_few", players=largest)
    return Reference(players, estimate, ceiling, description, game.min_resolvable)

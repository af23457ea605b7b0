"""phi to compare with: exact where it can be had, else sampled in two halves whose difference shows its noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara._util.progress import repeat
from dgl_lara._util.randomness import generator
from dgl_lara.attribution.exact import exact
from dgl_lara.attribution.monte_carlo import Estimate, sample, sample_shared, split_half_estimate
from dgl_lara.attribution.r_squared import corrected_r_squared, is_clear
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players

EXACT_UP_TO = 12  # players: 4,096 coalitions
AFFORDABLE = 60_000_000  # evaluated nodes a reference may cost target by target


@dataclass(frozen=True, eq=False)
class Reference:
    """phi to compare with, without bias; from two independent halves whose difference shows its noise."""

    players: Players
    estimate: Estimate
    ceiling: float  # the R squared that a perfect explainer would show against it, uncorrected
    how: str
    least: float = 0.0  # what rounding alone may make of a value

    def r_squared(self, scores: Tensor, counted: Tensor | slice = slice(None)) -> float:
        """With the true phi, over all pairs or those marked: the noise of the reference is taken out. NaN where it is
        nothing but noise."""
        known = Estimate(self.estimate.phi[counted], self.estimate.error[counted])
        return corrected_r_squared(scores[counted], known) if is_clear(known, self.least) else math.nan


def reference(game: Game, targets: Tensor, pairs: int, seed: int) -> Reference:
    """Exact phi where all neighbourhoods are small; otherwise `pairs` coalition pairs a target, in two halves."""
    players = game.players(targets)
    most = int(players.counts.max()) if len(players.counts) else 0
    if len(players.counts) and most <= EXACT_UP_TO:
        phi = exact(game, players)
        return Reference(
            players, Estimate(phi, torch.zeros_like(phi)), 1.0, "exact, from every coalition", game.min_resolvable
        )
    share = (
        game.task.has_distances
        and game.player_set.supports_shared_masks
        and 2 * pairs * int(players.counts.sum()) > AFFORDABLE
    )
    draw = sample_shared if share else sample
    with repeat(2):
        first, second = (draw(game, players, pairs // 2, generator(1000 + seed * 2 + half)) for half in (0, 1))
    estimate = split_half_estimate(first, second)
    spread = (estimate.phi - estimate.phi.mean()).square().mean()
    how = f"estimated from {pairs:,} pairs of coalitions (random subsets) for each target"
    how += ", the same for all" * share
    how += "" if first.enough else f"; that is few for up to {most:,} players"
    ceiling = 1 - (estimate.error.square().mean() / spread).item() if spread > 0 else math.nan
    return Reference(players, estimate, ceiling, how, game.min_resolvable)

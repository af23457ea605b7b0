"""phi to compare with: exact where it can be had, else sampled in two halves whose difference shows its noise."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara.attribution.exact import exact
from dgl_lara.attribution.monte_carlo import Estimate, least_squares, shared_least_squares
from dgl_lara.game.game import Game
from dgl_lara.game.players import Players
from dgl_lara.utils.randomness import generator

EXACT_UP_TO = 12  # players: 4,096 coalitions
AFFORDABLE = 60_000_000  # evaluated nodes a reference may cost target by target


@dataclass(frozen=True, eq=False)
class Reference:
    """phi to compare with, from two independent halves whose difference shows its noise."""

    players: Players
    estimate: Estimate
    ceiling: float  # the R squared that a perfect explainer would show against it
    how: str


def reference(game: Game, targets: Tensor, pairs: int, seed: int) -> Reference:
    """Exact phi where all neighbourhoods are small; otherwise `pairs` coalition pairs a target, in two halves."""
    players = game.players(targets)
    if len(players.counts) and int(players.counts.max()) <= EXACT_UP_TO:
        phi = exact(game, players)
        return Reference(players, Estimate(phi, torch.zeros_like(phi)), 1.0, "exact phi, by enumeration")
    each = 2 * pairs * int(players.counts.sum())
    most = int(players.counts.max()) if len(players.counts) else 0
    share = game.task.local and each > AFFORDABLE
    sample = shared_least_squares if share else least_squares
    first, second = (sample(game, players, pairs // 2, generator(1000 + seed * 2 + half)) for half in (0, 1))
    phi = (first.phi + second.phi) / 2
    noise = (first.phi - second.phi).square().mean() / 4
    variance = (phi - phi.mean()).square().mean()
    error = torch.full_like(phi, noise.sqrt().item())
    how = f"{pairs} coalition pairs a target" + (" (masks shared by all targets)" if share else "")
    if pairs // 2 < most:
        how += f"; fewer than the up to {most} players need, so its noise is understated"
    return Reference(players, Estimate(phi, error), 1 - (noise / variance).item(), how)

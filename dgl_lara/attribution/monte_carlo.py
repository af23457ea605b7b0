"""Eq. 9: Monte-Carlo estimates of phi, each with its standard error.

per_player     the paper: for each j pairs (S, N without S) with j in S; two evaluations teach one player
paired         the same pair teaches every player: sigma_j d(S), with sigma = +1 inside S and -1 outside
least_squares  phi is also the best linear fit of d(S) on sigma, because E[sigma sigma^T] = I; far less noise

d(S) = f(S) - f(N without S).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara.game.game import Game
from dgl_lara.game.players import Players

RIDGES = torch.logspace(-4, 4, 33)


@dataclass(frozen=True, eq=False)
class Estimate:
    """phi and its standard error, one number a (target, player) pair."""

    phi: Tensor
    error: Tensor


def random_coalitions(count: int, players: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
    """(count, players) bool: uniform subsets. Drawn on the CPU, so that a seed means the same on every device."""
    return (torch.rand(count, players, generator=generator) < 0.5).to(device)


def signed(keep: Tensor) -> Tensor:
    """sigma: +1 for a player inside S, -1 outside."""
    return keep.float() * 2 - 1


def differences(game: Game, players: Players, keep: Tensor, classes: Tensor | None = None) -> Tensor:
    """(num_masks, num_targets): d(S) = f(S) - f(N without S), of the explained class unless others are given."""
    return game.coalitions(players, keep, classes) - game.coalitions(players, ~keep, classes)


def per_player(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Estimate:
    """Eq. 9 as the paper samples it: `pairs` coalitions for each single player."""
    device = players.player.device
    phi, error = torch.empty(len(players.player), device=device), torch.empty(len(players.player), device=device)
    for row in range(len(players.targets)):
        alone = players.part(slice(row, row + 1))
        count, start = int(alone.counts[0]), int(players.indptr[row])
        keep = random_coalitions(pairs * count, count, generator, device).view(pairs, count, count)
        keep = keep | torch.eye(count, dtype=torch.bool, device=device)  # S_j contains j
        d = differences(game, alone, keep.flatten(0, 1)).view(pairs, count)
        phi[start : start + count], error[start : start + count] = d.mean(0), d.std(0) / pairs**0.5
    return Estimate(phi, error)


def paired(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Estimate:
    """Every player learns from every pair: phi_j = mean of sigma_j d."""
    keep = random_coalitions(pairs, len(players.player), generator, players.player.device)
    samples = signed(keep) * differences(game, players, keep)[:, players.row]
    return Estimate(samples.mean(0), samples.std(0) / pairs**0.5)


def least_squares(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Estimate:
    """The linear fit of d on sigma, for each target alone."""
    keep = random_coalitions(pairs, len(players.player), generator, players.player.device)
    return fit_each(players, keep, differences(game, players, keep))


def shared_least_squares(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Estimate:
    """The same from masks over the whole graph: 2 * pairs passes of f serve every target at once."""
    keep = random_coalitions(pairs, game.graph.num_nodes(), generator, game.features.device)
    classes = game.explained_class[players.targets]
    step = max(1, game.nodes_a_call // game.graph.num_nodes())  # never all masks x nodes x classes at once
    d = [(game.shared(part) - game.shared(~part))[:, players.targets, classes] for part in keep.split(step)]
    return fit_each(players, keep, torch.cat(d), players.player)


def fit_each(players: Players, keep: Tensor, d: Tensor, columns: Tensor | None = None) -> Estimate:
    """One regression a target. `keep` has a column a pair, or `columns` says which column a pair has."""
    fits = []
    for row, pairs in enumerate(players.slices):
        mine = keep[:, pairs] if columns is None else keep[:, columns[pairs]]
        fits.append(fit(signed(mine), d[:, row]))
    return Estimate(torch.cat([phi for phi, _ in fits]), torch.cat([error for _, error in fits]))


def fit(sigma: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Ridge regression of d on sigma (num_masks, players); generalised cross-validation chooses the ridge.

    With more masks than players the ridge is next to nothing; with fewer it keeps the noise from exploding.
    """
    u, s, vt = torch.linalg.svd(sigma, full_matrices=False)
    projected = u.T @ d
    outside = (d @ d - projected @ projected).clamp(min=0)  # what no linear function explains
    ridge = RIDGES.to(d).unsqueeze(1) * len(d)  # (ridges, 1)
    shrink = s**2 / (s**2 + ridge)  # (ridges, rank)
    residual = outside + (((1 - shrink) * projected) ** 2).sum(1)
    freedom = (len(d) - shrink.sum(1)).clamp(min=1e-3)
    best = int((residual / freedom**2).argmin())
    noise = residual[best] / freedom[best]
    weights = shrink[best] / s.clamp(min=1e-12)
    return vt.T @ (weights * projected), (noise * ((vt.T * weights) ** 2).sum(1)).sqrt()

"""Eq. 5 and the values of other indices, by enumeration of all coalitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara._util.progress import Progress
from dgl_lara.errors import InputError
from dgl_lara.game.index import BANZHAF, Index

if TYPE_CHECKING:
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players

MAX_PLAYERS = 20


def all_coalitions(players: int, device: torch.device | str = "cpu") -> Tensor:
    """(2^players, players) bool: Return all coalitions. Row r holds the binary digits of r."""
    numbers = torch.arange(2**players, device=device).unsqueeze(1)
    return (numbers >> torch.arange(players, device=device)) % 2 == 1


def banzhaf(values: Tensor, coalitions: Tensor) -> Tensor:
    """Eq. 5: phi_j = 2^(1-n) sum over S containing j of f(S) - f(N without S).

    The complements of the sets with j are the sets without j, so the sum is a signed one over all sets.
    """
    signs = coalitions.double() * 2 - 1  # (num_coalitions, players); a million float32 terms would lose two digits
    return (signs.T @ values.double() * 2 / len(values)).to(values.dtype)


def weighted_marginals(values: Tensor, coalitions: Tensor, index: Index) -> Tensor:
    """(players,) Compute phi_j = sum over S without j of w(|S|) (f(S and j) - f(S)).

    Args:
        values: (2^players,) f(S), in the order of `all_coalitions`.
        coalitions: (2^players, players) bool.
        index: Index whose weights w are used.
    """
    players = coalitions.shape[1]
    if index == BANZHAF or not players:
        return banzhaf(values, coalitions)
    weights, sizes = index.marginal_weights(players).to(values.device), coalitions.sum(1)
    phi = torch.empty(players, dtype=torch.float64, device=values.device)
    for j in range(players):
        without = (~coalitions[:, j]).nonzero().flatten()
        phi[j] = weights[sizes[without]] @ (values[without + 2**j] - values[without]).double()
    return phi.to(values.dtype)


def exact(game: Game, players: Players) -> Tensor:
    """(num_pairs,) Compute phi of every player of every target, for the index of the game."""
    if len(players.counts) and int(players.counts.max()) > MAX_PLAYERS:
        raise InputError("exact.players", most=MAX_PLAYERS, got=int(players.counts.max()))
    phi = []
    for row in Progress(range(len(players.targets)), "exact attributions, from every coalition", unit="target"):
        alone = players.part(slice(row, row + 1))
        keep = all_coalitions(int(alone.counts[0]), players.player.device)
        phi.append(weighted_marginals(game.values_per_target(alone, keep)[:, 0], keep, game.index))
    return torch.cat(phi) if phi else torch.empty(0)

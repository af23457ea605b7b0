"""Eq. 5: removal-based attribution, by enumerating all coalitions."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara._util.progress import Progress
from dgl_lara.errors import InputError
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players

MOST_PLAYERS = 20


def all_coalitions(players: int, device: torch.device | str = "cpu") -> Tensor:
    """Return all coalitions, (2^players, players) bool. Row r holds the binary digits of r."""
    numbers = torch.arange(2**players, device=device).unsqueeze(1)
    return (numbers >> torch.arange(players, device=device)) % 2 == 1


def banzhaf(values: Tensor, coalitions: Tensor) -> Tensor:
    """Compute Eq. 5: phi_j = 2^(1-n) sum over S containing j of f(S) - f(N without S).

    The complements of the sets with j are the sets without j, so the sum is a signed one over all sets.
    """
    signs = coalitions.double() * 2 - 1  # (num_coalitions, players); a million float32 terms would lose two digits
    return (signs.T @ values.double() * 2 / len(values)).to(values.dtype)


def exact(game: Game, players: Players) -> Tensor:
    """Compute phi of every player of every target, (num_pairs,), from all its coalitions."""
    if len(players.counts) and int(players.counts.max()) > MOST_PLAYERS:
        raise InputError(
            f"exact attribution enumerates 2^players coalitions, for at most {MOST_PLAYERS} players "
            f"(got {int(players.counts.max())}); sample it instead."
        )
    phi = []
    for row in Progress(range(len(players.targets)), "exact attributions, from every coalition", unit="target"):
        alone = players.part(slice(row, row + 1))
        keep = all_coalitions(int(alone.counts[0]), players.player.device)
        phi.append(banzhaf(game.values_per_target(alone, keep)[:, 0], keep))
    return torch.cat(phi) if phi else torch.empty(0)

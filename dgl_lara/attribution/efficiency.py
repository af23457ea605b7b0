"""Efficiency of Shapley values: the scores of a target add up to f(N) - f(no player)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players
    from dgl_lara.game.values import ClassQuery


def add_up(scores: Tensor, players: Players, total: Tensor) -> Tensor:
    """(num_pairs,) Shift the scores of each target by one number, so that they add up to its total.

    Args:
        scores: (num_pairs,)
        players: (target, player) pairs.
        total: (num_targets,)
    """
    row = players.row
    sums = torch.zeros_like(total).index_add(0, row, scores.to(total.dtype))
    return scores + ((total - sums) / players.counts.clamp(min=1)).to(scores.dtype)[row]


def complete(game: Game, players: Players, query: ClassQuery, scores: Tensor) -> Tensor:
    """Return scores that add up if the index of the game requires it.

    Args:
        game: The game.
        players: (target, player) pairs.
        query: The class of each target.
        scores: (num_pairs,)
    """
    if not game.index.adds_up:
        return scores
    total = game.full_value_of(players.targets, query) - game.empty_values_of(players, query)
    return add_up(scores, players, total)

"""Random draws for each target that depend on the seed and the target id only, so shards and batches change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dgl_lara.attribution.monte_carlo import BYTES_A_DRAW
from dgl_lara.game.index import Masks

if TYPE_CHECKING:
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players


def per_target_uniform(game: Game, players: Players, count: int, seed: int, number: int = 0) -> Tensor:
    """Draw uniform numbers in [0, 1), (count, num_pairs), on the CPU.

    Args:
        game: The game.
        players: The (target, player) pairs.
        count: Draws of each pair.
        seed: Seed.
        number: Distinguishes draws for several purposes.
    """
    game.budget.check(BYTES_A_DRAW * count * len(players.player), f"{count:,} draws for each of these targets")
    ids = torch.stack(game.task.endpoints(players.targets), dim=1)  # positions of links in a list may change
    if game.parent is not None:
        ids = game.parent.node_ids[ids]
    draws = torch.empty(count, len(players.player))
    for target, pairs in zip(ids.tolist(), players.slices, strict=True):
        rng = np.random.default_rng([seed % 2**64, number, *target])  # numpy takes no negative seed
        draws[:, pairs] = torch.from_numpy(rng.random((count, pairs.stop - pairs.start), np.float32))
    return draws.to(players.player.device)


def per_target_masks(game: Game, players: Players, count: int, seed: int, number: int = 0) -> Masks:
    """(count, num_pairs) Draw coalitions of each target, by the seed and the target alone. See `per_target_uniform`."""
    probability = game.index.probabilities(count).to(players.player.device)
    return Masks(per_target_uniform(game, players, count, seed, number) < probability.unsqueeze(1), probability)

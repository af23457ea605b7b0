"""`random`: the floor of every table."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.explanation import Explanations
from dgl_lara.randomness import generator
from dgl_lara.value import Game


def explain(game: Game, targets: Tensor, seed: int = 0) -> Explanations:
    """Uniform scores."""
    players = game.players(targets)
    scores = torch.rand(len(players.player), generator=generator(seed)).to(targets.device)
    return Explanations(players, scores, game.explained_class[targets], game.task, "random")

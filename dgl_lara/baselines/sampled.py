"""`sampled`: direct least-squares attribution of each target, with a stated number of coalition pairs.

The per-instance reference: it spends 2 * pairs evaluations of f on every target, where g spends none.
"""

from __future__ import annotations

from torch import Tensor

from dgl_lara.attribution.sampled import least_squares
from dgl_lara.explanation import Explanations
from dgl_lara.randomness import generator
from dgl_lara.value import Game


def explain(game: Game, targets: Tensor, pairs: int, seed: int = 0) -> Explanations:
    players = game.players(targets)
    phi = least_squares(game, players, pairs, generator(seed)).phi
    return Explanations(players, phi, game.explained_class[targets], game.task, f"sampled {pairs}")

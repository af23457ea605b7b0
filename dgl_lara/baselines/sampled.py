"""`sampled`: direct least-squares attribution of each target, with a stated number of coalition pairs.

The per-instance reference: it spends 2 * pairs evaluations of f on every target, where g spends none.
"""

from __future__ import annotations

from torch import Tensor

from dgl_lara.attribution.monte_carlo import least_squares
from dgl_lara.baselines.method import Method
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.utils.randomness import generator


class Sampled(Method):
    name = "sampled"

    def __init__(self, game: Game, seed: int = 0, pairs: int = 300) -> None:
        super().__init__(game, seed)
        self.pairs = pairs

    @property
    def label(self) -> str:
        return f"sampled {self.pairs}"

    def explain(self, targets: Tensor) -> Explanations:
        players = self.game.players(targets)
        return self.result(players, least_squares(self.game, players, self.pairs, generator(self.seed)).phi)

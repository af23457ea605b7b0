"""`sampled`: direct least-squares attribution of each target, with a stated number of coalition pairs.

The per-instance reference: it spends 2 * pairs evaluations of f on every target, where g spends none.
"""

from __future__ import annotations

from torch import Tensor

from dgl_lara._util.randomness import generator
from dgl_lara.attribution.monte_carlo import least_squares
from dgl_lara.baselines.common.method import Method
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game


class Sampled(Method):
    name = "sampled"
    style = ("#000000", "--")

    def __init__(self, game: Game, seed: int = 0, pairs: int | None = None) -> None:
        """`pairs`: of coalitions a target; without a number, the task's own."""
        super().__init__(game, seed)
        self.pairs = game.task.sampled_pairs if pairs is None else pairs

    @property
    def label(self) -> str:
        return f"sampled {self.pairs}"

    def explain(self, targets: Tensor) -> Explanations:
        players = self.game.players(targets)
        return self.result(players, least_squares(self.game, players, self.pairs, generator(self.seed)).phi)


METHOD = Sampled

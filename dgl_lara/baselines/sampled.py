"""`sampled`: least-squares attribution of each target by itself, from a given number of coalition pairs.

It evaluates f 2 * pairs times for every target. g does not evaluate f.
"""

from __future__ import annotations

from torch import Tensor

from dgl_lara._util.randomness import generator
from dgl_lara.attribution.monte_carlo import least_squares
from dgl_lara.baselines.common.method import Method
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game


class Sampled(Method):
    """Least squares on random coalitions.

    Args:
        game: The explained game.
        seed: Seed of the coalitions.
        pairs: Pairs of coalitions a target. None means the default of the task.
    """

    name = "sampled"
    style = ("#000000", "--")

    def __init__(self, game: Game, seed: int = 0, pairs: int | None = None) -> None:
        super().__init__(game, seed)
        self.pairs = game.task.sampled_pairs if pairs is None else pairs

    @property
    def label(self) -> str:
        return f"sampled {self.pairs}"

    def explain(self, targets: Tensor) -> Explanations:
        players = self.game.players(targets)
        return self.result(players, least_squares(self.game, players, self.pairs, generator(self.seed)).phi)


METHOD = Sampled

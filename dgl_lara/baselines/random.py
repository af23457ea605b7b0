"""`random`: the lower bound of every table."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara._util.randomness import generator
from dgl_lara.baselines.common.method import Method
from dgl_lara.explanation import Explanations


class Random(Method):
    """Uniform random scores."""

    name = "random"
    style = ("#999999", ":")

    def explain(self, targets: Tensor) -> Explanations:
        players = self.game.players(targets)
        return self.result(players, torch.rand(len(players.player), generator=generator(self.seed)).to(targets.device))


METHOD = Random

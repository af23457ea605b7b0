"""`gradient`: how f's value moves with a player's features, times those features (Shrikumar et al. 2016).

The graphs of different targets are separate, so one backward pass of the sum of their values is exact for each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.baselines.egos import batches, egos
from dgl_lara.baselines.method import Method
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import NODES_A_CALL, to_values
from dgl_lara.game.players import Neighborhood
from dgl_lara.model.evaluating import evaluating

NODES_A_PASS = NODES_A_CALL // 4  # a pass that keeps its intermediate states for the way back


class GradientInput(Method):
    """Signed: the sum over features of gradient x input, the first-order effect of setting them to zero."""

    name = "gradient x input"
    needs = ("gradients",)

    def explain(self, targets: Tensor) -> Explanations:
        players = self.game.players(targets)
        scores = [self.reduce(self._products(part)) for part in batches(players, NODES_A_PASS)]
        return self.result(players, torch.cat([*scores, self.game.features.new_empty(0)]))

    def _products(self, players: Neighborhood) -> Tensor:
        """(num_pairs, in_dim) gradient x input."""
        game, here = self.game, egos(self.game, players)
        classes = game.explained_class[players.targets].unsqueeze(1)
        with evaluating(game.f), torch.enable_grad():
            inputs = here.features.detach().requires_grad_()
            values = to_values(game.call(here.graph, inputs)[here.targets], game.value).gather(1, classes)
            if not values.requires_grad:
                raise InputError(
                    f"{self.name} needs a model that torch can differentiate (this one's output is cut off)."
                )
            (gradient,) = torch.autograd.grad(values.sum(), inputs)
        return (gradient * inputs.detach())[here.players]

    def reduce(self, products: Tensor) -> Tensor:
        return products.sum(dim=1)


class AbsoluteGradientInput(GradientInput):
    """Unsigned: the sum over features of |gradient x input|. Says how much, not which way."""

    name = "|gradient x input|"

    def reduce(self, products: Tensor) -> Tensor:
        return products.abs().sum(dim=1)

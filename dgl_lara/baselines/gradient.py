"""`gradient`: how f's value moves with a player's features, times those features (Shrikumar et al. 2016).

The graphs of different targets are separate, so one backward pass of the sum of their values is exact for each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.baselines.common.egos import batches, egos, place_of_players
from dgl_lara.baselines.common.method import Method
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.blackbox.input_adapter import input_adapter
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations
from dgl_lara.game.player_index import Players
from dgl_lara.game.values import to_values

WAY_BACK = 4  # times the memory of a pass that keeps no intermediate states


class GradientInput(Method):
    """Signed: the sum over features of gradient x input, the first-order effect of setting them to zero."""

    name = "gradient x input"
    needs = ("gradients",)
    style = ("#CC79A7", "--")

    def explain(self, targets: Tensor) -> Explanations:
        players, budget = self.game.players(targets), max(1, self.game.nodes_per_call // WAY_BACK)
        scores = [self.reduce(self._products(part)) for part in batches(players, budget)]
        return self.result(players, torch.cat([*scores, torch.empty(0, device=targets.device)]))

    def _products(self, players: Players) -> Tensor:
        """(num_pairs, in_dim) gradient x input."""
        game, here = self.game, egos(self.game, players)
        classes = game.explained_class[players.targets].unsqueeze(1)
        with eval_mode(game.f), torch.enable_grad():
            features = game.features[here.nodes].detach()
            with input_adapter(game.f).differentiable(features) as (inputs, features):
                said = game.call(here.graph, features, *game.task.endpoint_indices(here))
            said = said[here.target_rows]
            values = to_values(said, game.value).gather(1, classes)
            if not values.requires_grad:
                raise InputError(
                    f"{self.name} needs a model that torch can differentiate (this one's output is cut off)."
                )
            (gradient,) = torch.autograd.grad(values.sum(), inputs)
        return (gradient * inputs.detach())[place_of_players(here, players)]

    def reduce(self, products: Tensor) -> Tensor:
        return products.sum(dim=1)


METHOD = GradientInput

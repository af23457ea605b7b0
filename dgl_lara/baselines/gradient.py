"""`gradient`: the gradient of f's value by a player's features, times the features (Shrikumar et al. 2016).

The graphs of different targets are separate, so one backward pass of the sum of their values is exact for each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.baselines.common.ego_graphs import batches, ego_graphs, player_nodes
from dgl_lara.baselines.common.method import Method
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.blackbox.input_adapter import input_adapter
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations
from dgl_lara.game.player_index import Players
from dgl_lara.game.values import to_values

BACKWARD_MEMORY = 4  # times that of a forward pass, which keeps no intermediate states


class GradientInput(Method):
    """The sum over features of gradient x input, the first-order effect of setting the features to zero."""

    name = "gradient x input"
    needs = ("gradients",)
    style = ("#CC79A7", "--")

    def explain(self, targets: Tensor) -> Explanations:
        players, budget = self.game.players(targets), max(1, self.game.nodes_per_call // BACKWARD_MEMORY)
        scores = [self._reduce(self._products(part)) for part in batches(players, budget)]
        return self.result(players, torch.cat([*scores, torch.empty(0, device=targets.device)]))

    def _products(self, players: Players) -> Tensor:
        """Compute (num_pairs, in_dim) gradient x input."""
        game, egos = self.game, ego_graphs(self.game, players)
        classes = game.explained_class[players.targets].unsqueeze(1)
        with eval_mode(game.f), torch.enable_grad():
            features = game.features[egos.nodes].detach()
            with input_adapter(game.f).differentiable(features) as (inputs, features):
                logits = game.caller(egos.graph, features, *game.task.endpoint_indices(egos))
            values = to_values(logits[egos.target_rows], game.value).gather(1, classes)
            if not values.requires_grad:
                raise InputError("baseline.needs_gradients", method=self.name)
            (gradient,) = torch.autograd.grad(values.sum(), inputs)
        return (gradient * inputs.detach())[player_nodes(egos, players)]

    def _reduce(self, products: Tensor) -> Tensor:
        return products.sum(dim=1)


METHOD = GradientInput

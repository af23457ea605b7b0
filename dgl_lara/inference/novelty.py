"""Distance of an explanation from the training data, by the inputs of all nodes around the target.

It is about 1 on a graph like that of the training. 2 is far away.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.explainer.network import Explainer
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game

MAX_DEVIATIONS = 10.0  # limits the influence of a single outlier


def with_novelty(explanations: Explanations, explainer: Explainer, inputs: str) -> Explanations:
    """Return explanations with their novelty."""
    assert explanations.game is not None
    return replace(explanations, novelty=novelty(explainer, explanations.game, inputs, explanations.players.targets))


def novelty(explainer: Explainer, game: Game, inputs: str, targets: Tensor) -> Tensor:
    """Compute the root mean square of normalised inputs of all nodes that reach a target, (num_targets,)."""
    near = game.task.reach(game.graph, targets, game.hops)
    nodes, index = torch.unique(near.player, return_inverse=True)
    deviation = (explainer_inputs(game, inputs, nodes) - explainer.centre) / explainer.spread
    square = deviation.clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS).square().mean(1)
    total = torch.zeros(len(targets), device=square.device).index_add(0, near.row, square[index])
    return (total / near.counts.clamp(min=1)).sqrt()

"""How far outside of what g has learned from an explanation is: the inputs of everybody around the target, in spreads
of the nodes that g learned from. About 1 where a graph is like the one of the training; twice that is far away."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.explainer.network import Explainer
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game

FURTHEST = 10.0  # spreads: a single wild number does not decide alone


def with_novelty(explanations: Explanations, explainer: Explainer, inputs: str) -> Explanations:
    assert explanations.game is not None
    return replace(explanations, novelty=novelty(explainer, explanations.game, inputs, explanations.players.targets))


def novelty(explainer: Explainer, game: Game, inputs: str, targets: Tensor) -> Tensor:
    """(num_targets,) root mean square of the normalised inputs of all nodes that can reach a target."""
    near = game.task.reach(game.graph, targets, game.hops)
    nodes, place = torch.unique(near.player, return_inverse=True)
    off = (explainer_inputs(game, inputs, nodes) - explainer.centre) / explainer.spread
    square = off.clamp(-FURTHEST, FURTHEST).square().mean(1)
    total = torch.zeros(len(targets), device=square.device).index_add(0, near.row, square[place])
    return (total / near.counts.clamp(min=1)).sqrt()

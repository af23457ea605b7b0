"""Explanations if each process holds one part of the graph: p of players is fetched from other processes."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.explainer.network import Explainer
from dgl_lara.game.distributed_game import DistributedGame
from dgl_lara.training.distributed import fetched
from dgl_lara.training.objective import local_scores


def explain_across(
    game: DistributedGame, explainer: Explainer, p: Tensor, t: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(target, player, score) of every pair, in numbers of the graph; `p`, `t`: of the nodes of this part. All
    processes ask at once, each for targets of its choice."""
    near = game.near(targets, game.hops + 1, calls_f=False)
    with eval_mode(explainer), torch.no_grad():
        embedded = fetched(game, near, p, t)
        players = near.game.players(near.targets)
        scores = local_scores(explainer, near.game, embedded, players)
    return targets[players.row], near.nodes[players.player], scores

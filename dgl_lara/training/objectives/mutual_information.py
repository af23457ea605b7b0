"""Eq. 8 with the mutual-information value of the coalitions that contain a player: the paper's ablation."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.attribution.mi_value import mi_value
from dgl_lara.game.player_index import Players
from dgl_lara.training.objective import Step
from dgl_lara.training.objectives.running_mean import RunningMean


class _MutualInformation(RunningMean):
    needs_uniform_coalitions = True

    def sample(self, step: Step, players: Players) -> Tensor:
        coalitions = step.coalitions
        full = step.game.full_logits[step.targets]
        inside, outside = mi_value(full, coalitions.inside), mi_value(full, coalitions.outside)
        return torch.where(coalitions.contains(players.player), inside[:, players.row], outside[:, players.row]).mean(0)


OBJECTIVE = _MutualInformation()

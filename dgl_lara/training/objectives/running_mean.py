"""Eq. 8 with the running mean of Eq. 10 instead of phi: the paper's objective."""

from __future__ import annotations

from torch import Tensor

from dgl_lara.game.player_index import Players
from dgl_lara.training.objective import Objective, Step
from dgl_lara.training.running_mean_table import AttributionTable


class RunningMean(Objective):
    keeps_table = True

    def loss(self, step: Step, table: AttributionTable | None) -> Tensor:
        assert table is not None
        players, usable = step.players(), step.usable()
        valid = None if usable is None else usable.any(0)
        mean = table.update(players, self.sample(step, players), valid)
        return ((step.scores(players) - mean) / step.explainer.unit).square().mean()

    def sample(self, step: Step, players: Players) -> Tensor:
        """Compute (num_pairs,) Eq. 9 from the step's coalitions. Each pair is a sample of every player."""
        z = step.coalitions.design(players.player)
        y = step.of_explained_class(step.responses()).squeeze(2)
        usable = step.usable()
        if usable is None:
            return (z * y[:, players.row]).mean(0)
        valid = usable[:, players.row]
        return (z * y[:, players.row] * valid).sum(0) / valid.sum(0).clamp(min=1)


OBJECTIVE = RunningMean()

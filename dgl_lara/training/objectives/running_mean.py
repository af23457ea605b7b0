"""Eq. 8 with the running mean of Eq. 10 in the place of phi: the paper's objective."""

from __future__ import annotations

from torch import Tensor

from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players
from dgl_lara.training.objective import Objective, Step
from dgl_lara.training.running_mean_table import AttributionTable


class RunningMean(Objective):
    def table(self, game: Game, targets: Tensor) -> AttributionTable:
        return AttributionTable(game, targets)

    def loss(self, step: Step, table: AttributionTable | None) -> Tensor:
        assert table is not None
        players, usable = step.players(), step.usable()
        heard = None if usable is None else usable.any(0)
        wanted = table.update(players, self.sample(step, players), heard)
        return ((step.scores(players) - wanted) / step.explainer.unit).square().mean()

    def sample(self, step: Step, players: Players) -> Tensor:
        """(num_pairs,) Eq. 9 from the step's coalitions: every pair (S, rest) teaches every player."""
        sigma = step.coalitions.sigma(players.player)
        d = step.of_explained_class(step.differences()).squeeze(2)
        usable = step.usable()
        if usable is None:
            return (sigma * d[:, players.row]).mean(0)
        known = usable[:, players.row]
        return (sigma * d[:, players.row] * known).sum(0) / known.sum(0).clamp(min=1)


OBJECTIVE = RunningMean()

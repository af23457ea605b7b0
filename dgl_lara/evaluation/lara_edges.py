"""LARA's scores of edges under the protocol of the methods that score edges by masks: |phi_hat|, in both directions."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.baselines.common.edge_masks import EdgeScores
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.game import Game
from dgl_lara.lara import LARA
from dgl_lara.training.config import TrainingConfig


class LaraEdges:
    """Learns from the targets it is given, as PGExplainer does. The players of `game` do not matter."""

    name = "lara"

    def __init__(self, game: Game, config: TrainingConfig, validation: Tensor) -> None:
        where = (game.f, game.graph, game.features, game.task, game.hops, game.value)
        self.game = Game(*where, memory=game.budget.memory, players="edges")
        self.lara, self.validation = LARA.of_game(self.game, config), validation

    def fit(self, targets: Tensor) -> None:
        self.lara.fit(targets, self.validation)

    def explain_edges(self, targets: Tensor) -> EdgeScores:
        found, kind = self.lara.explain(targets), self.game.kind
        assert isinstance(kind, EdgePlayers)
        one, other = kind.ends(found.players.player)
        row, scores = found.players.row.repeat(2), found.scores.abs().repeat(2)
        source, destination = torch.cat([one, other]), torch.cat([other, one])
        real = self.game.graph.has_edges_between(source, destination)
        order = torch.argsort(row[real], stable=True)
        return EdgeScores(targets, *(part[real][order] for part in (row, source, destination, scores)))

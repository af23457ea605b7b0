"""LARA's scores of edges in the form of edge masks: |phi_hat| of an undirected edge, in both directions."""

import torch

from dgl_lara.baselines.common.edge_masks import EdgeScores
from dgl_lara.game.game import Game
from dgl_lara.lara import LARA


class LaraEdges:
    """LARA with edges as players, fitted on the explained targets as PGExplainer is."""

    name = "lara"

    def __init__(self, game, config, validation):
        inputs = (game.f, game.graph, game.features, game.task, game.hops, game.value)
        self.game = Game.create(*inputs, memory=game.budget.memory, players="edges")
        self.lara, self.validation = LARA.of_game(self.game, config), validation

    def fit(self, targets):
        self.lara.fit(targets, self.validation)

    def explain_edges(self, targets):
        explanations = self.lara.explain(targets)
        one, other = self.game.player_set.endpoints(explanations.players.player)
        row, scores = explanations.players.row.repeat(2), explanations.scores.abs().repeat(2)
        source, destination = torch.cat([one, other]), torch.cat([other, one])
        exists = self.game.graph.has_edges_between(source, destination)
        order = torch.argsort(row[exists], stable=True)
        return EdgeScores(targets, *(column[exists][order] for column in (row, source, destination, scores)))

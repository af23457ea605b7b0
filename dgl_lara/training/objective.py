"""Alg. 1, line 11: what moves g. An objective is one file in `objectives/`: a loss over one `Step`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dgl_lara.attribution.monte_carlo import signed
from dgl_lara.explainer.network import Explainer, pair_scores
from dgl_lara.game.game import Game
from dgl_lara.game.players import Players, find
from dgl_lara.training.attribution_table import AttributionTable
from dgl_lara.training.coalitions import CoalitionBatch
from dgl_lara.training.subgraphs import Embedded


class Objective:
    every_class: ClassVar[bool] = False  # it can teach all classes from the same model calls

    def table(self, game: Game, targets: Tensor) -> AttributionTable | None:
        """What it keeps from step to step."""
        return None

    def loss(self, step: Step, table: AttributionTable | None) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Step:
    """One turn of Alg. 1: what f says of coalitions of a batch, and what g says of the batch."""

    game: Game
    explainer: Explainer
    coalitions: CoalitionBatch
    embedded: Embedded

    @property
    def targets(self) -> Tensor:
        return self.coalitions.targets

    @property
    def classes(self) -> Tensor:
        """(num_targets,) the explained class of each."""
        return self.game.explained_class[self.targets]

    def of_explained_class(self, values: Tensor) -> Tensor:
        """(num_masks, num_targets, 1) of values with classes last."""
        return values.gather(2, self.classes.expand(len(values), -1).unsqueeze(2))

    def differences(self) -> Tensor:
        """(num_masks, num_targets, num_classes): d(S), by f."""
        return self.coalitions.differences(self.game.value)

    def predicted_differences(self) -> Tensor:
        """(num_masks, num_targets, num_classes or 1): sum_j sigma_j phi_hat(j -> i, c), by g."""
        walked = self._on_the_whole_graph() if self._covers_everything else None
        return self._by_pairs() if walked is None else walked

    @property
    def _covers_everything(self) -> bool:
        return len(self.embedded.nodes) == len(self.coalitions.ids) == self.game.graph.num_nodes()

    def _on_the_whole_graph(self) -> Tensor | None:
        """Without pairs: <sum_j sigma_j w_d p_j^(d), t^(d)>, where the gate has a way to that sum."""
        g, here = self.explainer, self.embedded
        signs = signed(self.coalitions.keep).T
        sums = g.gate.signed_sums(here.graph, signs, here.p, g.config.terms, self.targets)
        if sums is None:
            return None
        return ((sums * here.t.unsqueeze(1)) @ g.all_class_weights().T).transpose(0, 1)

    def _by_pairs(self) -> Tensor:
        """From explicit (target, player) pairs."""
        players, g, here = self.players(), self.explainer, self.embedded
        place, _ = find(players.player, here.nodes)
        products = g.pair_products(here.p[place], here.t[players.row], g.gate_weights(self.game.graph, players))
        scores = products @ g.all_class_weights().T  # (num_pairs, num_classes)
        sigma = self.coalitions.sigma(players.player)  # (num_masks, num_pairs)
        total = torch.zeros(len(sigma), len(players.targets), scores.shape[1], device=scores.device)
        return total.index_add(1, players.row, sigma.unsqueeze(2) * scores)

    def players(self) -> Players:
        return self.game.players(self.targets)

    def scores(self, players: Players) -> Tensor:
        """(num_pairs,) phi_hat of the explained class."""
        return local_scores(self.explainer, self.game, self.embedded, players)


def local_scores(
    explainer: Explainer, game: Game, embedded: Embedded, players: Players, classes: Tensor | None = None
) -> Tensor:
    """Eq. 6, 7 for players among the embedded nodes; of their targets' explained class, unless others are given."""
    t = explainer.for_class(embedded.t, game.explained_class[players.targets] if classes is None else classes)
    gate = explainer.gate_weights(game.graph, players)
    return pair_scores(explainer, embedded.p, t, players.among(embedded.nodes), gate)

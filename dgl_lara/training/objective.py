"""Alg. 1, line 11: what moves g. An objective is one file in `objectives/`: a loss over one `Step`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dgl_lara.explainer.decoder import PairBatch, on_all_sides
from dgl_lara.explainer.network import Explainer
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.training.coalitions import CoalitionBatch
from dgl_lara.training.running_mean_table import AttributionTable
from dgl_lara.training.subgraphs import SubgraphEmbeddings


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
    embedded: SubgraphEmbeddings

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

    def usable(self) -> Tensor | None:
        """(num_masks, num_targets) bool: the mask is a coalition for the target; None: all are."""
        return self.game.player_set.valid_masks(lambda players: self.coalitions.sigma(players) > 0, self.targets)

    def predicted_differences(self) -> Tensor:
        """(num_masks, num_targets, num_classes or 1): sum_j sigma_j phi_hat(j -> i, c), by g."""
        return self._along_the_edges() if self._can_walk else self._by_pairs()

    @property
    def _can_walk(self) -> bool:
        """Nodes of a mini-batch are listed as the paper does it; everybody else walks wherever the gate can."""
        if not self.explainer.gate.supports_propagation:
            return False
        if self.explainer.config.players != "nodes":
            return True
        return len(self.embedded.nodes) == len(self.coalitions.ids) == self.game.graph.num_nodes()

    def _along_the_edges(self) -> Tensor:
        """Without pairs: <sum over nodes v, players j of w_d sigma_j m_jv^(d), t^(d)>."""
        g, here, sides = self.explainer, self.embedded, self.game.task.endpoints(self.targets)
        held = g.form.held(g, self.game, here.graph, here.nodes, here.p, self.coalitions.sigma)
        arrived = g.gate.aggregate(here.graph, held, g.config.terms, lookup_sorted(torch.cat(sides), here.nodes)[0])
        met = [
            (sums * t.unsqueeze(1)) @ g.all_class_weights().T
            for sums, t in zip(arrived.chunk(len(sides)), here.t.chunk(len(sides), dim=1), strict=True)
        ]
        return sum(met[1:], met[0]).transpose(0, 1)

    def _by_pairs(self) -> Tensor:
        """From explicit (target, player) pairs."""
        players, g, here = self.players(), self.explainer, self.embedded
        products = on_all_sides(g.form.products, g, PairBatch(self.game, players, here.p, here.t, here.nodes))
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
    explainer: Explainer, game: Game, embedded: SubgraphEmbeddings, players: Players, query: ClassQuery | None = None
) -> Tensor:
    """Eq. 6, 7 for players among what is embedded; of their targets' explained class, unless others are given."""
    t = explainer.for_class(embedded.t, query or game.query(players.targets))
    return on_all_sides(explainer.form.scores, explainer, PairBatch(game, players, embedded.p, t, embedded.nodes))

"""Algorithm 1, line 11: what g minimises. An objective is one file in `objectives/`, a loss over one `Step`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from dgl_lara.explainer.decoder import PairBatch, sum_over_endpoints
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.training.running_mean_table import AttributionTable

if TYPE_CHECKING:
    from dgl_lara.explainer.network import Explainer
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players
    from dgl_lara.game.values import ClassQuery
    from dgl_lara.training.coalitions import CoalitionBatch
    from dgl_lara.training.subgraphs import SubgraphEmbeddings


class Objective:
    """A loss over one step of training."""

    every_class: ClassVar[bool] = False  # it can train all classes without further model calls
    needs_uniform_coalitions: ClassVar[bool] = False  # it is for Banzhaf values only
    keeps_table: ClassVar[bool] = False  # it keeps a number per (target, player) pair between steps

    def table(self, game: Game, targets: Tensor) -> AttributionTable | None:
        """Return what the objective keeps between steps, or None."""
        return AttributionTable(game, targets) if self.keeps_table else None

    def loss(self, step: Step, table: AttributionTable | None) -> Tensor:
        """Compute the loss of a step."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Step:
    """One iteration of Algorithm 1: f's outputs under coalitions of a batch, and g's embeddings of the batch."""

    game: Game
    explainer: Explainer
    coalitions: CoalitionBatch
    embedded: SubgraphEmbeddings

    @property
    def targets(self) -> Tensor:
        return self.coalitions.targets

    @property
    def classes(self) -> Tensor:
        """Return (num_targets,) the explained class of each target."""
        return self.game.explained_class[self.targets]

    def of_explained_class(self, values: Tensor) -> Tensor:
        """Select (num_masks, num_targets, 1) from values with classes last."""
        return values.gather(2, self.classes.expand(len(values), -1).unsqueeze(2))

    def responses(self) -> Tensor:
        """Return (num_masks, num_targets, num_classes): y, by f."""
        return self.coalitions.responses()

    def usable(self) -> Tensor | None:
        """Return (num_masks, num_targets) bool, whether a mask is a coalition for a target. None means always."""
        return self.game.player_set.valid_masks(self.coalitions.contains, self.targets)

    def predicted_responses(self) -> Tensor:
        """Return (num_masks, num_targets, num_classes or 1): sum_j z_j phi_hat(j -> i, c), by g."""
        return self._along_the_edges() if self._can_propagate else self._by_pairs()

    @property
    def _can_propagate(self) -> bool:
        """Return whether no list of pairs is needed. Nodes of a mini-batch are listed, as in the paper."""
        if not self.explainer.gate.supports_propagation:
            return False
        covers_graph = len(self.embedded.nodes) == len(self.coalitions.ids) == self.game.graph.num_nodes()
        return covers_graph or self.explainer.config.players != "nodes"

    def _along_the_edges(self) -> Tensor:
        """Compute <sum over nodes v, players j of w_d z_j m_jv^(d), t^(d)> by propagation."""
        g, subgraph, sides = self.explainer, self.embedded, self.game.task.endpoints(self.targets)
        messages = g.decoder.signed_messages(
            g, self.game, subgraph.graph, subgraph.nodes, subgraph.p, self.coalitions.design
        )
        ends = lookup_sorted(torch.cat(sides), subgraph.nodes)[0]
        sums = g.gate.aggregate(subgraph.graph, messages, g.config.terms, ends)
        by_side = [
            (side_sums * t.unsqueeze(1)) @ g.all_class_weights().T
            for side_sums, t in zip(sums.chunk(len(sides)), subgraph.t.chunk(len(sides), dim=1), strict=True)
        ]
        return sum(by_side[1:], by_side[0]).transpose(0, 1)

    def _by_pairs(self) -> Tensor:
        """Compute the sums from explicit (target, player) pairs."""
        players, g, subgraph = self.players(), self.explainer, self.embedded
        pairs = PairBatch(self.game, players, subgraph.p, subgraph.t, subgraph.nodes)
        scores = (
            sum_over_endpoints(g.decoder.pair_terms, g, pairs) @ g.all_class_weights().T
        )  # (num_pairs, num_classes)
        z = self.coalitions.design(players.player)  # (num_masks, num_pairs)
        total = torch.zeros(len(z), len(players.targets), scores.shape[1], device=scores.device)
        return total.index_add(1, players.row, z.unsqueeze(2) * scores)

    def players(self) -> Players:
        return self.game.players(self.targets)

    def scores(self, players: Players) -> Tensor:
        """Return (num_pairs,) phi_hat of the explained class."""
        return local_scores(self.explainer, self.game, self.embedded, players)


def local_scores(
    explainer: Explainer, game: Game, embedded: SubgraphEmbeddings, players: Players, query: ClassQuery | None = None
) -> Tensor:
    """Compute the scores of Eq. 6 and 7 from the embeddings of a subgraph.

    Args:
        explainer: g.
        game: The game of the players.
        embedded: The embeddings of all targets and players.
        players: (target, player) pairs.
        query: The class of each target. None means the explained one.

    Returns:
        (num_pairs,) scores.
    """
    t = explainer.for_class(embedded.t, query or game.query(players.targets))
    return sum_over_endpoints(
        explainer.decoder.scores, explainer, PairBatch(game, players, embedded.p, t, embedded.nodes)
    )

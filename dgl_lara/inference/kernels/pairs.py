"""The kernel for all cases: scores of explicit (target, player) pairs, on any device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from torch import Tensor

from dgl_lara.attribution.efficiency import complete
from dgl_lara.explainer.decoder import PairBatch

if TYPE_CHECKING:
    from dgl_lara.explainer.network import Explainer
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players

TopLists: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]  # players, scores and hops, (num_targets, top) each


class PairKernel:
    """Scores of the players of some targets, from p of all nodes and t of these targets."""

    def __init__(self, explainer: Explainer, game: Game, source: Any) -> None:
        """Store what all targets share. `source` is p, one row for each node."""
        self.explainer, self.game, self.source = explainer, game, source

    @staticmethod
    def supports(explainer: Explainer, game: Game) -> bool:
        """Return whether this kernel can score these players."""
        return True

    def scores(self, targets: Tensor, t: Tensor) -> tuple[Players, Tensor]:
        """Return the players of the targets, and one score for each (target, player) pair.

        Args:
            targets: (num_targets,) ids.
            t: (num_targets, width) target embeddings, weighted by class.
        """
        players = self.game.players(targets)
        return players, self.explainer.decoder.scores(self.explainer, PairBatch(self.game, players, self.source, t))

    def top(self, targets: Tensor, t: Tensor, top: int) -> TopLists:
        """Return the best players of each target, best first. Missing players are -1."""
        player, score, hop = empty_lists(len(targets), top)
        for rows in self.game.chunks(targets):
            players, scores = self.scores(targets[rows], t[rows])
            rank = players.rank(scores)
            best = rank < top
            index = (players.row[best] + rows.start).cpu().numpy(), rank[best].cpu().numpy()
            player[index] = players.player[best].cpu().numpy()
            score[index] = scores[best].cpu().numpy()
            hop[index] = players.hop[best].cpu().numpy()
        return player, score, hop


class EndpointSum(PairKernel):
    """Scores of targets that consist of several nodes: the sum of the scores seen from each node."""

    def __init__(self, kernel: PairKernel, game: Game) -> None:
        self.kernel, self.game = kernel, game

    def scores(self, targets: Tensor, t: Tensor) -> tuple[Players, Tensor]:
        def score(_: Game, nodes: Tensor, t: Tensor, players: Players | None) -> tuple[Players, Tensor]:
            return self.kernel.scores(nodes, t)

        return self.game.task.sum_over_endpoints(self.game, targets, t, score)


class AddingUp(PairKernel):
    """Scores that are shifted to add up to f(N) - f(no player), for the predicted classes."""

    def __init__(self, kernel: PairKernel, game: Game) -> None:
        self.kernel, self.game = kernel, game

    def scores(self, targets: Tensor, t: Tensor) -> tuple[Players, Tensor]:
        players, scores = self.kernel.scores(targets, t)
        return players, complete(self.game, players, self.game.query(targets), scores)


def empty_lists(num_targets: int, top: int) -> TopLists:
    """Return lists of players (all -1), scores and hops."""
    shape = (num_targets, top)
    return np.full(shape, -1, np.int64), np.zeros(shape, np.float32), np.zeros(shape, np.int8)

"""Which weights of g to keep: agreement on validation targets, judged in one of two ways.

By phi where an estimate of it is affordable. On graphs with thousands of players a target it is not; there g is
judged by what it teaches itself with, but on coalitions and targets it never learned from: how much of the
variation of d(S) the sums of its scores explain. Both order explainers alike, because E[sigma sigma^T] = I.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from dgl_lara.attribution.monte_carlo import Estimate, least_squares, shared_least_squares
from dgl_lara.attribution.r_squared import corrected_r_squared
from dgl_lara.explainer.network import Explainer, pair_scores
from dgl_lara.game.game import Game
from dgl_lara.game.players import Neighborhood, find
from dgl_lara.training.coalitions import Lesson, teach
from dgl_lara.training.losses import View, embed, predicted_differences
from dgl_lara.utils.randomness import generator

TARGETS, PAIRS, COALITIONS = 128, 512, 4
SMALL_GRAPH = 20_000  # nodes
AFFORDABLE = 100_000  # walks that end at the validation targets, each to be evaluated 2 * PAIRS times


@dataclass(frozen=True, eq=False)
class ByPhi:
    """R squared with phi, corrected for the noise of its estimate."""

    name: ClassVar[str] = "R2 with phi"
    players: Neighborhood
    estimate: Estimate

    def score(self, explainer: Explainer, game: Game, view: View) -> float:
        players = self.players
        with torch.no_grad():
            p, t, nodes = embed(explainer, game, view, players.targets, everything=False)
            local = replace(players, player=find(players.player, nodes)[0], num_nodes=len(nodes))
            t = explainer.for_class(t, game.explained_class[players.targets])
            scores = pair_scores(explainer, p, t, local, explainer.gate(game.graph, players))
        return corrected_r_squared(scores, self.estimate)


@dataclass(frozen=True, eq=False)
class ByCoalitions:
    """The share of d(S)'s variation that the scores explain, for the explained class."""

    name: ClassVar[str] = "share of f's variation under unseen coalitions that the scores explain"
    lesson: Lesson

    def score(self, explainer: Explainer, game: Game, view: View) -> float:
        lesson = self.lesson
        wanted = lesson.differences(game)
        classes = game.explained_class[lesson.targets].expand(len(wanted), -1).unsqueeze(2)
        with torch.no_grad():
            embedded = embed(explainer, game, view, lesson.targets, everything=True)
            predicted = predicted_differences(explainer, game, view, lesson, *embedded)
        if explainer.class_weight is not None:
            predicted = predicted.gather(2, classes)
        wanted = wanted.gather(2, classes)
        return 1 - float((wanted - predicted).square().sum() / wanted.square().sum().clamp(min=1e-12))


def make_judge(game: Game, targets: Tensor, seed: int) -> ByPhi | ByCoalitions:
    """On small graphs the masks of phi's estimate are shared by all validation targets."""
    drawn = generator(seed + 77)
    chosen = targets[torch.randperm(len(targets), generator=drawn)[:TARGETS].to(targets.device)].sort().values
    small = game.graph.num_nodes() < SMALL_GRAPH
    if game.task == "node" and not small and float(game.work[chosen].sum()) > AFFORDABLE:
        return ByCoalitions(teach(game, chosen, COALITIONS, drawn, everything=True))
    players = game.players(chosen)
    estimate = shared_least_squares if game.task == "node" and small else least_squares
    return ByPhi(players, estimate(game, players, PAIRS, drawn))

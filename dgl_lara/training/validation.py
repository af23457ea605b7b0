"""Which weights of g to keep: agreement on validation targets, judged in one of two ways.

By phi where an estimate of it is affordable. On graphs with thousands of players a target it is not; there g is
judged by what it teaches itself with, but on coalitions and targets it never learned from: how much of the
variation of d(S) the sums of its scores explain. Both order explainers alike, because E[sigma sigma^T] = I.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from dgl_lara._util.randomness import generator
from dgl_lara.attribution.monte_carlo import (
    Estimate,
    Samples,
    sample,
    sample_shared,
    split_half_estimate,
    unbiased_each,
)
from dgl_lara.attribution.r_squared import corrected_r_squared, is_clear
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.network import Explainer
from dgl_lara.game.game import Game
from dgl_lara.training.coalition_pool import CoalitionPool
from dgl_lara.training.coalitions import CoalitionBatch, evaluate_coalitions
from dgl_lara.training.objective import Step, local_scores
from dgl_lara.training.subgraphs import FullGraph, NeighborSubgraphs

TARGETS, PAIRS, COALITIONS = 128, 512, 4
FEWEST_PAIRS, WORK = 128, 200_000_000  # edges and nodes that the pairs of passes over the whole graph may meet
SMALL_GRAPH = 20_000  # nodes
AFFORDABLE = 100_000  # walks that end at the validation targets, each to be evaluated 2 * PAIRS times


@dataclass(frozen=True, eq=False)
class AttributionValidator:
    """R squared with phi, the noise of the samples taken out."""

    name: ClassVar[str] = "R2 with the true attribution phi over all players, 1 is perfect"
    subgraphs: NeighborSubgraphs
    samples: Samples

    @cached_property
    def estimate(self) -> Estimate:
        half = len(self.samples.d) // 2
        if self.samples.enough:
            return unbiased_each(self.samples)
        return split_half_estimate(self.samples.part(slice(half)), self.samples.part(slice(half, None)))

    @cached_property
    def is_clear(self) -> bool:
        return is_clear(self.estimate, self.subgraphs.game.min_resolvable)

    def score(self, explainer: Explainer) -> float:
        """Where phi is nothing but noise there is no R squared: then the error against the size of f's values, which
        orders explainers as well."""
        scores = self._scores(explainer)
        if self.is_clear:
            return corrected_r_squared(scores, self.estimate)
        error = (scores - self.estimate.phi).square().mean() - self.estimate.error.square().mean()
        return 1 - float(error) / self.subgraphs.game.value_scale**2

    def score_of_neighbours(self, explainer: Explainer) -> float | None:
        """Without the targets' own phi, by far the largest; None where nobody is a target and a player, NaN where the
        neighbours' phi is nothing but noise."""
        others = ~self.samples.own
        if others.all() or not others.any():
            return None
        estimate = Estimate(self.estimate.phi[others], self.estimate.error[others])
        if not is_clear(estimate, self.subgraphs.game.min_resolvable):
            return math.nan
        return corrected_r_squared(self._scores(explainer)[others], estimate)

    def _scores(self, explainer: Explainer) -> Tensor:
        players = self.samples.players
        with torch.no_grad():
            embedded = self.subgraphs.embed(explainer, players.targets)
            return local_scores(explainer, self.subgraphs.game, embedded, players)


@dataclass(frozen=True, eq=False)
class CoalitionValidator:
    """The share of d(S)'s variation that the scores explain, for the explained class."""

    name: ClassVar[str] = "share of the model's variation under unseen coalitions that the scores explain, 1 is perfect"
    samples: ClassVar[None] = None  # too few to say anything of phi
    subgraphs: FullGraph
    coalitions: CoalitionBatch

    def score(self, explainer: Explainer) -> float:
        with torch.no_grad():
            embedded = self.subgraphs.embed(explainer, self.coalitions.targets)
            step = Step(self.subgraphs.game, explainer, self.coalitions, embedded)
            predicted, wanted = step.predicted_differences(), step.of_explained_class(step.differences())
        if explainer.class_weight is not None:
            predicted = step.of_explained_class(predicted)
        usable = step.usable()
        if usable is not None:
            wanted, predicted = wanted * usable.unsqueeze(2), predicted * usable.unsqueeze(2)
        return 1 - float((wanted - predicted).square().sum() / wanted.square().sum().clamp(min=1e-12))


def make_judge(
    game: Game, seen: EncoderGraph, targets: Tensor, seed: int, pool: CoalitionPool | None = None
) -> AttributionValidator | CoalitionValidator:
    """On small graphs the masks of phi's estimate are shared by all validation targets. A pool of as many masks serves,
    unless it teaches g about one of them."""
    drawn = generator(seed + 77)
    chosen = _some(targets, drawn)
    small = game.graph.num_nodes() < SMALL_GRAPH
    share = game.task.has_distances and game.player_set.supports_shared_masks
    if share and not small and float(game.cost_bound[chosen].sum()) > AFFORDABLE:
        whole = FullGraph(game, seen)
        return CoalitionValidator(whole, evaluate_coalitions(game, whole.batch(chosen), COALITIONS, drawn))
    # a judge may not cost more than the training: on a dense graph fewer coalitions must do
    pairs = min(PAIRS, max(FEWEST_PAIRS, WORK // (game.graph.num_nodes() + game.graph.num_edges())))
    draw, pairs = (sample_shared, pairs) if share and small else (sample, PAIRS)
    if pool and pool.pairs >= pairs and not pool.teaches(chosen):
        return AttributionValidator(NeighborSubgraphs(game, seen), pool.samples(game.players(chosen)))
    return AttributionValidator(NeighborSubgraphs(game, seen), draw(game, game.players(chosen), pairs, drawn))


def validation_subset(targets: Tensor, seed: int) -> Tensor:
    """Those that `make_judge` would choose."""
    return _some(targets, generator(seed + 77))


def _some(targets: Tensor, drawn: torch.Generator) -> Tensor:
    return targets[torch.randperm(len(targets), generator=drawn)[:TARGETS].to(targets.device)].sort().values

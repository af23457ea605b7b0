"""How training selects the best weights of g: by agreement on validation targets, measured in one of two ways.

If an estimate of phi is affordable, agreement is R squared with phi. On graphs with thousands of players per target it
is the share of the responses' variance that the scores explain, for coalitions and targets that g was not trained on.
Both rank explainers alike, because E[z z^T] = I.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch
from torch import Tensor

from dgl_lara._util.randomness import generator
from dgl_lara.attribution.efficiency import add_up
from dgl_lara.attribution.monte_carlo import (
    Estimate,
    Samples,
    sample,
    sample_shared,
    split_half_estimate,
    unbiased_each,
)
from dgl_lara.attribution.r_squared import corrected_r_squared, is_clear
from dgl_lara.training.coalitions import CoalitionBatch, evaluate_coalitions
from dgl_lara.training.objective import Step, local_scores
from dgl_lara.training.subgraphs import FullGraph, NeighborSubgraphs

if TYPE_CHECKING:
    from dgl_lara.explainer.encoder import EncoderGraph
    from dgl_lara.explainer.network import Explainer
    from dgl_lara.game.game import Game
    from dgl_lara.training.coalition_pool import CoalitionPool

TARGETS = 128
PAIRS, MIN_PAIRS = 512, 128  # of coalitions, for the estimate of phi
COALITIONS = 4  # for the explained variance
MAX_PASS_SIZE = 200_000_000  # nodes and edges that the passes over the full graph may visit
SMALL_GRAPH_NODES = 20_000
MAX_WALKS = 100_000  # that end at the validation targets. Each is evaluated 2 * PAIRS times


class Validator(Protocol):
    """Measures the agreement of g on validation targets."""

    @property
    def name(self) -> str: ...

    @property
    def samples(self) -> Samples | None: ...

    def score(self, explainer: Explainer) -> float: ...


@dataclass(frozen=True, eq=False)
class AttributionValidator:
    """R squared with phi, corrected for the noise of the samples."""

    name: ClassVar[str] = "R2 with the true attribution phi over all players, 1 is perfect"
    subgraphs: NeighborSubgraphs
    samples: Samples

    @cached_property
    def estimate(self) -> Estimate:
        half = len(self.samples.responses) // 2
        if self.samples.enough:
            return unbiased_each(self.samples)
        return split_half_estimate(self.samples.part(slice(half)), self.samples.part(slice(half, None)))

    @cached_property
    def is_clear(self) -> bool:
        return is_clear(self.estimate, self.subgraphs.game.min_resolvable)

    def score(self, explainer: Explainer) -> float:
        """Compute R squared. If phi is only noise, use the error relative to the size of f's values instead."""
        scores = self._scores(explainer)
        if self.is_clear:
            return corrected_r_squared(scores, self.estimate)
        error = (scores - self.estimate.phi).square().mean() - self.estimate.error.square().mean()
        return 1 - float(error) / self.subgraphs.game.value_scale**2

    def score_of_neighbours(self, explainer: Explainer) -> float | None:
        """Compute R squared without the targets' own phi, by far the largest.

        Returns:
            None if no target is a player, NaN if the neighbours' phi is only noise.
        """
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
            scores = local_scores(explainer, self.subgraphs.game, embedded, players)
        return scores if self.samples.total is None else add_up(scores, players, self.samples.total)


@dataclass(frozen=True, eq=False)
class CoalitionValidator:
    """The share of the responses' variance that the scores explain, for the explained class."""

    name: ClassVar[str] = "share of the model's variation under unseen coalitions that the scores explain, 1 is perfect"
    samples: ClassVar[None] = None  # too few for an estimate of phi
    subgraphs: FullGraph
    coalitions: CoalitionBatch

    def score(self, explainer: Explainer) -> float:
        with torch.no_grad():
            embedded = self.subgraphs.embed(explainer, self.coalitions.targets)
            step = Step(self.subgraphs.game, explainer, self.coalitions, embedded)
            predicted, responses = step.predicted_responses(), step.of_explained_class(step.responses())
        if explainer.class_weight is not None:
            predicted = step.of_explained_class(predicted)
        usable = step.usable()
        if usable is not None:
            responses, predicted = responses * usable.unsqueeze(2), predicted * usable.unsqueeze(2)
        return 1 - float((responses - predicted).square().sum() / responses.square().sum().clamp(min=1e-12))


def make_validator(
    game: Game, encoder_graph: EncoderGraph, targets: Tensor, seed: int, pool: CoalitionPool | None = None
) -> AttributionValidator | CoalitionValidator:
    """Evaluate f for validation targets and return the validator that is affordable.

    On small graphs all targets share the masks of phi's estimate. They come from the pool if it is large enough and g
    is not trained on a validation target.

    Args:
        game: The game of the targets.
        encoder_graph: The input of g.
        targets: Validation targets, of which some are drawn.
        seed: Seed of the draws.
        pool: Coalitions under which f was evaluated already.
    """
    drawn = generator(seed + 77)
    targets = _draw_targets(targets, drawn)
    small = game.graph.num_nodes() < SMALL_GRAPH_NODES
    shared = game.shares_masks
    if shared and not small and float(game.cost_bound[targets].sum()) > MAX_WALKS:
        full = FullGraph(game, encoder_graph)
        return CoalitionValidator(full, evaluate_coalitions(game, full.batch(targets), COALITIONS, drawn))
    # validation may not cost more than training: on a dense graph fewer coalitions must do
    pairs = min(PAIRS, max(MIN_PAIRS, MAX_PASS_SIZE // (game.graph.num_nodes() + game.graph.num_edges())))
    draw, pairs = (sample_shared, pairs) if shared and small else (sample, PAIRS)
    subgraphs, players = NeighborSubgraphs(game, encoder_graph), game.players(targets)
    if pool and pool.pairs >= pairs and not pool.overlaps(targets):
        return AttributionValidator(subgraphs, pool.samples(players))
    return AttributionValidator(subgraphs, draw(game, players, pairs, drawn))


def validation_subset(targets: Tensor, seed: int) -> Tensor:
    """Return the targets that `make_validator` draws."""
    return _draw_targets(targets, generator(seed + 77))


def _draw_targets(targets: Tensor, drawn: torch.Generator) -> Tensor:
    return targets[torch.randperm(len(targets), generator=drawn)[:TARGETS].to(targets.device)].sort().values

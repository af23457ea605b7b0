"""Evaluation of a run by one metric after another: LARA, `random` (the lower bound) and `sampled` (the reference)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import pandas as pd
import torch
from torch import Tensor

from dgl_lara._util.notices import notice
from dgl_lara._util.progress import phase
from dgl_lara.baselines.random import Random
from dgl_lara.baselines.sampled import Sampled
from dgl_lara.errors import message
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.inference.local import explain_nearby, game_nearby
from dgl_lara.inference.scorer import Scorer, embed_all
from dgl_lara.lara import LARA
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.common.metric import EvalCase
from dgl_lara.metrics.throughput import speed

MAX_SAMPLED_NODES = 300_000_000  # that the method `sampled` may evaluate
MAX_NEARBY_TARGETS = 1_000  # the neighbourhoods of more targets are most of the graph


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A trained LARA, and what it is evaluated on.

    Args:
        lara: The trained LARA.
        case: Game, targets and ground truth.
        pairs: Coalition pairs of `sampled`. 0 leaves it out, None means the default of the task.
        costs: Nodes that f evaluated for one explanation, by method.
    """

    lara: LARA
    case: EvalCase
    pairs: int | None = None
    costs: dict[str, float] = field(default_factory=dict)

    def cost_text(self) -> str:
        """Return how many nodes f evaluated, once the explanations are computed."""
        parts = [f"{label} {cost:,.0f}" for label, cost in self.costs.items()]
        if self.lara.cost_ is not None:
            targets = f"{self.case.game.num_targets:,} {self.case.game.task}s"
            parts.append(message("evaluation.cost_of_lara", cost=self.lara.cost_, targets=targets))
        return message("evaluation.cost", methods=", ".join(parts)) if parts else ""

    @cached_property
    def explanations(self) -> list[Explanations]:
        """Explain the targets by every method. LARA's explanations come last."""
        game, targets, seed = self.case.game, self.case.targets, self.case.seed
        results = [Random(game, seed).explain(targets)]
        sampled = Sampled(game, seed, self.pairs)
        cost = 2 * sampled.pairs * int(game.players(targets).counts.sum())
        if cost > MAX_SAMPLED_NODES:
            notice("evaluation.sampled_left_out", method=sampled.label, nodes=cost)
        elif sampled.pairs:
            before = game.caller.nodes_evaluated
            with phase(sampled.label):
                results.append(sampled.explain(targets))
            self.costs[sampled.label] = (game.caller.nodes_evaluated - before) / len(targets)
        scores = Scorer(self.lara.explainer_, game, self.lara.embed()).explain(targets)
        amortised = self.lara.fitted.with_errors(scores, correct=False)
        if self.lara.samples_ is None:
            return [*results, amortised]
        return [*results, replace(amortised, method="lara, amortised"), self.lara.fitted.with_errors(amortised)]


def evaluate(evaluation: Evaluation, name: str) -> pd.DataFrame:
    """Compute the table of one metric.

    Args:
        evaluation: The trained LARA and the targets.
        name: Name of the metric.

    Returns:
        A table with a column `method`. It is empty if the metric is unavailable.
    """
    metric = METRICS[name]
    if metric.measures_speed:
        return _speed(evaluation)
    if metric.unavailable(evaluation.case) is not None:
        return pd.DataFrame()
    tables = {}
    for explanations in evaluation.explanations:
        with phase(f"{name} of {explanations.method}"):
            tables[explanations.method] = metric.table(evaluation.case, explanations)
    return _concatenate(tables)


def _concatenate(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    for method, table in tables.items():
        table.insert(0, "method", method)
    return pd.concat(tables.values(), ignore_index=True)


def _speed(evaluation: Evaluation) -> pd.DataFrame:
    """Time LARA from the bare graph on, for a few targets from their neighbourhoods, and from stored embeddings."""
    lara, game = evaluation.lara, evaluation.case.game
    explainer, inputs, stored = lara.explainer_, lara.config_.inputs, lara.embed()
    every_target, first = torch.arange(game.num_targets, device=game.features.device), evaluation.case.targets
    targets = torch.cat([first, every_target[~torch.isin(every_target, first)]])

    def from_scratch(some: Tensor) -> Explanations:
        data = (game.f, game.graph, game.features, game.task, game.hops, game.value)
        bare = Game.create(*data, memory=game.budget.memory, players=game.player_spec, index=game.index)
        return Scorer(explainer, bare, embed_all(explainer, bare, inputs)).explain(some)

    def nearby(some: Tensor) -> Explanations:
        data = (game.f, game.graph, game.features, some, explainer, game.value, game.budget.memory)
        return explain_nearby(explainer, game_nearby(*data, game.player_spec), inputs, some)

    tables = {"lara, from scratch": speed(from_scratch, targets)}
    if game.task.nearby_nodes(game.graph, targets[:1], game.hops) is not None:
        tables["lara, from scratch, nearby"] = speed(nearby, targets[:MAX_NEARBY_TARGETS])
    tables["lara, embeddings stored"] = speed(lambda some: Scorer(explainer, game, stored).explain(some), targets)
    return _concatenate(tables)

"""Evaluating a run: LARA beside `random` (the floor) and `sampled` (the per-instance reference), metric by metric."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import pandas as pd
import torch
from torch import Tensor

from dgl_lara._util.progress import log_info, phase
from dgl_lara.baselines.random import Random
from dgl_lara.baselines.sampled import Sampled
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.inference.local import explain_nearby, game_nearby
from dgl_lara.inference.scorer import Scorer, embed_all
from dgl_lara.lara import LARA
from dgl_lara.metrics import METRICS
from dgl_lara.metrics.common.metric import EvalCase
from dgl_lara.metrics.throughput import speed

AFFORDABLE = 300_000_000  # evaluated nodes that the `sampled` row may cost
FEW = 1_000  # targets; the surroundings of more are most of the graph


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A trained LARA, and what it is judged on."""

    lara: LARA
    case: EvalCase
    pairs: int | None = None  # coalition pairs of the `sampled` row; 0: leave it out; None: the usual number
    costs: dict[str, float] = field(default_factory=dict)  # method -> nodes that f was given for each explanation

    def cost_in_words(self) -> str:
        """What f had to do, once the explanations are made."""
        spent = [f"{label} {cost:,.0f}" for label, cost in self.costs.items()]
        if self.lara.cost_ is not None:
            shared = f"in training, shared by all {self.case.game.num_targets:,} {self.case.game.task}s"
            spent.append(f"lara {self.lara.cost_:,.0f} ({shared}), none after it")
        return f"nodes that the model was given, for each explanation: {'; '.join(spent)}" if spent else ""

    @cached_property
    def explanations(self) -> list[Explanations]:
        """Of every method, on the same targets; made once for all metrics. LARA's come last."""
        game, targets, seed = self.case.game, self.case.targets, self.case.seed
        results = [Random(game, seed).explain(targets)]
        sampled = Sampled(game, seed, self.pairs)
        cost = 2 * sampled.pairs * int(game.players(targets).counts.sum())
        if cost > AFFORDABLE:
            log_info(f"{sampled.label} is left out, it would evaluate {cost:,} nodes; lower --targets or --pairs.")
        elif sampled.pairs:
            before = game.caller.nodes_evaluated
            with phase(sampled.label):
                results.append(sampled.explain(targets))
            self.costs[sampled.label] = (game.caller.nodes_evaluated - before) / len(targets)
        amortised = self.lara.trusted(
            Scorer(self.lara.explainer_, game, self.lara.embed()).explain(targets), correct=False
        )
        if self.lara.samples_ is None:
            return [*results, amortised]
        return [*results, replace(amortised, method="lara, amortised"), self.lara.trusted(amortised)]


def evaluate(subject: Evaluation, name: str) -> pd.DataFrame:
    """One table, with a column `method`; empty where the metric cannot be had."""
    metric = METRICS[name]
    if metric.measures_speed:
        return _speed(subject)
    if metric.unavailable(subject.case) is not None:
        return pd.DataFrame()
    tables = {}
    for explanations in subject.explanations:
        with phase(f"{name} of {explanations.method}"):
            tables[explanations.method] = metric.table(subject.case, explanations)
    return _below_each_other(tables)


def _below_each_other(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    for method, table in tables.items():
        table.insert(0, "method", method)
    return pd.concat(tables.values(), ignore_index=True)


def _speed(subject: Evaluation) -> pd.DataFrame:
    """With everything from the bare graph on (f, the pass of g, the scores); the same for a few nodes, on their
    surroundings alone; and with p and t at hand."""
    lara, game = subject.lara, subject.case.game
    explainer, inputs, stored = lara.explainer_, lara.config_.inputs, lara.embed()
    everyone, asked = torch.arange(game.num_targets, device=game.features.device), subject.case.targets
    targets = torch.cat([asked, everyone[~torch.isin(everyone, asked)]])

    def from_scratch(some: Tensor) -> Explanations:
        where = (game.f, game.graph, game.features, game.task, game.hops, game.value)
        bare = Game.create(*where, memory=game.budget.memory, players=game.player_spec)
        return Scorer(explainer, bare, embed_all(explainer, bare, inputs)).explain(some)

    def nearby(some: Tensor) -> Explanations:
        where = (game.f, game.graph, game.features, some, explainer, game.value, game.budget.memory)
        near = game_nearby(*where, game.player_spec)
        return explain_nearby(explainer, near, inputs, some)

    tables = {"lara, from scratch": speed(from_scratch, targets)}
    if game.task.has_distances:
        tables["lara, from scratch, nearby"] = speed(nearby, targets[:FEW])
    tables["lara, embeddings stored"] = speed(lambda some: Scorer(explainer, game, stored).explain(some), targets)
    return _below_each_other(tables)

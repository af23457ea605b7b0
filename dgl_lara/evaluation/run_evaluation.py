"""Evaluating a run: LARA beside `random` (the floor) and `sampled` (the per-instance reference), metric by metric."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd
import torch
from torch import Tensor

from dgl_lara.baselines.random import Random
from dgl_lara.baselines.sampled import Sampled
from dgl_lara.explainer.network import Explainer
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.inference.scores import embed_all, explain, explain_apart
from dgl_lara.metrics.agreement import agreement, reference
from dgl_lara.metrics.auc import auc
from dgl_lara.metrics.fidelity import fidelity
from dgl_lara.metrics.speed import speed
from dgl_lara.utils.progress import say

AFFORDABLE = 300_000_000  # evaluated nodes that the `sampled` row may cost
FEW = 1_000  # targets; the surroundings of more are most of the graph


@dataclass(frozen=True, eq=False)
class Subject:
    """What is evaluated, on which targets."""

    game: Game
    explainer: Explainer
    inputs: str
    targets: Tensor
    motif: Tensor | None
    pairs: int  # coalition pairs of the `sampled` row; 0: leave it out
    reference_pairs: int
    seed: int

    @cached_property
    def explanations(self) -> list[Explanations]:
        """Of every method, on the same targets; made once for all metrics."""
        game, targets = self.game, self.targets
        embeddings = embed_all(self.explainer, game, self.inputs)
        results = [Random(game, self.seed).explain(targets)]
        cost = 2 * self.pairs * int(game.players(targets).counts.sum())
        if self.pairs and cost <= AFFORDABLE:
            results.append(Sampled(game, self.seed, self.pairs).explain(targets))
        elif self.pairs:
            say(f"sampled {self.pairs} is left out, it would evaluate {cost:,} nodes; lower --targets or --pairs.")
        return [*results, explain(self.explainer, game, embeddings, targets)]


def evaluate(subject: Subject, metric: str) -> pd.DataFrame:
    """One table, with a column `method`."""
    if metric in ("throughput", "latency"):
        return _speed(subject)
    if metric == "auc" and subject.motif is None:
        return pd.DataFrame()
    tables = []
    against = (
        reference(subject.game, subject.targets, subject.reference_pairs, subject.seed)
        if metric == "agreement"
        else None
    )
    for explanations in subject.explanations:
        if metric == "fidelity":
            table = fidelity(subject.game, explanations)
        elif against is not None:
            table = pd.DataFrame([{**agreement(explanations, against), "reference": against.how}])
        elif subject.motif is not None:
            table = pd.DataFrame([auc(explanations, subject.motif)])
        table.insert(0, "method", explanations.method)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _speed(subject: Subject) -> pd.DataFrame:
    """With everything from the bare graph on (f, the pass of g, the scores); the same for a few nodes, on their
    surroundings alone; and with p and t at hand."""
    game, explainer = subject.game, subject.explainer
    stored = embed_all(explainer, game, subject.inputs)
    everyone = torch.arange(game.num_targets, device=subject.targets.device)
    targets = torch.cat([subject.targets, everyone[~torch.isin(everyone, subject.targets)]])

    def from_scratch(some: Tensor) -> Explanations:
        bare = Game(game.f, game.graph, game.features, game.task, game.hops, game.value)
        return explain(explainer, bare, embed_all(explainer, bare, subject.inputs), some)

    def nearby(some: Tensor) -> Explanations:
        return explain_apart(explainer, game.f, game.graph, game.features, game.value, subject.inputs, some)

    tables = {"lara, from scratch": speed(from_scratch, targets)}
    if game.task == "node":
        tables["lara, from scratch, nearby"] = speed(nearby, targets[:FEW])
    tables |= {
        "lara, embeddings stored": speed(lambda some: explain(explainer, game, stored, some), targets),
    }
    for method, table in tables.items():
        table.insert(0, "method", method)
    return pd.concat(tables.values(), ignore_index=True)

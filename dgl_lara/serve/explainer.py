"""One kind of players on one graph: g's embeddings where all workers share them, and explanations from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import dgl
import numpy as np
import orjson
import torch
from torch import Tensor

from dgl_lara.attribution.shared_samples import SharedSamples
from dgl_lara.explanation import SOURCES, Explanations
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.game import Game
from dgl_lara.inference.kernels.walk import WalkScorer
from dgl_lara.inference.scorer import Embeddings, can_compile, checked_query, explain_embedded, sum_over_endpoints
from dgl_lara.lara import LARA
from dgl_lara.serve.cache import CORRECTED, TOP, ExplanationCache, TopKRows, short
from dgl_lara.serve.ids import IdCodec, Json


def on_graph(of: LARA, graph: dgl.DGLGraph, features: Tensor, answer: Tensor) -> LARA:
    """The same g and what is known of its errors on a graph after an update; without samples, which are of the old one.
    `answer`: what f says of it."""
    game = of.game
    lara = LARA(game.f, graph, features, of.task, game.hops, of.value, of.config, of.memory, players=of.players)
    lara.explainer_, lara.config_, lara.errors_, lara.cost_ = of.explainer_, of.config_, of.errors_, of.cost_
    lara.game = Game(
        game.f, graph, features, game.task, game.hops, of.value, answer, memory=of.memory, players=of.players,
        context=game.context_hops,
    )  # fmt: skip
    return lara


class UnchangedSamples(SharedSamples):
    """What f said in training, of targets around which a graph has not changed since; it may have more nodes now."""

    def _as_many(self, game: Game) -> bool:
        return True

    def are_of_another(self, game: Game, targets: Tensor) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class ServedExplainer:
    """`source`: p by term where the compiled walk takes it, else as g gives it. `target`: t. `unchanged`: the targets
    of which the samples of training still speak; None: all."""

    lara: LARA
    source: Tensor | np.ndarray
    target: Tensor
    table: ExplanationCache
    called: IdCodec
    unchanged: Tensor | None = None

    @property
    def game(self) -> Game:
        return self.lara.game

    @cached_property
    def walks(self) -> WalkScorer:
        return WalkScorer(self.lara.explainer_, self.game, self.source)

    @cached_property
    def predicted(self) -> np.ndarray:
        """(num_targets,) the class that f predicts of each."""
        return self.game.explained_class[: self.game.num_targets].numpy()

    @cached_property
    def values(self) -> np.ndarray:
        """(num_targets,) the explained value of that class."""
        everyone = torch.arange(self.game.num_targets)
        return short(self.game.full_value_of(everyone, self.game.query(everyone)).numpy())

    @property
    def walked(self) -> bool:
        """By the compiled walk; one way for one target and for many, so that all give the same numbers."""
        return self.game.player_set.name == "nodes" and can_compile(self.lara.explainer_, self.game)

    def explain(self, targets: Tensor, query: ClassQuery | None = None) -> Iterator[tuple[Tensor, Explanations]]:
        """(places among the targets, their explanations), in pieces."""
        for rows in self.game.chunks(targets):
            places = torch.arange(rows.start, rows.stop)
            known = torch.ones(len(places), dtype=torch.bool)
            if self.unchanged is not None:
                known = self.unchanged[targets[rows]]
            for some, correct in ((places[known], True), (places[~known], False)):
                if len(some):
                    found = self._amortised(targets[some], None if query is None else query[some])
                    yield some, self.lara.trusted(found, correct)

    def _amortised(self, targets: Tensor, query: ClassQuery | None) -> Explanations:
        explainer, game = self.lara.explainer_, self.game
        if not self.walked:
            assert isinstance(self.source, Tensor)
            return explain_embedded(explainer, game, Embeddings(self.source, self.target), targets, query)
        query = checked_query(explainer, game, targets, query)
        scores_of = sum_over_endpoints(self.walks.scores, game)
        with torch.no_grad():
            t = explainer.for_class(game.task.target_embeddings(self.target, targets, None), query)
            players, scores = scores_of(targets, t)
        return Explanations(players, scores, query.classes, game.task, "lara", game, rather_than=query.versus)

    def one(self, target: int, classes: list[int]) -> Explanations:
        """Of a single target, for its class (`classes` empty), for another, or for one rather than another."""
        ((_, found),) = self.explain(torch.tensor([target]), ClassQuery.repeat(classes, 1))
        return found

    # --- from the table

    def best(self, targets: np.ndarray) -> TopKRows:
        """What it does not know yet is computed, and known from then on."""
        unknown = np.unique(self.table.unknown(targets))
        if len(unknown):
            self.compute(unknown)
        return self.table.read(targets)

    def compute(self, targets: np.ndarray) -> None:
        for places, found in self.explain(torch.from_numpy(targets)):
            best, some = TopKRows.of(found, TOP), targets[places.numpy()]
            self.table.fill(some, best, map(orjson.dumps, self.rows(some, best, [TOP] * len(some))))

    def rows(self, targets: np.ndarray, best: TopKRows, tops: list[int]) -> Iterator[Json]:
        """The explanation of each, with so many of its players, as it is sent."""
        figures = zip(
            targets.tolist(), self.predicted[targets].tolist(), self.values[targets].tolist(),
            best.confidence.tolist(), (best.state == CORRECTED).tolist(), np.minimum(best.kept, tops).tolist(),
            best.player.tolist(), best.hop.tolist(), best.score.tolist(), strict=True,
        )  # fmt: skip
        for target, explained, value, confidence, corrected, kept, players, hops, scores in figures:
            told = self._told(target, players[:kept])
            yield {
                "target": self.called.target(target),
                "class": explained,
                "value": value,
                "confidence": None if confidence != confidence else confidence,
                "source": SOURCES[corrected],
                "players": [
                    {**player, "hop": hop, "score": score}
                    for player, hop, score in zip(told, hops[:kept], scores[:kept], strict=True)
                ],
            }

    def _told(self, target: int, players: list[int]) -> list[Json]:
        """id and name of each."""
        task = self.game.task
        if self.game.player_set.name == "nodes" and task.has_distances:
            return [self.called.of_player(player, target) for player in players]
        every = self.game.players(torch.tensor([target]))
        classes = self.game.explained_class[every.targets]
        told = self.called.players(Explanations(every, torch.zeros(len(every.player)), classes, task, "", self.game))
        by_number: dict[int, Any] = dict(zip(every.player.tolist(), told, strict=True))
        return [by_number[player] for player in players]


def base_part(lara: LARA, table: ExplanationCache, called: IdCodec) -> ServedExplainer:
    """Of the graph that the run was trained on."""
    embeddings = lara.embed()
    part = ServedExplainer(lara, embeddings.source, embeddings.target, table, called)
    return replace(part, source=part.walks.source) if part.walked else part


def prepare(part: ServedExplainer) -> None:
    """What is made when first needed is made now: workers that are forked from here share it."""
    _ = part.predicted, part.values, part.game.cost_bound, part.walks if part.walked else None

"""Explanations of one player set on one graph, from embeddings that all workers share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import orjson
import torch
from torch import Tensor

from dgl_lara.attribution.shared_samples import SharedSamples
from dgl_lara.explainer.network import Embeddings
from dgl_lara.explanation import SOURCES, Explanations
from dgl_lara.game.game import Game, ModelOutputs
from dgl_lara.game.values import ClassQuery
from dgl_lara.graphs.graph import Graph
from dgl_lara.inference.kernels.walk import WalkKernel, by_term
from dgl_lara.inference.scorer import Scorer, fastest_kernel
from dgl_lara.lara import LARA
from dgl_lara.serve.cache import CORRECTED, TOP, ExplanationCache, TopKRows, round_digits
from dgl_lara.serve.ids import IdCodec, Json


def lara_on_updated_graph(lara: LARA, graph: Graph, features: Tensor, outputs: Tensor) -> LARA:
    """Return the trained explainer on a graph after updates, with the outputs of the model on that graph."""
    before = lara.game
    data = (before.f, graph, features, before.task, before.hops, lara.value)
    cached = ModelOutputs(outputs, context_hops=before.context_hops)
    game = Game.create(*data, players=lara.players, memory=lara.memory, known=cached, index=before.index)
    other = LARA.of_game(game, lara.config).with_fitted(lara.fitted.on_another_graph())
    samples = game.player_set.samples_after_update(lara.samples_)
    if samples is not None:
        other.with_samples(_UnchangedSamples(**vars(samples)))
    return other


class _UnchangedSamples(SharedSamples):
    """Samples from training, for targets that no update has affected. The graph may have more nodes now."""

    def _has_size_of(self, game: Game) -> bool:
        return self.law == game.index

    def are_of_another(self, game: Game, targets: Tensor) -> bool:
        return False


class ServedExplainer:
    """Explanations of one player set on one graph.

    Args:
        lara: Trained explainer on this graph.
        source: p, in the layout that `Explainer` returns.
        target: t of all targets.
        cache: Explanations that are computed already.
        ids: Ids and names for answers.
        unchanged: (num_targets,) bool, targets that the samples of training still correct. None means all of them.
    """

    def __init__(
        self, lara: LARA, source: Tensor, target: Tensor, cache: ExplanationCache, ids: IdCodec,
        unchanged: Tensor | None = None,
    ) -> None:  # fmt: skip
        self.lara, self.source, self.target, self.cache, self.ids = lara, source, target, cache, ids
        self.unchanged, self.game = unchanged, lara.game

    @cached_property
    def predicted(self) -> np.ndarray:
        """(num_targets,) the predicted classes."""
        return self.game.explained_class[: self.game.num_targets].numpy()

    @cached_property
    def values(self) -> np.ndarray:
        """(num_targets,) the explained values of the predicted classes."""
        targets = torch.arange(self.game.num_targets)
        return round_digits(self.game.full_value_of(targets, self.game.query(targets)).numpy())

    def _prepare(self) -> None:
        """Compute what is computed once, so that forked workers share it."""
        _ = self.predicted, self.values, self.game.cost_bound

    # --- computing

    def explain(self, targets: Tensor, query: ClassQuery | None = None) -> Iterator[tuple[Tensor, Explanations]]:
        """Yield explanations in chunks, each with the positions of its targets among `targets`."""
        for rows in self.game.chunks(targets):
            positions = torch.arange(rows.start, rows.stop)
            corrected = torch.ones(len(positions), dtype=torch.bool)
            if self.unchanged is not None:
                corrected = self.unchanged[targets[rows]]
            for chunk, correct in ((positions[corrected], True), (positions[~corrected], False)):
                if len(chunk):
                    amortised = self.scorer.explain(targets[chunk], None if query is None else query[chunk])
                    yield chunk, self.lara.fitted.with_errors(amortised, correct)

    def explain_one(self, target: int, classes: Sequence[int] = ()) -> Explanations:
        """Return the explanation of one target, for its predicted class or for `classes` as in `ClassQuery.repeat`."""
        ((_, explanations),) = self.explain(torch.tensor([target]), ClassQuery.repeat(classes, 1))
        return explanations

    @cached_property
    def scorer(self) -> Scorer:
        return Scorer(self.lara.explainer_, self.game, Embeddings(self.source, self.target))

    # --- updates of the graph

    def grown_source(self, count: int) -> Tensor:
        """Return a copy of p with rows for new nodes."""
        return grow_rows(self.source, count) if self._has_node_rows else self.source.clone()

    def write_source(self, source: Tensor, nodes: Tensor, p: Tensor, rows: Tensor) -> None:
        """Write new p of some nodes, which stands in some rows of `p`."""
        if self._has_node_rows:
            source[nodes] = p[rows]

    @property
    def _has_node_rows(self) -> bool:
        """Whether p has a row for each node. Otherwise it has a row for each feature, which no update changes."""
        count = self.game.graph.num_nodes()
        return self.lara.explainer_.source_shape(count)[0] == count

    # --- the cache

    def cached(self, targets: np.ndarray) -> TopKRows:
        """Return rows of the cache, and compute them first if they are missing."""
        self.fill_missing(targets)
        return self.cache.read(targets)

    def fill_missing(self, targets: np.ndarray) -> int:
        """Compute missing rows of the cache, and return how many were missing."""
        missing = np.unique(self.cache.missing(targets))
        if len(missing):
            self.fill_cache(missing)
        return len(missing)

    def fill_cache(self, targets: np.ndarray) -> None:
        """Compute explanations of these targets and write them to the cache."""
        for positions, explanations in self.explain(torch.from_numpy(targets)):
            best, chunk = TopKRows.of(explanations, TOP), targets[positions.numpy()]
            self.cache.fill(chunk, best, map(orjson.dumps, self.to_json(chunk, best, [TOP] * len(chunk))))

    def to_json(self, targets: np.ndarray, best: TopKRows, tops: Sequence[int]) -> Iterator[Json]:
        """Yield the explanation of each target as JSON, with as many players as `tops` allows."""
        columns = zip(
            targets.tolist(), self.predicted[targets].tolist(), self.values[targets].tolist(),
            explanation_fields(best, np.minimum(best.kept, tops)), strict=True,
        )  # fmt: skip
        for target, predicted, value, (trust, players) in columns:
            names = self._player_ids(target, [player for player, _, _ in players])
            yield {
                "target": self.ids.target(target),
                "class": predicted,
                "value": value,
                **trust,
                "players": [
                    {**name, "hop": hop, "score": score} for name, (_, hop, score) in zip(names, players, strict=True)
                ],
            }

    def _player_ids(self, target: int, players: list[int]) -> list[Json]:
        """Return id and name of players of a target."""
        table = self.game.players(torch.tensor([target]))
        classes, task = self.game.explained_class[table.targets], self.game.task
        unscored = Explanations(table, torch.zeros(len(table.player)), classes, task, "", self.game)
        names: dict[int, Any] = dict(zip(table.player.tolist(), self.ids.players(unscored), strict=True))
        return [names[player] for player in players]


class _CompiledExplainer(ServedExplainer):
    """Explanations by the compiled walk, for one target and for many, so that all answers have equal bits.

    `source` is p by term, (terms, num_nodes, dim), as the walk reads it.
    """

    @cached_property
    def scorer(self) -> Scorer:
        embeddings = Embeddings(self.source.numpy(), self.target)
        return Scorer(self.lara.explainer_, self.game, embeddings, min_compiled=1)

    def _prepare(self) -> None:
        super()._prepare()
        self.scorer.prepare()

    def _player_ids(self, target: int, players: list[int]) -> list[Json]:
        return [self.ids.player(player, target) for player in players]

    def grown_source(self, count: int) -> Tensor:
        terms, before, dim = self.source.shape
        return torch.cat([self.source, self.source.new_zeros(terms, count - before, dim)], dim=1)

    def write_source(self, source: Tensor, nodes: Tensor, p: Tensor, rows: Tensor) -> None:
        source[:, nodes] = p[rows].view(len(nodes), len(source), source.shape[2]).transpose(0, 1)


def _is_compiled(lara: LARA) -> bool:
    return fastest_kernel(lara.explainer_, lara.game) is WalkKernel


def explainer_of_run(lara: LARA, cache: ExplanationCache, ids: IdCodec) -> ServedExplainer:
    """Return the explainer on the graph of the run."""
    embeddings = lara.embed()
    source = embeddings.source
    if _is_compiled(lara):
        source = torch.from_numpy(by_term(source, lara.explainer_.config.terms))
    explainer = make_explainer(lara, source, embeddings.target, cache, ids)
    explainer._prepare()
    return explainer


def make_explainer(
    lara: LARA, source: Tensor, target: Tensor, cache: ExplanationCache, ids: IdCodec, unchanged: Tensor | None = None
) -> ServedExplainer:
    """Return the fastest explainer for a player set, see `ServedExplainer`."""
    kind = _CompiledExplainer if _is_compiled(lara) else ServedExplainer
    return kind(lara, source, target, cache, ids, unchanged)


def explanation_fields(best: TopKRows, counts: np.ndarray) -> Iterator[tuple[Json, list[tuple[int, int, float]]]]:
    """Yield the trust in each explanation and its `counts` best players as (player, hop, score)."""
    columns = (best.confidence, best.state == CORRECTED, counts, best.player, best.hop, best.score)
    for confidence, corrected, count, *players in zip(*(column.tolist() for column in columns), strict=True):
        trust = {"confidence": None if confidence != confidence else confidence, "source": SOURCES[corrected]}
        yield trust, list(zip(*(column[:count] for column in players), strict=True))


def grow_rows(rows: Tensor, count: int) -> Tensor:
    """Return rows with zeros appended, `count` in all."""
    return torch.cat([rows, rows.new_zeros(count - len(rows), *rows.shape[1:])])

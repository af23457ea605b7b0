"""One kind of players on one graph: g's embeddings where all workers share them, and explanations from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import dgl
import numpy as np
import orjson
import torch
from torch import Tensor

from dgl_lara.attribution.shared_samples import SharedSamples
from dgl_lara.explanation import Explanations, with_rival
from dgl_lara.game.game import Game
from dgl_lara.inference.compiled_scores import Walks
from dgl_lara.inference.scores import Embeddings, can_compile, classes_for
from dgl_lara.lara import LARA
from dgl_lara.serve.table import ROOM, Best, Table, short


def on_graph(of: LARA, graph: dgl.DGLGraph, features: Tensor, answer: Tensor | None = None) -> LARA:
    """The same g and what is known of its errors on another graph; without samples, which are of the old one.
    `answer`: what f says of the graph, where that is known; it is then as like the old one as an update makes it."""
    lara = LARA(of.model, graph, features, of.task, of.hops, of.value, of.config, of.memory, players=of.players)
    lara.explainer_, lara.config_, lara.errors_, lara.cost_ = of.explainer_, of.config_, of.errors_, of.cost_
    if answer is not None:
        game = of.game
        lara.game = Game(
            game.f, graph, features, game.task, game.hops, of.value, answer, memory=of.memory, players=of.players,
            context=game.context,
        )  # fmt: skip
    return lara


class StillTrue(SharedSamples):
    """What f said in training, of targets around which a graph has not changed since; it may have more nodes now."""

    def _as_many(self, game: Game) -> bool:
        return True

    def are_of_another(self, game: Game, targets: Tensor) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class Part:
    """`source`: p by term where the compiled walk takes it, else as g gives it. `target`: t. `unchanged`: the targets
    of which the samples of training still speak; None: all."""

    lara: LARA
    source: Tensor | np.ndarray
    target: Tensor
    table: Table
    unchanged: Tensor | None = None
    name: Callable[[int], str] = str  # of a player

    @property
    def game(self) -> Game:
        return self.lara.game

    @cached_property
    def walks(self) -> Walks:
        return Walks(self.lara.explainer_, self.game, self.source)

    @cached_property
    def predicted(self) -> np.ndarray:
        """(num_targets,) the class that f predicts of each."""
        return self.game.explained_class.numpy()

    @cached_property
    def values(self) -> np.ndarray:
        """(num_targets,) the explained value of that class."""
        everyone = torch.arange(self.game.num_targets)
        return short(self.game.value_of(everyone, self.game.explained_class).numpy())

    @property
    def walked(self) -> bool:
        """By the compiled walk; one way for one target and for many, so that all give the same numbers."""
        return self.game.kind.name == "nodes" and can_compile(self.lara.explainer_, self.game)

    def explain(self, targets: Tensor, classes: Tensor | None = None) -> Iterator[tuple[Tensor, Explanations]]:
        """(places among the targets, their explanations), in pieces. Classes: a column, or two to set against each
        other."""
        for rows in self.game.chunks(targets):
            places = torch.arange(rows.start, rows.stop)
            known = torch.ones(len(places), dtype=torch.bool)
            if self.unchanged is not None:
                known = self.unchanged[targets[rows]]
            for some, correct in ((places[known], True), (places[~known], False)):
                if len(some):
                    found = self._amortised(targets[some], None if classes is None else classes[some])
                    yield some, self.lara.trusted(found, correct)

    def _amortised(self, targets: Tensor, classes: Tensor | None) -> Explanations:
        explainer, game = self.lara.explainer_, self.game
        if not self.walked:
            from dgl_lara.inference.scores import explain

            assert isinstance(self.source, Tensor)
            return explain(explainer, game, Embeddings(self.source, self.target), targets, classes)
        classes, against = classes_for(explainer, game, targets, classes)
        with torch.no_grad():
            t = explainer.for_class(self.target[targets], with_rival(classes, against))
        players, scores = self.walks.scores(targets, t)
        return Explanations(players, scores, classes, game.task, "lara", game, rather_than=against)

    def one(self, target: int, classes: list[int]) -> Explanations:
        """Of a single target, for its class (`classes` empty), for another, or for one rather than another."""
        asked = None if not classes else torch.tensor([classes] if len(classes) == 2 else classes)
        ((_, found),) = self.explain(torch.tensor([target]), asked)
        return found

    def best(self, targets: np.ndarray) -> Best:
        """From the table; what it does not know yet is computed, and known from then on."""
        unknown = np.unique(self.table.unknown(targets))
        if len(unknown):
            self.compute(unknown)
        return self.table.read(targets)

    def compute(self, targets: np.ndarray) -> None:
        for places, found in self.explain(torch.from_numpy(targets)):
            best = Best.of(found, self.table.player.shape[1])
            local = self.lara.task.local and self.game.kind.name == "nodes"  # others have names by the library
            texts = map(orjson.dumps, self.players(best)) if local else [b" " * (ROOM + 1)] * len(places)
            self.table.fill(targets[places.numpy()], best, texts)

    def players(self, best: Best) -> Iterator[list[dict[str, Any]]]:
        """The players of each, as they are sent."""
        name = self.name
        figures = best.kept.tolist(), best.player.tolist(), best.hop.tolist(), best.score.tolist()
        for kept, players, hops, scores in zip(*figures, strict=True):
            yield [
                {"id": player, "name": name(player), "hop": hop, "score": score}
                for player, hop, score in zip(players[:kept], hops[:kept], scores[:kept], strict=True)
            ]


def base_part(lara: LARA, table: Table, name: Callable[[int], str] = str) -> Part:
    """Of the graph that the run was trained on."""
    embeddings = lara.embed()
    part = Part(lara, embeddings.source, embeddings.target, table, name=name)
    return replace(part, source=part.walks.source) if part.walked else part


def prepare(part: Part) -> None:
    """What is made when first needed is made now: workers that are forked from here share it."""
    _ = part.predicted, part.values, part.game.work, part.walks if part.walked else None

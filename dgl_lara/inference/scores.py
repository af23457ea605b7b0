"""Explaining with a trained g: one pass embeds all nodes, then any target costs one sampled dot product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara.errors import InputError
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import encoder_graph
from dgl_lara.explainer.network import Explainer, pair_scores
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.players import MANY, Players, joined
from dgl_lara.model.evaluating import evaluating

Scorer = Callable[[Tensor, Tensor], tuple[Players, Tensor]]


@dataclass(frozen=True, eq=False)
class Embeddings:
    """p of every node, t of every target."""

    source: Tensor  # (num_nodes, terms * dim)
    target: Tensor  # (num_targets, terms * dim)


def embed_graph(explainer: Explainer, graph: EncoderGraph) -> Embeddings:
    """One pass of g over everything."""
    with evaluating(explainer):
        return Embeddings(*explainer(graph))


def embed_all(explainer: Explainer, game: Game, inputs: str) -> Embeddings:
    return embed_graph(explainer, encoder_graph(game, inputs))


def explain(
    explainer: Explainer, game: Game, embeddings: Embeddings, targets: Tensor, classes: Tensor | None = None
) -> Explanations:
    """Eq. 6, 7: scores of all players of the targets, for their explained class or the given ones."""
    game.check_targets(targets)
    classes = classes_for(explainer, game, targets, classes)
    scorer = make_scorer(explainer, game, embeddings.source, len(targets))
    scores, parts = [], []
    with evaluating(explainer):
        for rows in game.chunks(targets):
            players, found = scorer(targets[rows], explainer.for_class(embeddings.target[targets[rows]], classes[rows]))
            scores.append(found)
            parts.append(players)
    return Explanations(joined(parts), torch.cat(scores), classes, game.task, "lara", game)


def classes_for(explainer: Explainer, game: Game, targets: Tensor, asked: Tensor | None) -> Tensor:
    """(num_targets,) the classes asked for, if g can tell them; without any, the explained ones."""
    predicted = game.explained_class[targets]
    if asked is not None and explainer.class_weight is None and bool((asked != predicted).any()):
        raise InputError(
            "this explainer was trained for the predicted class only; train with all classes to ask for another."
        )
    return predicted if asked is None else asked


def can_compile(explainer: Explainer, game: Game) -> bool:
    """Whether the compiled walk can do it: on the CPU, for players at hop distances, with a gate that it knows."""
    return game.task.local and explainer.gate.kernel is not None and game.features.device.type == "cpu"


def make_scorer(explainer: Explainer, game: Game, source: Tensor, num_targets: int) -> Scorer:
    """(targets, their t) -> (players, scores); compiled where that pays."""
    if num_targets >= MANY and can_compile(explainer, game):
        from dgl_lara.inference.compiled_scores import Walks  # a few targets shall not wait for the compiler

        return Walks(explainer, game, source).scores

    def by_pairs(targets: Tensor, t: Tensor) -> tuple[Players, Tensor]:
        players = game.players(targets)
        return players, pair_scores(explainer, source, t, players, explainer.gate_weights(game.graph, players))

    return by_pairs

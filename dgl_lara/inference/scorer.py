"""Explaining with a trained g: one pass embeds all nodes, then any target costs one sampled dot product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.errors import InputError
from dgl_lara.explainer.decoder import PairBatch
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import encoder_graph
from dgl_lara.explainer.network import Explainer
from dgl_lara.explanation import Explanations
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import MANY, Players, joined

Scorer = Callable[[Tensor, Tensor], tuple[Players, Tensor]]


@dataclass(frozen=True, eq=False)
class Embeddings:
    """p and t of everything."""

    source: Tensor  # `Explainer.source_shape`: one row a node, or a column
    target: Tensor  # (num_targets, terms * dim)


def embed_graph(explainer: Explainer, graph: EncoderGraph) -> Embeddings:
    """One pass of g over everything."""
    with eval_mode(explainer):
        return Embeddings(*explainer(graph))


def embed_all(explainer: Explainer, game: Game, inputs: str) -> Embeddings:
    return embed_graph(explainer, encoder_graph(game, inputs))


def explain_embedded(
    explainer: Explainer, game: Game, embeddings: Embeddings, targets: Tensor, query: ClassQuery | None = None
) -> Explanations:
    """Eq. 6, 7: scores of all players of the targets, for their explained class or the given ones."""
    game.check_targets(targets)
    query = checked_query(explainer, game, targets, query)
    scorer = make_scorer(explainer, game, embeddings.source, len(targets))
    scores, parts = [], []
    with eval_mode(explainer):
        for rows in game.chunks(targets):
            t = game.task.target_embeddings(embeddings.target, targets[rows], None)
            players, found = scorer(targets[rows], explainer.for_class(t, query[rows]))
            scores.append(found)
            parts.append(players)
    return Explanations(
        joined(parts), torch.cat(scores), query.classes, game.task, "lara", game, rather_than=query.versus
    )


def checked_query(explainer: Explainer, game: Game, targets: Tensor, query: ClassQuery | None) -> ClassQuery:
    """Return the query, by default that of the explained classes; raise an error if g cannot answer it."""
    predicted = game.query(targets)
    if query is None or explainer.class_weight is not None:
        return query or predicted
    if query.versus is not None or bool((query.classes != predicted.classes).any()):
        raise InputError("classes.predicted_only")
    return query


def can_compile(explainer: Explainer, game: Game) -> bool:
    """Whether the compiled walk can do it: on the CPU, for players at hop distances, with a gate that it knows."""
    known = explainer.gate.kernel is not None and game.player_set.walk_kernel is not None
    return known and game.features.device.type == "cpu"


def sum_over_endpoints(of_nodes: Scorer, game: Game) -> Scorer:
    """Return a scorer of targets from a scorer of single nodes."""

    def score(_: Game, nodes: Tensor, t: Tensor, players: Players | None) -> tuple[Players, Tensor]:
        return of_nodes(nodes, t.contiguous())

    return lambda targets, t: game.task.sum_over_endpoints(game, targets, t, score)


def make_scorer(explainer: Explainer, game: Game, source: Tensor, num_targets: int) -> Scorer:
    """(targets, their t) -> (players, scores); compiled where that pays."""
    return sum_over_endpoints(_node_scorer(explainer, game.endpoint_game, source, num_targets), game)


def _node_scorer(explainer: Explainer, game: Game, source: Tensor, num_targets: int) -> Scorer:
    if num_targets >= MANY and can_compile(explainer, game):
        # a few targets shall not wait for the compiler
        from dgl_lara.inference.kernels.edge_walk import EdgeWalkScorer
        from dgl_lara.inference.kernels.walk import WalkScorer

        kernels: dict[str, type[WalkScorer] | type[EdgeWalkScorer]] = {"nodes": WalkScorer, "edges": EdgeWalkScorer}
        return kernels[str(game.player_set.walk_kernel)](explainer, game, source).scores

    def by_pairs(targets: Tensor, t: Tensor) -> tuple[Players, Tensor]:
        players = game.players(targets)
        return players, explainer.form.scores(explainer, PairBatch(game, players, source, t))

    return by_pairs

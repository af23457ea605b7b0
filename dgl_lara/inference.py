"""Explaining with a trained g: one pass embeds all nodes, then any target costs one sampled dot product."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara.errors import InputError
from dgl_lara.explainer import Explainer, Surroundings, pair_scores
from dgl_lara.explanation import Explanations
from dgl_lara.inputs import explainer_inputs
from dgl_lara.neighborhood import Neighborhood
from dgl_lara.targets.training import evaluating
from dgl_lara.value import Game

PAIRS_AT_ONCE = 5_000_000


@dataclass(frozen=True, eq=False)
class Embeddings:
    """p of every node, t of every target."""

    source: Tensor  # (num_nodes, terms * dim)
    target: Tensor  # (num_targets, terms * dim)


def embed_all(explainer: Explainer, game: Game, inputs: str) -> Embeddings:
    """One pass of g over everything."""
    with evaluating(explainer):
        return Embeddings(*explainer(Surroundings.of(game.graph), explainer_inputs(game, inputs)))


def explain(
    explainer: Explainer, game: Game, embeddings: Embeddings, targets: Tensor, classes: Tensor | None = None
) -> Explanations:
    """Eq. 6, 7: scores of all players of the targets, for their explained class or the given ones."""
    check_targets(targets, game)
    if classes is None:
        classes = game.explained_class[targets]
    elif explainer.class_weight is None and bool((classes != game.explained_class[targets]).any()):
        raise InputError(
            "this explainer was trained for the predicted class only; train with all classes to ask for another."
        )
    scores, parts = [], []
    with evaluating(explainer):
        for rows in chunks(game, targets):
            players = game.players(targets[rows])
            t = explainer.for_class(embeddings.target[targets[rows]], classes[rows])
            scores.append(pair_scores(explainer, embeddings.source, t, players, explainer.gate(game.graph, players)))
            parts.append(players)
    return Explanations(joined(parts), torch.cat(scores), classes, game.task, "lara")


def check_targets(targets: Tensor, game: Game) -> None:
    if not len(targets):
        raise InputError("no targets were given to explain.")
    if int(targets.min()) < 0 or int(targets.max()) >= game.num_targets:
        wrong = targets[(targets < 0) | (targets >= game.num_targets)][0]
        raise InputError(f"targets must be {game.task}s 0..{game.num_targets - 1} (got {int(wrong)}).")


def chunks(game: Game, targets: Tensor) -> Iterator[slice]:
    """Slices of the targets whose neighbourhoods fit into memory together, judged by their degrees."""
    if game.task == "graph":
        size = game.graph.batch_num_nodes()[targets].double()
    else:
        mean = max(game.graph.num_edges() / max(game.graph.num_nodes(), 1), 1.0)
        size = (game.graph.in_degrees()[targets].double() + 1) * mean ** (game.hops - 1) * 4
        size = size.clamp(max=float(game.graph.num_nodes()))
    group = (size.cumsum(0) // PAIRS_AT_ONCE).long()
    start = 0
    for count in torch.unique_consecutive(group, return_counts=True)[1].tolist():
        yield slice(start, start + count)
        start += count


def joined(parts: list[Neighborhood]) -> Neighborhood:
    if len(parts) == 1:
        return parts[0]
    fields = {
        name: torch.cat([getattr(part, name) for part in parts]) for name in ("targets", "counts", "player", "hop")
    }
    return Neighborhood(num_nodes=parts[0].num_nodes, **fields)

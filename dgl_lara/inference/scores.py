"""Explaining with a trained g: one pass embeds all nodes, then any target costs one sampled dot product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import dgl
import torch
from torch import Tensor

from dgl_lara.errors import InputError
from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.explainer.network import Explainer, Surroundings, pair_scores
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game, row_slices
from dgl_lara.game.players import MANY, Neighborhood, find, in_edges, walk_scale
from dgl_lara.model.blackbox import Model
from dgl_lara.model.evaluating import evaluating
from dgl_lara.training.subgraphs import attribution_subgraph, explainer_nodes

MEMORY = 2 * 2**30  # bytes that one chunk of targets may take, unless told otherwise
BYTES_A_WALK = 200  # measured: what `explain` holds at its peak for each walk that ends at a target


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
    explainer: Explainer,
    game: Game,
    embeddings: Embeddings,
    targets: Tensor,
    classes: Tensor | None = None,
    memory: int = MEMORY,
) -> Explanations:
    """Eq. 6, 7: scores of all players of the targets, for their explained class or the given ones."""
    check_targets(targets, game)
    if classes is None:
        classes = game.explained_class[targets]
    elif explainer.class_weight is None and bool((classes != game.explained_class[targets]).any()):
        raise InputError(
            "this explainer was trained for the predicted class only; train with all classes to ask for another."
        )
    scorer = make_scorer(explainer, game, embeddings.source, len(targets))
    scores, parts = [], []
    with evaluating(explainer):
        for rows in chunks(game, targets, memory):
            players, found = scorer(targets[rows], explainer.for_class(embeddings.target[targets[rows]], classes[rows]))
            scores.append(found)
            parts.append(players)
    return Explanations(joined(parts), torch.cat(scores), classes, game.task, "lara", game)


def make_scorer(
    explainer: Explainer, game: Game, source: Tensor, num_targets: int
) -> Callable[[Tensor, Tensor], tuple[Neighborhood, Tensor]]:
    """(targets, their t) -> (players, scores); compiled where that pays."""
    if game.task == "node" and game.features.device.type == "cpu" and num_targets >= MANY:
        from dgl_lara.inference.compiled_scores import (
            Walks,  # not at the top: a few targets shall not wait for the compiler
        )

        return Walks(explainer, game, source).scores

    def by_pairs(targets: Tensor, t: Tensor) -> tuple[Neighborhood, Tensor]:
        players = game.players(targets)
        return players, pair_scores(explainer, source, t, players, explainer.gate(game.graph, players))

    return by_pairs


def check_targets(targets: Tensor, game: Game) -> None:
    check_range(targets, game.num_targets, game.task)


def check_range(targets: Tensor, count: int, task: str) -> None:
    if not len(targets):
        raise InputError("no targets were given to explain.")
    if int(targets.min()) < 0 or int(targets.max()) >= count:
        wrong = targets[(targets < 0) | (targets >= count)][0]
        raise InputError(f"targets must be {task}s 0..{count - 1} (got {int(wrong)}).")


def explain_nearby(explainer: Explainer, game: Game, kind: str, targets: Tensor) -> Explanations:
    """The same for a few targets without a pass over everything: g runs on their 2K-hop neighbourhood (Eq. 12)."""
    check_targets(targets, game)
    if game.task == "graph":
        return explain(explainer, game, embed_all(explainer, game, kind), targets)
    nodes = explainer_nodes(game.graph, targets, game.hops + explainer.config.layers)
    classes = game.explained_class[targets]
    with evaluating(explainer):
        p, t = explainer(surroundings_of_some(game.graph, nodes), explainer_inputs(game, kind, nodes))
        players = game.players(targets)
        t = explainer.for_class(t[find(targets, nodes)[0]], classes)
        local = replace(players, player=find(players.player, nodes)[0], num_nodes=len(nodes))
        scores = pair_scores(explainer, p, t, local, explainer.gate(game.graph, players))
    return Explanations(players, scores, classes, game.task, "lara")


def explain_apart(
    explainer: Explainer, f: Model, graph: dgl.DGLGraph, features: Tensor, value: str, kind: str, targets: Tensor
) -> Explanations:
    """The same where nothing is known of the graph yet, not even f's logits: all happens on the part of the graph
    that can matter, 2K hops for g and K + 1 more for what f says of the nodes there. Node tasks."""
    hops = explainer.config.hops
    part, nodes, places = attribution_subgraph(graph, targets, 2 * hops + explainer.config.layers + 1)
    local = explain_nearby(explainer, Game(f, part, features[nodes], "node", hops, value), kind, places)
    players, back = local.players, nodes[local.players.player]
    return replace(local, players=replace(players, targets=targets, player=back, num_nodes=graph.num_nodes()))


def surroundings_of_some(graph: dgl.DGLGraph, nodes: Tensor) -> Surroundings:
    """The graph induced by sorted nodes, with the scales of the whole graph."""
    pair, sources = in_edges(graph, nodes)
    place, inside = find(sources, nodes)
    induced = dgl.graph((place[inside], pair[inside]), num_nodes=len(nodes))
    scale = walk_scale(graph)[nodes].unsqueeze(1)
    return Surroundings(dgl.add_self_loop(induced), scale, induced.batch_num_nodes())


def chunks(game: Game, targets: Tensor, memory: int = MEMORY) -> list[slice]:
    """Slices of the targets that stay within the memory, whatever the hubs (one that does not fit stands alone)."""
    if len(targets) == 1:
        return [slice(0, 1)]
    return row_slices(game.work[targets], memory / BYTES_A_WALK)


def joined(parts: list[Neighborhood]) -> Neighborhood:
    if len(parts) == 1:
        return parts[0]
    fields = {
        name: torch.cat([getattr(part, name) for part in parts]) for name in ("targets", "counts", "player", "hop")
    }
    return Neighborhood(num_nodes=parts[0].num_nodes, **fields)

"""What a picture and a page show of one explanation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dgl_lara.explanation.plot.html import drawn_players, picture_data
from dgl_lara.explanation.plot.scene import Bars, Scene, compose, compose_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dgl_lara.explanation.explanation import Explanation

SLIDER_STEPS = 40
MAX_BARS = 25
MAX_FEATURES_TOLD = 5  # of a node, on a page


def scene_of(explanation: Explanation, max_nodes: int) -> Scene:
    """Return the strongest nodes and the edges among them, with their positions in a picture."""
    names, near, task = explanation.batch.names, explanation.near, explanation.task
    graph, nodes, hops = explanation.subgraph(), explanation.nodes, task.hops_of(near)
    classes, of_nodes, of_edges = explanation.classes_of(nodes), explanation.player_of_nodes, None
    scores = explanation.scores if of_nodes is None else explanation.scores[of_nodes]
    named = np.array(sorted({*explanation.sentence.named, *explanation.sentence.removed}), dtype=int)
    if of_nodes is None:
        of_edges = explanation.player_of_edges(graph)
    else:
        named = np.flatnonzero(np.isin(of_nodes.cpu().numpy(), named))
    return compose(
        names=explanation.node_names(nodes),
        labels=_marks(explanation, nodes),
        score=scores.cpu().numpy(),
        hop=None if hops is None else hops.cpu().numpy(),
        truth=None if names.motif is None else task.in_motif(near, names.motif).cpu().numpy(),
        edges=torch.stack(graph.edges(), dim=1).cpu().numpy(),
        max_nodes=max_nodes,
        named=named.tolist(),
        other_class=None if classes is None else np.array(classes) != explanation.explained_class,
        edge_player=None if of_edges is None else of_edges.cpu().numpy(),
        node_types=explanation.game.user_ids(nodes)[0],
        molecule=explanation.is_molecule,
        class_name=names.of_class(explanation.explained_class),
    )


def bars_of(explanation: Explanation, max_bars: int) -> Bars:
    """Return the strongest players as bars."""
    details = [_value_of(explanation, player) for player in range(len(explanation))]
    return compose_bars(explanation.player_names(), details, explanation.scores.cpu().numpy(), max_bars)


def draw_explanation(explanation: Explanation, max_players: int, words: bool) -> Figure:
    """Return the picture of an explanation, with the sentence above it if `words`."""
    from dgl_lara.explanation.plot.bars import draw_bars
    from dgl_lara.explanation.plot.figure import draw

    title, removed, class_name, value = "", "", explanation.class_name, explanation.value_name
    if words:
        title = f"{explanation.in_words()} {explanation.how_sure()}".rstrip()
        removed = _as_sentence(explanation.removed_in_words)
    picture = picture_of(explanation, max_players)
    if isinstance(picture, Bars):
        return draw_bars(picture, title, class_name, value, explanation.meaning)
    return draw(picture, title, class_name, value, explanation.meaning, removed)


def view_of(
    explanation: Explanation, max_players: int, steps: int = SLIDER_STEPS
) -> tuple[Scene | Bars, dict[str, Any]]:
    """Return the picture and the JSON content of a page. The model is called twice for each step of its slider."""
    batch, picture = explanation.batch, picture_of(explanation, max_players)
    data, drawn = picture_data(picture), drawn_players(picture)
    if explanation.player_of_nodes is None:
        names = explanation.player_names()
        drawn_names = [names[player] for player in drawn]
    else:  # both ends of a link are drawn, and are one player
        drawn_names = explanation.node_names(explanation.nodes[drawn])
        drawn = explanation.player_of_nodes.cpu().numpy()[drawn]
    rank, order = batch.rank() + 1, batch.rank(include_target=False)
    classes, named = _classes_of_drawn(explanation, drawn), {*explanation.sentence.named, *explanation.sentence.removed}
    for row, player in enumerate(drawn.tolist()):
        data["players"][row] |= {
            "name": drawn_names[row],
            "rank": int(rank[player]),
            "order": int(order[player]),
            "details": _details(explanation, player),
            "named": player in named,
            "class": None if classes is None else classes[row],
        }
    removable = len(explanation) - int(batch.is_target.sum())
    counts = torch.linspace(removable, 0, min(removable, steps) + 1).round().int().tolist()
    keep, remove = explanation.curves(counts)
    return picture, {
        **data,
        "title": explanation.in_words(),
        "about": _about(explanation),
        "count": len(explanation),
        "removable": removable,  # all players but the target
        "noun": explanation.noun,
        "counts": counts,  # of important players, for each step of the slider
        "keep": keep,  # outputs of the model with only these players
        "remove": remove,  # and without them
        "class": explanation.class_name,
        "value": explanation.value_name,
        "output": explanation.output,
    }


def picture_of(explanation: Explanation, max_players: int) -> Scene | Bars:
    """Return the graph around a target if players are in it, or else bars."""
    if explanation.has_positions:
        return scene_of(explanation, max_players)
    return bars_of(explanation, min(max_players, MAX_BARS))


def _marks(explanation: Explanation, nodes: Tensor) -> list[str] | None:
    """Return what is written on nodes, the user's own names or numbers within a type without names."""
    labels = explanation.batch.names.labels
    own = None if labels is None else [labels[node] for node in nodes.tolist()]
    node_types, ids = explanation.game.user_ids(nodes)
    if node_types is None:
        return own
    numbers = list(map(str, ids.tolist()))
    return numbers if own is None else [label or number for label, number in zip(own, numbers, strict=True)]


def _about(explanation: Explanation) -> str:
    value, class_name = explanation.value_name, explanation.class_name
    parts = [
        f"Scores by {explanation.batch.method} for the {value}{f' of class {class_name}' if class_name else ''}.",
        f"Players are {explanation.game.player_set.description}.",
        explanation.meaning,
        "The curves are outputs of the model, evaluated for every step of the slider.",
        "The target itself always stays." * bool(explanation.batch.is_target.any()),
        explanation.how_sure(),
        _as_sentence(explanation.removed_in_words),
    ]
    return " ".join(filter(None, parts))


def _classes_of_drawn(explanation: Explanation, drawn: np.ndarray) -> list[str] | None:
    """Return the class that the model predicts for each drawn node, or for both ends of each edge."""
    of_class, players = explanation.batch.names.of_class, explanation.players[torch.from_numpy(drawn)]
    classes = [explanation.classes_of(nodes) for nodes in explanation.game.player_set.nodes_of(players)]
    found = [one for one in classes if one is not None]
    return [" and ".join(map(of_class, row)) for row in zip(*found, strict=True)] if found else None


def _details(explanation: Explanation, player: int) -> list[str]:
    """Return the largest features of a node, or the value of a column."""
    if explanation.player_of_nodes is None:
        return list(filter(None, [_value_of(explanation, player)]))
    row, columns = explanation.game.node_features(int(explanation.players[player])), explanation.batch.names.columns
    largest = torch.argsort(row.abs(), descending=True, stable=True)[:MAX_FEATURES_TOLD].tolist()
    return [f"{columns[column] if columns else f'x{column}'} = {row[column]:.3g}" for column in largest if row[column]]


def _value_of(explanation: Explanation, player: int) -> str:
    """Return what the target has in the column of a player (a graph on average), or ""."""
    nodes = explanation.task.target_nodes(explanation.game.graph, explanation.batch.players.targets)
    return explanation.game.player_set.value_of(explanation.players[player : player + 1], nodes)


def _as_sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}." if line else ""

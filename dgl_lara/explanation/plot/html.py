"""One explanation as a page to explore: a single file without outside scripts, pictures or fonts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from dgl_lara._util.templates import rendered
from dgl_lara.explanation.plot.scene import Bars, Scene, shapes_of

View = tuple[Scene | Bars, "ViewData"]


@dataclass(frozen=True)
class ViewData:
    """What a page shows besides the picture. Lists of players have the rows of `drawn_players`."""

    title: str
    about: str
    explained_class: str  # name or number
    value: str
    output: float
    noun: str  # for one player
    names: list[str]
    players: int
    removable: int  # all players but the target
    counts: list[int]  # of important players, for each step of the slider
    keep: list[float]  # output of the model with only these players
    remove: list[float]  # output without them
    rank: list[int]  # among all players, from 1
    order: list[int]  # among the removable players, from 0
    details: list[list[str]]
    classes: list[str] | None  # that the model predicts for players, or for both ends of edges
    named: list[bool]  # the title names or removes the player


def page(views: Sequence[View]) -> str:
    """Return the HTML. Several explanations of one target are behind a switch."""
    data = Markup(embedded([view_data(*view) for view in views]))
    first = views[0][1]
    return rendered(__package__, "explanation.html", title=first.title, about=first.about, data=data)


def drawn_players(picture: Scene | Bars) -> np.ndarray:
    """(drawn,) positions of the drawn players among all players of the explanation, or of drawn nodes among nodes."""
    if isinstance(picture, Bars) or picture.edge_player is None:
        return picture.index
    return picture.edge_player[picture.edge_player >= 0]


def embedded(data: Any) -> str:
    """Return JSON that cannot end the script element around it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def view_data(picture: Scene | Bars, data: ViewData) -> dict[str, Any]:
    """Return the JSON content of one view."""
    if isinstance(picture, Bars):
        drawn: dict[str, Any] = _bars(picture)
    elif picture.edge_score is not None:
        drawn = _edges(picture)
    else:
        drawn = {**_graph(picture), "players": _nodes(picture), "points": None}
    for row, player in enumerate(drawn["players"]):
        player |= {
            "name": data.names[row],
            "rank": data.rank[row],
            "order": data.order[row],
            "details": data.details[row],
            "named": data.named[row],
            "class": None if data.classes is None else data.classes[row],
        }
    return {
        **drawn,
        "largest": picture.max_score,
        "rest": picture.rest,
        "title": data.title,
        "about": data.about,
        "count": data.players,
        "removable": data.removable,
        "noun": data.noun,
        "counts": data.counts,
        "keep": data.keep,
        "remove": data.remove,
        "class": data.explained_class,
        "value": data.value,
        "output": data.output,
    }


def _graph(scene: Scene) -> dict[str, Any]:
    low, high = scene.bounds
    edges = [[*edge, int(one_way)] for edge, one_way in zip(scene.edges.tolist(), scene.one_way, strict=True)]
    return {
        "shape": "nodes" if scene.edge_score is None else "edges",
        "edges": edges,
        "faint": np.flatnonzero(scene.is_faint).tolist(),
        "rings": [np.round(line * (1, -1), 3).tolist() for line in scene.hop_lines],
        "hops": [[*np.round(position * (1, -1), 3).tolist(), text] for position, text in scene.hop_labels],
        "bounds": np.round([low[0], -high[1], high[0], -low[1]], 3).tolist(),
        "molecule": scene.molecule,
        "types": list(shapes_of(scene)),
        "class_name": scene.class_name,
    }


def _nodes(scene: Scene) -> list[dict[str, Any]]:
    shapes = shapes_of(scene)
    return [
        {
            "name": scene.names[row],
            "mark": scene.marks[row],
            "x": round(float(scene.position[row, 0]), 3),
            "y": round(-float(scene.position[row, 1]), 3),  # downwards on a screen
            "score": 0.0 if scene.score is None else float(scene.score[row]),
            "hop": None if scene.hop is None else int(scene.hop[row]),
            "target": row in scene.targets,
            "shape": 0 if scene.types is None else shapes[scene.types[row]],
            "truth": bool(scene.truth is not None and scene.truth[row]),
            "other": bool(scene.other_class is not None and scene.other_class[row]),
        }
        for row in range(len(scene.index))
    ]


def _edges(scene: Scene) -> dict[str, Any]:
    """Return edges as players, and the nodes as `points`."""
    assert scene.edge_player is not None and scene.edge_score is not None
    points = _nodes(scene)
    players = []
    for row in np.flatnonzero(scene.edge_player >= 0).tolist():
        u, v = (points[end] for end in scene.edges[row])
        player = {
            "edge": row,
            "mark": "",
            "x": round((u["x"] + v["x"]) / 2, 3),
            "y": round((u["y"] + v["y"]) / 2, 3),
            "score": float(scene.edge_score[row]),
            "hop": None if scene.hop is None else max(u["hop"], v["hop"]),
            "target": False,
            "truth": u["truth"] and v["truth"],
            "other": False,
        }
        players.append(player)
    return {**_graph(scene), "players": players, "points": points}


def _bars(bars: Bars) -> dict[str, Any]:
    players = [
        {"mark": name, "x": 0.0, "y": 0.6 * row, "score": float(score), "hop": None}
        | {"target": False, "truth": False, "other": False}
        for row, (name, score) in enumerate(zip(bars.names, bars.score, strict=True))
    ]
    empty: dict[str, Any] = {name: [] for name in ("edges", "faint", "rings", "hops", "types")}
    bounds = [-6, -0.6, 6, max(0.6 * len(players), 0.6)]
    return {**empty, "shape": "bars", "players": players, "points": None, "molecule": False, "bounds": bounds}

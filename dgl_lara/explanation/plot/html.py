"""One explanation as a page to explore: a single file without any outside script, picture or font."""

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
    """What the page tells beside a picture. Rows of lists that belong to players follow `drawn_players`."""

    title: str
    about: str
    explained_class: str  # its name, or its number
    value: str
    output: float
    kind: str  # what a player is
    names: list[str]
    players: int
    removable: int  # all players but the target
    counts: list[int]  # a step of the slider each: so many important players
    keep: list[float]  # the model's output with only these
    remove: list[float]  # and without them
    rank: list[int]  # 1 is the best of all players
    place: list[int]  # 0 is the best of the removable ones; the target's is the last
    features: list[list[str]]
    classes: list[str] | None  # that f predicts for the players, where they are targets too, or for their ends
    told: list[bool]  # whom the title names or takes away


def page(views: Sequence[View]) -> str:
    """The HTML; several explanations of one target stand behind a switch."""
    data = Markup(embedded([view_data(*view) for view in views]))
    first = views[0][1]
    return rendered(__package__, "explanation.html", title=first.title, about=first.about, data=data)


def drawn_players(picture: Scene | Bars) -> np.ndarray:
    """(drawn,) places, among all players of the explanation, of those that are drawn."""
    if isinstance(picture, Bars) or picture.edge_place is None:
        return picture.place
    return picture.edge_place[picture.edge_place >= 0]


def embedded(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def view_data(picture: Scene | Bars, story: ViewData) -> dict[str, Any]:
    if isinstance(picture, Bars):
        drawn: dict[str, Any] = _bars(picture)
    elif picture.edge_score is not None:
        drawn = _edges(picture)
    else:
        drawn = {**_graph(picture), "players": _nodes(picture), "points": None}
    for row, player in enumerate(drawn["players"]):
        player |= {
            "name": story.names[row],
            "rank": story.rank[row],
            "place": story.place[row],
            "features": story.features[row],
            "told": story.told[row],
            "class": None if story.classes is None else story.classes[row],
        }
    return {
        **drawn,
        "largest": picture.largest,
        "rest": picture.rest,
        "title": story.title,
        "about": story.about,
        "count": story.players,
        "removable": story.removable,
        "kind": story.kind,
        "counts": story.counts,
        "keep": story.keep,
        "remove": story.remove,
        "class": story.explained_class,
        "value": story.value,
        "output": story.output,
    }


def _graph(scene: Scene) -> dict[str, Any]:
    low, high = scene.bounds
    edges = [[*edge, int(way)] for edge, way in zip(scene.edges.tolist(), scene.one_way, strict=True)]
    return {
        "shape": "nodes" if scene.edge_score is None else "edges",
        "edges": edges,
        "back": np.flatnonzero(scene.steps_back).tolist(),
        "rings": [np.round(line * (1, -1), 3).tolist() for line in scene.hop_lines],
        "hops": [[*np.round(place * (1, -1), 3).tolist(), words] for place, words in scene.hop_names],
        "bounds": np.round([low[0], -high[1], high[0], -low[1]], 3).tolist(),
        "molecule": scene.molecule,
        "types": list(shapes_of(scene)),
        "other_than": scene.other_than,
    }


def _nodes(scene: Scene) -> list[dict[str, Any]]:
    shapes = shapes_of(scene)
    return [
        {
            "name": scene.names[row],
            "mark": scene.marks[row],
            "x": round(float(scene.position[row, 0]), 3),
            "y": round(-float(scene.position[row, 1]), 3),  # a screen counts downwards
            "score": 0.0 if scene.score is None else float(scene.score[row]),
            "hop": None if scene.hop is None else int(scene.hop[row]),
            "target": row in scene.targets,
            "shape": 0 if scene.kinds is None else shapes[scene.kinds[row]],
            "truth": bool(scene.truth is not None and scene.truth[row]),
            "other": bool(scene.other_class is not None and scene.other_class[row]),
        }
        for row in range(len(scene.place))
    ]


def _edges(scene: Scene) -> dict[str, Any]:
    """Players are lines; nodes stand beside them as `points`."""
    assert scene.edge_place is not None and scene.edge_score is not None
    points = _nodes(scene)
    players = []
    for row in np.flatnonzero(scene.edge_place >= 0).tolist():
        one, other = (points[end] for end in scene.edges[row])
        hops = None if scene.hop is None else max(one["hop"], other["hop"])
        players.append(
            {
                "edge": row,
                "mark": "",
                "x": round((one["x"] + other["x"]) / 2, 3),
                "y": round((one["y"] + other["y"]) / 2, 3),
                "score": float(scene.edge_score[row]),
                "hop": hops,
                "target": False,
                "truth": one["truth"] and other["truth"],
                "other": False,
            }
        )
    return {**_graph(scene), "players": players, "points": points}


def _bars(bars: Bars) -> dict[str, Any]:
    """One below the other, zero in the middle."""
    players = [
        {"mark": name, "x": 0.0, "y": 0.6 * row, "score": float(score), "hop": None}
        | {"target": False, "truth": False, "other": False}
        for row, (name, score) in enumerate(zip(bars.names, bars.score, strict=True))
    ]
    empty: dict[str, Any] = {
        "edges": [],
        "back": [],
        "rings": [],
        "hops": [],
        "points": None,
        "molecule": False,
        "types": [],
    }
    return {**empty, "shape": "bars", "players": players, "bounds": [-6, -0.6, 6, max(0.6 * len(players), 0.6)]}

"""One explanation as a page to explore, in a single file without outside scripts, pictures or fonts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from dgl_lara._util.templates import rendered
from dgl_lara.explanation.plot.scene import Bars, Scene, shapes_of


def page(views: Sequence[dict[str, Any]]) -> str:
    """Return the HTML. Several explanations of one target are behind a switch."""
    title, about = views[0]["title"], views[0]["about"]
    return rendered(__package__, "explanation.html", title=title, about=about, data=Markup(embedded(views)))


def drawn_players(picture: Scene | Bars) -> np.ndarray:
    """(drawn,) positions of the drawn players among all players of the explanation, or of drawn nodes among nodes."""
    if isinstance(picture, Bars) or picture.edge_player is None:
        return picture.index
    return picture.edge_player[picture.edge_player >= 0]


def embedded(data: Any) -> str:
    """Return JSON that cannot end the script element around it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def picture_data(picture: Scene | Bars) -> dict[str, Any]:
    """Return the JSON content of a picture. Its `players` have the rows of `drawn_players`."""
    if isinstance(picture, Bars):
        drawn: dict[str, Any] = _bars(picture)
    elif picture.edge_score is not None:
        drawn = _edges(picture)
    else:
        drawn = {**_graph(picture), "players": _nodes(picture), "points": None}
    return {**drawn, "largest": picture.max_score, "rest": picture.rest}


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
            "shape": 0 if scene.node_types is None else shapes[scene.node_types[row]],
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

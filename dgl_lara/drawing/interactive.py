"""One explanation as a page to explore: a single file without any outside script, picture or font."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from dgl_lara.drawing.scene import Scene
from dgl_lara.utils.templates import rendered


@dataclass(frozen=True)
class Story:
    """What the page tells beside the scene. Rows of lists that belong to players follow the scene's."""

    title: str
    about: str
    explained_class: str  # its name, or its number
    value: str
    output: float
    kind: str  # what a player is
    players: int
    removable: int  # all players but the target
    counts: list[int]  # a step of the slider each: so many important players
    keep: list[float]  # the model's output with only these
    remove: list[float]  # and without them
    rank: list[int]  # 1 is the best of all players
    place: list[int]  # 0 is the best of the removable ones; the target's is the last
    features: list[list[str]]
    classes: list[str] | None  # that f predicts for the players, where they are targets too


def page(scene: Scene, story: Story) -> str:
    """The HTML."""
    data = Markup(embedded(_data(scene, story)))
    return rendered(__package__, "interactive.html", title=story.title, about=story.about, data=data)


def embedded(data: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _data(scene: Scene, story: Story) -> dict[str, Any]:
    players = [
        {
            "name": scene.names[row],
            "mark": scene.marks[row],
            "x": round(float(scene.position[row, 0]), 3),
            "y": round(-float(scene.position[row, 1]), 3),  # a screen counts downwards
            "score": float(scene.score[row]),
            "rank": story.rank[row],
            "place": story.place[row],
            "hop": None if scene.hop is None else int(scene.hop[row]),
            "target": row == scene.target,
            "truth": bool(scene.truth is not None and scene.truth[row]),
            "features": story.features[row],
            "class": None if story.classes is None else story.classes[row],
            "other": bool(scene.other_class is not None and scene.other_class[row]),
        }
        for row in range(len(scene.place))
    ]
    low, high = scene.bounds
    return {
        "players": players,
        "edges": [[*edge, int(way)] for edge, way in zip(scene.edges.tolist(), scene.one_way, strict=True)],
        "rings": [np.round(line * (1, -1), 3).tolist() for line in scene.hop_lines],
        "bounds": np.round([low[0], -high[1], high[0], -low[1]], 3).tolist(),
        "molecule": scene.molecule,
        "largest": scene.largest,
        "rest": scene.rest,
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

"""What the explorer page asks for: lists of targets worth a look, and one explanation with everything that is shown."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from dgl_lara._util.templates import rendered
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanation
from dgl_lara.explanation.plot.html import view_data
from dgl_lara.serve.cache import UNKNOWN, short
from dgl_lara.serve.handlers import RequestHandler
from dgl_lara.serve.ids import ELSEWHERE, Json
from dgl_lara.serve.schemas import Instance, TargetsQuery, ViewQuery

LIKELIEST = 5  # classes that are shown of f's answer
THUMBNAIL = 60  # nodes of a graph in the gallery
STEPS, FEWER, CROWD = 40, 10, 1000  # of the slider; fewer where the model sees so many nodes in each
GALLERY = 24  # graphs of one page of it


@cache
def explorer_page() -> str:
    """One file without any outside script, picture or font."""
    return rendered(__package__, "explorer.html")


# --- lists


def list_targets(job: RequestHandler, query: TargetsQuery) -> Json:
    """Targets by number, name, class, wrong prediction or confidence; of graphs also small pictures."""
    part, model = job.snapshot.first, job.model
    wanted = ~job.snapshot.gone_targets
    if query.predicted is not None:
        wanted &= part.predicted == query.predicted
    labels = _labels(job)
    if query.wrong:
        wanted &= (labels >= 0) & (labels != part.predicted)
    found = np.flatnonzero(wanted)
    if text := query.find.strip().lower():
        found = np.array([one for one in found.tolist() if _matches(job, one, text)], dtype=np.int64)
        found = found[np.argsort([len(str(one)) for one in found.tolist()], kind="stable")]
    if query.order == "confidence":
        found = found[part.table.known(found) & ~np.isnan(part.table.confidence[found])]
        found = found[np.argsort(part.table.confidence[found], kind="stable")]
    some = found[query.offset : query.offset + (query.limit if model.task.has_distances else min(query.limit, GALLERY))]
    rows = [_row(job, one, int(labels[one])) for one in some.tolist()]
    if not model.task.has_distances:
        for row in rows:
            row["picture"] = _thumbnail(job, int(row["target"]))
    return {"total": len(found), "rows": rows, "about": about(job)}


def about(job: RequestHandler) -> Json:
    """Of the model: what the page needs before anything is chosen."""
    model, snapshot, told = job.model, job.snapshot, job.called.class_name
    types, config, part = model.lara.types, model.lara.explainer_.config, snapshot.first
    alive = int((part.table.state != UNKNOWN).sum())
    return {
        "name": model.name,
        "dataset": model.run.dataset.name,
        "task": model.task.name,
        "noun": types.node_types[0] if types is not None and model.task.num_endpoints == 1 else model.task.name,
        "targets": len(part.predicted),
        "edges": snapshot.graph.num_edges(),
        "hops": config.hops,
        "value": part.game.value,
        "classes": [told(one) for one in range(config.num_classes)],
        "counts": np.bincount(part.predicted, minlength=config.num_classes).tolist(),
        "all_classes": config.all_classes,
        "players": list(snapshot.parts),
        "labelled": bool((_labels(job) >= 0).any()),
        "explained": alive,
        "sequence": snapshot.sequence,
    }


def _labels(job: RequestHandler) -> np.ndarray:
    """(num_targets,) the true class, -1 where nobody knows, or outputs are no classes."""
    if job.snapshot.first.game.value == "output":
        return np.full(len(job.snapshot.first.predicted), -1)
    known = job.model.run.dataset.labels.numpy()
    missing = len(job.snapshot.first.predicted) - len(known)
    return np.concatenate([known, np.full(missing, -1)]) if missing else known


def key_of(job: RequestHandler, target: int) -> int | str:
    """By which the page names it: its number; of a link both ends, "3,14"."""
    told = job.called.target(target)
    return told if isinstance(told, int) else ",".join(map(str, told))


def _matches(job: RequestHandler, target: int, text: str) -> bool:
    return str(key_of(job, target)).startswith(text) or text in job.called.target_name(target).lower()


def _row(job: RequestHandler, target: int, label: int) -> Json:
    part, told = job.snapshot.first, job.called.class_name
    known, confidence = bool(part.table.known(np.array([target]))[0]), float(part.table.confidence[target])
    predicted = int(part.predicted[target])
    return {
        "target": key_of(job, target),
        "name": job.called.target_name(target),
        "class": predicted,
        "class_name": told(predicted),
        "value": float(part.values[target]),
        "label": None if label < 0 else told(label),
        "wrong": label >= 0 and label != predicted,
        "confidence": confidence if known and confidence == confidence else None,
    }


def _thumbnail(job: RequestHandler, target: int) -> Json:
    part = job.snapshot.first
    if part.game.player_set.name != "nodes":
        return {}
    scene = job.called.named(part.one(target, [])).scene(THUMBNAIL)
    assert scene.score is not None
    low, high = scene.bounds
    return {
        "bounds": np.round([low[0], -high[1], high[0], -low[1]], 2).tolist(),
        "points": np.round(scene.position * (1, -1), 2).tolist(),
        "scores": (scene.score / scene.largest).round(3).tolist(),
        "edges": scene.edges.tolist(),
        "marks": scene.marks,
    }


# --- one explanation


def view(job: RequestHandler, query: ViewQuery) -> Json:
    """In words, as a picture, a table and curves of the model's own outputs."""
    asked = _asked(job, query.target)
    given: dict[str, Any] = {**asked, "class": query.asked_class, "rather_than": query.rather_than}
    instance = Instance(**given, players=query.players)
    found = job.explanation(instance)
    explanation = job.naming(instance, found).named(found)
    before = explanation.game.num_calls
    picture, story = explanation.view(query.most, STEPS if len(explanation.nodes) < CROWD else FEWER)
    job.model_calls += explanation.game.num_calls - before
    number, told = job.target(instance), job.called.class_name
    label = -1 if number == ELSEWHERE else int(_labels(job)[number])
    confidence = found.confidence
    sure = float("nan") if confidence is None else float(short(confidence.numpy())[0])
    return {
        **view_data(picture, story),
        "walk": _walk(job, explanation, picture),
        "target": query.target if "," in query.target else int(query.target),
        "asked": asked,
        "players_kind": explanation.batch.players.player_type,
        "explained_class": explanation.explained_class,
        "rather_than": query.rather_than,
        "predicted_class": explanation.predicted_class,
        "predicted_name": told(explanation.predicted_class),
        "label": None if label < 0 else told(label),
        "wrong": label >= 0 and label != explanation.predicted_class,
        "confidence": None if sure != sure else sure,
        "source": found.source[0],
        "sure": explanation.how_sure(),
        "likeliest": _likeliest(job, explanation),
        "sequence": job.snapshot.sequence,
    }


def _asked(job: RequestHandler, key: str) -> Json:
    """What an instance says of the target that the page calls so."""
    task = job.model.task
    numbers = [int(part) for part in key.split(",")]
    if len(numbers) != task.num_endpoints:
        form = "both ends, like 3,14" if task.num_endpoints > 1 else "a number"
        raise InputError(f"target must be {form} (got {key}).")
    return {"pair": tuple(numbers)} if task.num_endpoints > 1 else {task.name: numbers[0]}


def _walk(job: RequestHandler, explanation: Explanation, picture: Any) -> list[str | None]:
    """Where a click on each drawn disc leads: to that node; of a link, to the pair that it makes with the other end;
    None where that cannot be asked about, and nothing at all where features play, or graphs are explained."""
    task, types = explanation.task, explanation.game.types
    if explanation.batch.players.player_type == "features" or not task.has_distances:
        return []
    drawn = explanation.nodes[torch.from_numpy(picture.place)]
    kinds, own = types.locate(drawn) if types is not None else ([""] * len(drawn), drawn)
    if task.num_endpoints == 1:
        asked = types.node_types[0] if types is not None else ""
        return [str(node) if kind == asked else None for kind, node in zip(kinds, own.tolist(), strict=True)]
    ends = task.endpoints_of(explanation.target)
    (start, end), (u, v) = (types.locate(ends)[0], types.local_ids(ends)) if types is not None else (["", ""], ends)
    leads = {start: lambda node: f"{node},{v}", end: lambda node: f"{u},{node}"}  # of one type: to another second end
    there = set(ends.tolist())
    return [
        None if whole in there or kind not in leads else leads[kind](node)
        for kind, node, whole in zip(kinds, own.tolist(), drawn.tolist(), strict=True)
    ]


def _likeliest(job: RequestHandler, explanation: Explanation) -> list[Json]:
    """The classes that f finds likeliest; empty where its outputs are no classes."""
    game, told = explanation.game, job.called.class_name
    if game.value == "output":
        return []
    chance = game.full_logits[explanation.target].softmax(0)
    best = chance.topk(min(LIKELIEST, len(chance)))
    return [
        {"class": one, "name": told(one), "probability": round(value, 4)}
        for value, one in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]

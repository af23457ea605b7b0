"""What the explorer page asks for: lists of targets worth a look, and one explanation with everything that is shown."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from dgl_lara.drawing.interactive import view_data
from dgl_lara.explanation import Explanation
from dgl_lara.serve.jobs import Job, Json
from dgl_lara.serve.messages import Instance, TargetsQuery, ViewQuery
from dgl_lara.serve.table import UNKNOWN, short
from dgl_lara.utils.templates import rendered

LIKELIEST = 5  # classes that are shown of f's answer
THUMBNAIL = 60  # nodes of a graph in the gallery
GALLERY = 24  # graphs of one page of it


@cache
def explorer_page() -> str:
    """One file without any outside script, picture or font."""
    return rendered(__package__, "explorer.html")


# --- lists


def worth_a_look(job: Job, query: TargetsQuery) -> Json:
    """Targets by number, name, class, wrong prediction or confidence; of graphs also small pictures."""
    part, model = job.snapshot.first, job.model
    wanted = np.ones(len(part.predicted), dtype=bool)
    if model.task.local:
        wanted &= ~job.snapshot.gone
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
        known = part.table.state[found] != UNKNOWN
        found = found[known & ~np.isnan(part.table.confidence[found])]
        found = found[np.argsort(part.table.confidence[found], kind="stable")]
    some = found[query.offset : query.offset + (query.limit if model.task.local else min(query.limit, GALLERY))]
    rows = [_row(job, one, int(labels[one])) for one in some.tolist()]
    if not model.task.local:
        for row in rows:
            row["picture"] = _thumbnail(job, row["target"])
    return {"total": len(found), "rows": rows, "about": about(job)}


def about(job: Job) -> Json:
    """Of the model: what the page needs before anything is chosen."""
    model, snapshot, told = job.model, job.snapshot, job.class_names()
    config, part = model.lara.explainer_.config, snapshot.first
    alive = int((part.table.state != UNKNOWN).sum())
    return {
        "name": model.name,
        "dataset": model.run.dataset.name,
        "task": model.task.name,
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


def _labels(job: Job) -> np.ndarray:
    """(num_targets,) the true class, -1 where nobody knows."""
    known = job.model.run.dataset.labels.numpy()
    missing = len(job.snapshot.first.predicted) - len(known)
    return np.concatenate([known, np.full(missing, -1)]) if missing else known


def target_name(job: Job, target: int) -> str:
    return job.model.node_name(target) if job.model.task.local else str(target)


def _matches(job: Job, target: int, text: str) -> bool:
    return str(target).startswith(text) or text in target_name(job, target).lower()


def _row(job: Job, target: int, label: int) -> Json:
    part, told = job.snapshot.first, job.class_names()
    state, confidence = int(part.table.state[target]), float(part.table.confidence[target])
    predicted = int(part.predicted[target])
    return {
        "target": target,
        "name": target_name(job, target),
        "class": predicted,
        "class_name": told(predicted),
        "label": None if label < 0 else told(label),
        "wrong": label >= 0 and label != predicted,
        "confidence": None if state == UNKNOWN or confidence != confidence else confidence,
    }


def _thumbnail(job: Job, target: int) -> Json:
    part = job.snapshot.first
    if part.game.kind.name != "nodes":
        return {}
    scene = job.named(part.one(target, [])).scene(THUMBNAIL)
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


def view(job: Job, query: ViewQuery) -> Json:
    """In words, as a picture, a table and curves of the model's own outputs."""
    which = "node" if job.model.task.local else "graph"
    given: dict[str, Any] = {which: query.target, "class": query.asked_class, "rather_than": query.rather_than}
    instance = Instance(**given, players=query.players)
    found = job.explanation(instance)
    explanation = job.named(found)
    before = explanation.game.calls
    picture, story = explanation.view(query.most)
    job.model_calls += explanation.game.calls - before
    labels, target, told = _labels(job), explanation.target, job.class_names()
    label = int(labels[target])
    confidence = found.confidence
    sure = float("nan") if confidence is None else float(short(confidence.numpy())[0])
    return {
        **view_data(picture, story),
        "ids": _ids(explanation, picture),
        "target": target,
        "name": target_name(job, target),
        "players_kind": explanation.batch.players.kind,
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


def _ids(explanation: Explanation, picture: Any) -> list[int]:
    """The node that each drawn disc is; none where features play."""
    if explanation.batch.players.kind == "features":
        return []
    return explanation.nodes[torch.from_numpy(picture.place)].tolist()


def _likeliest(job: Job, explanation: Explanation) -> list[Json]:
    """The classes that f finds likeliest; empty where its outputs are no classes."""
    game, told = explanation.game, job.class_names()
    if game.value == "output":
        return []
    chance = game.logits[explanation.target].softmax(0)
    best = chance.topk(min(LIKELIEST, len(chance)))
    return [
        {"class": one, "name": told(one), "probability": round(value, 4)}
        for value, one in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]

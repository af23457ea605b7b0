"""Data of the explorer page: lists of targets, and one explanation with everything that the page shows of it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from dgl_lara._util.templates import rendered
from dgl_lara.explanation import Explanation
from dgl_lara.explanation.plot.scene import Scene
from dgl_lara.explanation.view import picture_of, view_of
from dgl_lara.serve.cache import UNKNOWN, round_digits
from dgl_lara.serve.handlers import RequestHandler
from dgl_lara.serve.ids import NOT_IN_RUN, Json
from dgl_lara.serve.schemas import Instance, TargetsQuery, ViewQuery

MAX_CLASSES = 5  # likeliest classes that are shown
MAX_THUMBNAIL_NODES = 60
MAX_THUMBNAILS = 24  # on one page
SLIDER_STEPS, SLIDER_STEPS_OF_MANY, MANY_NODES = 40, 10, 1000  # the model sees all nodes in each step


@cache
def explorer_page() -> str:
    """Return the HTML of the page, which loads nothing from other sites."""
    return rendered(__package__, "explorer.html")


def list_targets(handler: RequestHandler, query: TargetsQuery) -> Json:
    """Return targets that match a query, with a small picture of each graph if graphs are explained."""
    explainer, ids = handler.snapshot.first, handler.ids
    matches = ~handler.snapshot.removed
    if query.predicted is not None:
        matches &= explainer.predicted == query.predicted
    labels = _labels(handler)
    if query.wrong:
        matches &= (labels >= 0) & (labels != explainer.predicted)
    targets = np.flatnonzero(matches)
    if text := query.find.strip().lower():
        targets = np.array([one for one in targets.tolist() if _matches(handler, one, text)], dtype=np.int64)
        targets = targets[np.argsort([len(str(one)) for one in targets.tolist()], kind="stable")]
    if query.order == "confidence":
        confidence = explainer.cache.confidence
        targets = targets[explainer.cache.is_valid(targets) & ~np.isnan(confidence[targets])]
        targets = targets[np.argsort(confidence[targets], kind="stable")]
    limit = min(query.limit, MAX_THUMBNAILS) if ids.has_thumbnails else query.limit
    page = targets[query.offset : query.offset + limit].tolist()
    rows = [_row(handler, target, int(labels[target])) for target in page]
    if ids.has_thumbnails:
        for target, row in zip(page, rows, strict=True):
            row["picture"] = _thumbnail(handler, target)
    return {"total": len(targets), "rows": rows, "model": _model_info(handler)}


def _model_info(handler: RequestHandler) -> Json:
    """Return what the page shows of the model before a target is chosen."""
    model, snapshot = handler.model, handler.snapshot
    config, explainer = model.lara.explainer_.config, snapshot.first
    return {
        "name": model.name,
        "dataset": model.run.dataset.name,
        "task": model.task.name,
        "noun": handler.ids.noun,
        "targets": len(explainer.predicted),
        "edges": snapshot.graph.num_edges(),
        "hops": config.hops,
        "value": explainer.game.value,
        "classes": [handler.ids.class_name(one) for one in range(config.num_classes)],
        "counts": np.bincount(explainer.predicted, minlength=config.num_classes).tolist(),
        "all_classes": config.all_classes,
        "players": list(snapshot.explainers),
        "labelled": bool((_labels(handler) >= 0).any()),
        "explained": int((explainer.cache.state != UNKNOWN).sum()),
        "sequence": snapshot.sequence,
    }


def _labels(handler: RequestHandler) -> np.ndarray:
    """(num_targets,) the true classes. -1: unknown, or outputs are no classes."""
    count = len(handler.snapshot.removed)
    if handler.snapshot.first.game.value == "output":
        return np.full(count, -1)
    labels = handler.model.run.dataset.labels.numpy()
    return np.concatenate([labels, np.full(count - len(labels), -1)])


def _matches(handler: RequestHandler, target: int, text: str) -> bool:
    ids = handler.ids
    return str(ids.key(target)).startswith(text) or text in ids.target_name(target).lower()


def _row(handler: RequestHandler, target: int, label: int) -> Json:
    explainer, ids = handler.snapshot.first, handler.ids
    is_valid = bool(explainer.cache.is_valid(np.array([target]))[0])
    confidence, predicted = float(explainer.cache.confidence[target]), int(explainer.predicted[target])
    return {
        "target": ids.key(target),
        "name": ids.target_name(target),
        "class": predicted,
        "class_name": ids.class_name(predicted),
        "value": float(explainer.values[target]),
        "label": None if label < 0 else ids.class_name(label),
        "wrong": label >= 0 and label != predicted,
        "confidence": confidence if is_valid and confidence == confidence else None,
    }


def _thumbnail(handler: RequestHandler, target: int) -> Json:
    explanations = handler.snapshot.first.explain_one(target)
    scene = picture_of(handler.ids.named(explanations), MAX_THUMBNAIL_NODES)
    if not isinstance(scene, Scene) or scene.score is None:
        return {}
    low, high = scene.bounds
    return {
        "bounds": np.round([low[0], -high[1], high[0], -low[1]], 2).tolist(),
        "points": np.round(scene.position * (1, -1), 2).tolist(),
        "scores": (scene.score / scene.max_score).round(3).tolist(),
        "edges": scene.edges.tolist(),
        "marks": scene.marks,
    }


def view(handler: RequestHandler, query: ViewQuery) -> Json:
    """Return one explanation as text, picture, table and curves of the model's outputs."""
    target_fields = handler.ids.parse_key(query.target)
    options = {"class": query.explained_class, "rather_than": query.rather_than, "players": query.players}
    instance = Instance.model_validate({**target_fields, **options})
    explanations = handler.explanation(instance)
    explanation = handler.ids_of(instance, explanations).named(explanations)
    calls = explanation.game.caller.num_calls
    steps = SLIDER_STEPS if len(explanation.nodes) < MANY_NODES else SLIDER_STEPS_OF_MANY
    picture, data = view_of(explanation, query.most, steps)
    handler.model_calls += explanation.game.caller.num_calls - calls
    target, class_name = handler.target(instance), handler.ids.class_name
    label = -1 if target == NOT_IN_RUN else int(_labels(handler)[target])
    expected = explanations.confidence
    confidence = float("nan") if expected is None else float(round_digits(expected.numpy())[0])
    return {
        **data,
        "links": _links(handler, explanation, picture),
        "target": query.target if "," in query.target else int(query.target),
        "instance": target_fields,
        "player_set": explanation.batch.players.player_type,
        "explained_class": explanation.explained_class,
        "rather_than": query.rather_than,
        "predicted_class": explanation.predicted_class,
        "predicted_name": class_name(explanation.predicted_class),
        "label": None if label < 0 else class_name(label),
        "wrong": label >= 0 and label != explanation.predicted_class,
        "confidence": None if confidence != confidence else confidence,
        "source": explanations.source[0],
        "sure": explanation.how_sure(),
        "likeliest": _likeliest(handler, explanation),
        "sequence": handler.snapshot.sequence,
    }


def _links(handler: RequestHandler, explanation: Explanation, picture: Any) -> list[str | None]:
    """Return the key that a click on each drawn node opens, or nothing if no nodes are drawn."""
    if not isinstance(picture, Scene):
        return []
    return handler.ids.links_of(explanation, explanation.nodes[torch.from_numpy(picture.index)])


def _likeliest(handler: RequestHandler, explanation: Explanation) -> list[Json]:
    """Return the likeliest classes, or nothing if outputs are no classes."""
    game = explanation.game
    if game.value == "output":
        return []
    probabilities = game.full_logits[explanation.target].softmax(0)
    best = probabilities.topk(min(MAX_CLASSES, len(probabilities)))
    return [
        {"class": one, "name": handler.ids.class_name(one), "probability": round(value, 4)}
        for value, one in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]

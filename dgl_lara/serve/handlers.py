"""Requests to explain or predict: parsed, then answered from the cache or computed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import torch

from dgl_lara.errors import InputError
from dgl_lara.game.values import ClassQuery
from dgl_lara.inference.request import refine_as_requested
from dgl_lara.inference.targets import classes_of_options
from dgl_lara.serve.cache import TopKRows, round_digits
from dgl_lara.serve.explainer import ServedExplainer, explanation_fields
from dgl_lara.serve.ids import NOT_IN_RUN, IdCodec, Json
from dgl_lara.serve.request_graph import lara_on_subgraph
from dgl_lara.serve.schemas import TOP, ExplainBody, Instance, PredictBody, TargetRef, parse_body, parse_plain_nodes

if TYPE_CHECKING:
    from dgl_lara.explanation import Explanations
    from dgl_lara.lara import LARA
    from dgl_lara.serve.model import ServedModel


class RequestHandler:
    """Answers one request to one model, on the snapshot that is the newest when it is created."""

    def __init__(self, model: ServedModel, deadline: float = float("inf")) -> None:
        self.model, self.snapshot, self.deadline = model, model.follow(), deadline
        self.ids = model.ids
        self.computed = self.from_cache = self.model_calls = 0

    def _check_deadline(self) -> None:
        if time.monotonic() > self.deadline:
            raise TimeoutError

    # --- what a request names

    def target(self, ref: TargetRef) -> int:
        """Return the index of a target, or NOT_IN_RUN."""
        return int(self.targets([ref])[0])

    def targets(self, refs: Sequence[TargetRef]) -> np.ndarray:
        """Return the indices of targets, see `target`."""
        return self._present(self.ids.indices(refs, len(self.snapshot.removed)))

    def _present(self, targets: np.ndarray) -> np.ndarray:
        if self.snapshot.sequence and self.snapshot.removed[targets].any():
            raise InputError("node.removed", got=int(targets[self.snapshot.removed[targets]][0]))
        return targets

    def explainer(self, players: str | None) -> ServedExplainer:
        """Return the explainer of a player set, by default of the first."""
        if players is None:
            return self.snapshot.first
        if players not in self.snapshot.explainers:
            raise InputError("players.untrained", trained=" and ".join(self.snapshot.explainers), got=players)
        return self.snapshot.explainers[players]

    def parse(self, body: bytes) -> _CachedQuery | _ComputedQuery:
        """Parse a request to explain."""
        nodes = parse_plain_nodes(body) if self.ids.is_plain else None
        if nodes is not None:
            targets = self._present(self.ids.checked(nodes, len(self.snapshot.removed)))
            return _CachedQuery(self, self.snapshot.first, targets)
        instances = parse_body(ExplainBody, body).instances
        players = instances[0].players
        if all(one.is_cacheable and one.players == players for one in instances):
            targets = self.targets(instances)
            if not (targets == NOT_IN_RUN).any():
                return _CachedQuery(self, self.explainer(players), targets, [one.top for one in instances])
        return _ComputedQuery(self, instances)

    # --- explanations

    def explanation(self, instance: Instance) -> Explanations:
        """Compute the explanation of one instance."""
        request = instance.request()
        num_classes = self.model.lara.explainer_.config.num_classes
        options = ("class", "rather_than")
        classes = classes_of_options(request.classes, self.ids.names.get("classes"), num_classes, options)
        explainer = self.explainer(request.players)
        lara, target = self.locate(instance, explainer.lara)
        if lara is explainer.lara:
            before = lara.game.caller.num_calls
            explanations = explainer.explain_one(target, classes)
        else:
            before = 0
            explanations = lara.explain(torch.tensor([target]), ClassQuery.repeat(classes, 1))
        game = explanations.game or lara.game
        stretch = lara.fitted.stretch
        explanations, _, _ = refine_as_requested(game, explanations, request.refine, stretch)
        self.computed += 1
        self.model_calls += game.caller.num_calls - before
        return explanations

    def locate(self, ref: TargetRef, lara: LARA) -> tuple[LARA, int]:
        """Return the explainer on the graph of a target, which the run may lack, and the index of the target there."""
        if ref.subgraph is not None:
            self.ids.check_subgraph_fields(ref)
            other = lara_on_subgraph(lara, ref.subgraph, ref.pair)
            return other, self.ids.index_in_subgraph(ref, other.task.num_targets(other.graph))
        target = self.target(ref)
        if target == NOT_IN_RUN:
            assert ref.pair is not None
            return lara.for_pairs([ref.pair]), 0
        return lara, target

    def ids_of(self, ref: TargetRef, explanations: Explanations) -> IdCodec:
        """Return the ids for an explanation. A graph of the request has no names."""
        assert explanations.game is not None
        if ref.subgraph is None and explanations.game.task is self.model.task:
            return self.ids
        return self.ids.for_request(explanations.game, ref.subgraph is not None)

    # --- predictions

    def predict(self, body: PredictBody) -> Json:
        """Return the outputs of the model."""
        return {"predictions": [self._prediction(ref) for ref in body.instances]}

    def _prediction(self, ref: TargetRef) -> Json:
        self._check_deadline()
        first = self.snapshot.first.lara
        lara, target = self.locate(ref, first)
        if lara is not first:
            self.model_calls += lara.game.caller.num_calls
        predicted = int(lara.game.explained_class[target])
        return {
            "target": list(ref.pair) if ref.pair else target,
            "class": predicted,
            "name": self.ids.class_name(predicted),
            "logits": round_digits(lara.game.full_logits[target].numpy()).tolist(),
        }


@dataclass(frozen=True, eq=False)
class _CachedQuery:
    """Explanations that the cache holds, or will hold: the best `tops` players of each, or all that it keeps."""

    handler: RequestHandler
    explainer: ServedExplainer
    targets: np.ndarray
    tops: list[int] | None = None
    is_long = False

    @property
    def is_ready(self) -> bool:
        """Whether nothing needs to be computed."""
        return not len(self.explainer.cache.missing(self.targets))

    def answer(self) -> Json:
        """Return predictions and explanations, and compute those that are missing."""
        explainer, targets = self.explainer, self.targets
        num_missing = explainer.fill_missing(targets)
        self.handler.computed, self.handler.from_cache = num_missing, len(targets) - num_missing
        predictions = (explainer.values if explainer.game.value == "output" else explainer.predicted)[targets].tolist()
        texts = explainer.cache.texts(targets) if self.tops is None else None
        rows: Any
        if texts is not None:
            rows = orjson.Fragment(b"[%b]" % b",".join(texts))
        else:
            rows = list(explainer.to_json(targets, explainer.cache.read(targets), self.tops or [TOP] * len(targets)))
        return {"predictions": predictions, "explanations": rows}


@dataclass(frozen=True, eq=False)
class _ComputedQuery:
    """Explanations that no cache holds, computed one after the other."""

    handler: RequestHandler
    instances: list[Instance]
    is_long, is_ready = True, False

    def answer(self) -> Json:
        """Return predictions and explanations."""
        predictions, rows = zip(*map(self._single, self.instances), strict=True)
        return {"predictions": predictions, "explanations": rows}

    def _single(self, instance: Instance) -> tuple[int | float, Json]:
        self.handler._check_deadline()
        explanations = self.handler.explanation(instance)
        game, targets = explanations.game, explanations.players.targets
        assert game is not None
        best = TopKRows.of(explanations, min(instance.top, max(1, len(explanations.scores))))
        ((trust, players),) = explanation_fields(best, best.kept)
        ids = self.handler.ids_of(instance, explanations).players(explanations)
        names = dict(zip(explanations.players.player.tolist(), ids, strict=True))
        row: Json = {
            "target": list(instance.pair) if instance.pair else int(targets),
            "class": int(explanations.explained_class),
            "value": float(round_digits(game.full_value_of(targets, explanations.query).numpy())[0]),
            **trust,
            "players": [{**names[player], "hop": hop, "score": score} for player, hop, score in players],
        }
        if explanations.rather_than is not None:
            row["rather_than"] = int(explanations.rather_than)
        return row["value"] if game.value == "output" else int(game.explained_class[targets]), row

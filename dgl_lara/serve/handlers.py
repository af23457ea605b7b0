"""Requests turned into answers: what the table knows is read from it, the rest is computed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import torch
from torch import Tensor

from dgl_lara.errors import InputError
from dgl_lara.explanation import SOURCES, Explanations
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.lara import LARA
from dgl_lara.serve.cache import CORRECTED, TopKRows, short
from dgl_lara.serve.explainer import ServedExplainer
from dgl_lara.serve.ids import ELSEWHERE, IdCodec, Json
from dgl_lara.serve.model import ServedModel
from dgl_lara.serve.request_graph import on_brought
from dgl_lara.serve.schemas import TOP, ExplainRequest, Instance, PredictRequest, TargetRef, read, usual_nodes


@dataclass(frozen=True)
class CachedQuery:
    """Explanations that stand in a table, or will. `tops`: how many players of each; None: all that are kept there."""

    part: ServedExplainer
    targets: np.ndarray
    tops: list[int] | None

    @property
    def is_known(self) -> bool:
        """Nothing needs to be computed."""
        return not len(self.part.table.unknown(self.targets))


class RequestHandler:
    """One request to one model, on the snapshot that was the newest when it came."""

    def __init__(self, model: ServedModel, deadline: float = float("inf")) -> None:
        self.model, self.snapshot, self.deadline = model, model.follow(), deadline
        self.called = model.called
        self.computed = self.from_table = self.model_calls = 0

    # --- what is asked about

    def target(self, asked: TargetRef) -> int:
        """Its number; InputError where there is none."""
        return int(self.targets([asked])[0])

    def targets(self, asked: Sequence[TargetRef]) -> np.ndarray:
        return self._there(self.called.numbers(asked, len(self.snapshot.first.predicted)))

    def _there(self, found: np.ndarray) -> np.ndarray:
        if self.snapshot.sequence and self.snapshot.gone_targets[found].any():
            raise InputError(f"node {found[self.snapshot.gone_targets[found]][0]} was removed from the graph.")
        return found

    def part(self, instance: TargetRef) -> ServedExplainer:
        kind = instance.players if isinstance(instance, Instance) else None
        if kind is None:
            return self.snapshot.first
        if kind not in self.snapshot.parts:
            held = " and ".join(self.snapshot.parts)
            raise InputError(f"this model scores {held}, not {kind}; train it with --players {kind}.")
        return self.snapshot.parts[kind]

    def is_plain(self, instance: Instance) -> bool:
        """The table can answer it."""
        return (
            instance.subgraph is None
            and instance.asked_class is None
            and instance.rather_than is None
            and instance.refine is None
            and instance.top <= TOP
        )

    def elsewhere(self, asked: TargetRef) -> LARA | None:
        """The same g on a graph that came with the request, or for a pair that the run was not made for: of either the
        one target there is. None: the run knows it."""
        base = self.part(asked).lara
        if asked.subgraph is not None:
            self._check_own(asked)
            return on_brought(base, asked.subgraph, asked.pair)
        if self.target(asked) == ELSEWHERE:
            assert asked.pair is not None
            return base.about([asked.pair])
        return None

    def _check_own(self, asked: TargetRef) -> None:
        """A subgraph of its own: the instance names what of it is meant."""
        named = [name for name in ("node", "graph", "pair") if getattr(asked, name) is not None]
        wanted = ["pair"] if self.model.task.num_endpoints > 1 else ["node"] if self.model.task.has_distances else []
        if named != wanted:
            one = f'one of its {wanted[0]}s with "{wanted[0]}"' if wanted else "nothing else"
            raise InputError(f"this model explains {self.model.task}s: with a subgraph an instance names {one}.")

    # --- explanations

    def understood(self, body: bytes) -> CachedQuery | ExplainRequest:
        """What is asked; `Stored`, where the table can answer all of it for one kind of players."""
        usual = usual_nodes(body) if self.model.task.has_distances and self.model.task.num_endpoints == 1 else None
        if usual is not None:
            found = self._there(self.called.checked(usual, len(self.snapshot.first.predicted)))
            return CachedQuery(self.snapshot.first, found, None)
        request = read(ExplainRequest, body)
        one = request.instances[0]
        if all(self.is_plain(other) and other.players == one.players for other in request.instances):
            targets = self.targets(request.instances)
            if not (targets == ELSEWHERE).any():
                return CachedQuery(self.part(one), targets, [other.top for other in request.instances])
        return request

    def explain(self, asked: CachedQuery | ExplainRequest) -> Any:
        if isinstance(asked, CachedQuery):
            return self._stored(asked)
        rows, predicted = [], []
        for instance in asked.instances:
            if time.monotonic() > self.deadline:
                raise TimeoutError
            row, said = self._single(instance)
            rows.append(row)
            predicted.append(said)
        return {"predictions": predicted, "explanations": rows}

    def _stored(self, asked: CachedQuery) -> Any:
        part, targets = asked.part, asked.targets
        unknown = np.unique(part.table.unknown(targets))
        if len(unknown):
            part.compute(unknown)
        self.computed, self.from_table = len(unknown), len(targets) - len(unknown)
        said = (part.values if part.game.value == "output" else part.predicted)[targets].tolist()
        texts = part.table.texts(targets) if asked.tops is None else None
        if texts is not None:
            rows: Any = orjson.Fragment(b"[%b]" % b",".join(texts))
        else:
            rows = list(part.rows(targets, part.table.read(targets), asked.tops or [TOP] * len(targets)))
        return {"predictions": said, "explanations": rows}

    def classes_of(self, instance: Instance) -> list[int]:
        classes = [one for one in (instance.asked_class, instance.rather_than) if one is not None]
        if instance.rather_than is not None and instance.asked_class is None:
            raise InputError("rather_than goes with class: why one class rather than the other.")
        if len(classes) == 2 and classes[0] == classes[1]:
            raise InputError(f"class and rather_than must be two classes (got {classes[0]} twice).")
        known = self.model.lara.explainer_.config.num_classes
        for one in classes:
            if one >= known:
                raise InputError(f"class must be in 0..{known - 1} (got {one}).")
        return classes

    def _single(self, instance: Instance) -> tuple[Json, int | float]:
        found = self.explanation(instance)
        game = found.game
        assert game is not None
        best = TopKRows.of(found, min(instance.top, max(1, len(found.scores))))
        targets, told = found.players.targets, self.naming(instance, found).players(found)
        called = dict(zip(found.players.player.tolist(), told, strict=True))
        confidence = float(best.confidence[0])
        players = zip(best.player[0].tolist(), best.hop[0].tolist(), best.score[0].tolist(), strict=True)
        row: Json = {
            "target": list(instance.pair) if instance.pair else int(targets),
            "class": int(found.explained_class),
            "value": float(short(game.full_value_of(targets, found.query).numpy())[0]),
            "confidence": None if confidence != confidence else confidence,
            "source": SOURCES[bool(best.state[0] == CORRECTED)],
            "players": [{**called[player], "hop": hop, "score": score} for player, hop, score in players][
                : int(best.kept[0])
            ],
        }
        if found.rather_than is not None:
            row["rather_than"] = int(found.rather_than)
        return row, row["value"] if game.value == "output" else int(game.explained_class[targets])

    def naming(self, asked: TargetRef, found: Explanations) -> IdCodec:
        """A graph that came along has no names; pairs that are new have those of all others."""
        if asked.subgraph is None and found.game is not None and found.game.task is self.model.task:
            return self.called
        assert found.game is not None
        return IdCodec(LARA.of_game(found.game), {} if asked.subgraph else self.called.names, self.called.node_name)

    def explanation(self, instance: Instance) -> Explanations:
        """Of one target, with everything that was asked for."""
        classes, lara = self.classes_of(instance), self.elsewhere(instance)
        if lara is not None:
            before = 0
            found = lara.explain(self._own_target(instance, lara), ClassQuery.repeat(classes, 1))
        else:
            part = self.part(instance)
            lara, before = part.lara, part.game.num_calls
            found = part.one(self.target(instance), classes)
        self.computed += 1
        if instance.refine:
            found = lara.refine(found, instance.refine).explanations
        assert found.game is not None
        self.model_calls += found.game.num_calls - before
        return found

    def _own_target(self, asked: TargetRef, lara: LARA) -> Tensor:
        """The one that is meant, where it is not among those of the run."""
        if lara.task.num_endpoints > 1 or not lara.task.has_distances:
            return torch.tensor([0])
        count = lara.task.num_targets(lara.graph)
        if asked.node is None or asked.node >= count:
            raise InputError(f"node must be in 0..{count - 1} of the subgraph (got {asked.node}).")
        return torch.tensor([asked.node])

    # --- predictions

    def predict(self, request: PredictRequest) -> Json:
        """f's own answer."""
        rows = []
        for asked in request.instances:
            if time.monotonic() > self.deadline:
                raise TimeoutError
            lara = self.elsewhere(asked)
            if lara is not None:
                target, game = int(self._own_target(asked, lara)), lara.game
                self.model_calls += game.num_calls
            else:
                target, game = self.target(asked), self.snapshot.first.game
            explained = int(game.explained_class[target])
            rows.append(
                {
                    "target": list(asked.pair) if asked.pair else target,
                    "class": explained,
                    "name": self.called.class_name(explained),
                    "logits": short(game.full_logits[target].numpy()).tolist(),
                }
            )
        return {"predictions": rows}

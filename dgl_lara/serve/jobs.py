"""Requests turned into answers: what the table knows is read from it, the rest is computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import dgl
import numpy as np
import orjson
import torch
from torch import Tensor

from dgl_lara.errors import InputError
from dgl_lara.explanation import SOURCES, Explanation, Explanations
from dgl_lara.lara import LARA
from dgl_lara.serve.messages import TOP, Asked, ExplainRequest, Instance, PredictRequest, Subgraph
from dgl_lara.serve.part import Part, on_graph
from dgl_lara.serve.served import ServedModel
from dgl_lara.serve.table import CORRECTED, Best, short

Json = dict[str, Any]


class Job:
    """One request to one model, on the snapshot that was the newest when it came."""

    def __init__(self, model: ServedModel, deadline: float = float("inf")) -> None:
        self.model, self.snapshot, self.deadline = model, model.follow(), deadline
        self.computed = self.from_table = self.model_calls = 0

    # --- what is asked about

    def target(self, asked: Asked) -> int:
        """Its number; InputError where there is none."""
        return int(self.targets([asked])[0])

    def targets(self, asked: Sequence[Asked]) -> np.ndarray:
        task, gone = self.model.task, self.snapshot.gone
        if task.local:
            given = [one.node if one.graph is None else None for one in asked]
        else:
            given = [one.graph if one.node is None else None for one in asked]
        if None in given:
            raise InputError(f'this model explains {task}s: name one with "{task}", and nothing else.')
        found, count = np.array(given, dtype=np.int64), len(self.snapshot.first.predicted)
        if found.max() >= count:
            raise InputError(f"{task} must be in 0..{count - 1} (got {found.max()}).")
        if task.local and gone[found].any():
            raise InputError(f"node {found[gone[found]][0]} was removed from the graph.")
        return found

    def part(self, instance: Instance) -> Part:
        kind = instance.players
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

    # --- explanations

    def plain_targets(self, request: ExplainRequest) -> np.ndarray | None:
        """Where the table can answer everything, for one kind of players: whom it is asked about."""
        kind = request.instances[0].players
        if not all(self.is_plain(one) and one.players == kind for one in request.instances):
            return None
        return self.targets(request.instances)

    def is_known(self, request: ExplainRequest, targets: np.ndarray) -> bool:
        """Nothing needs to be computed."""
        return not len(self.part(request.instances[0]).table.unknown(targets))

    def explain(self, request: ExplainRequest) -> Json:
        targets = self.plain_targets(request)
        if targets is not None:
            return self.plain(request, targets)
        rows, predicted = [], []
        for instance in request.instances:
            if time.monotonic() > self.deadline:
                raise TimeoutError
            row, said = self._single(instance)
            rows.append(row)
            predicted.append(said)
        return {"predictions": predicted, "explanations": rows}

    def plain(self, request: ExplainRequest, targets: np.ndarray) -> Json:
        part = self.part(request.instances[0])
        self.computed = len(np.unique(part.table.unknown(targets)))
        self.from_table = len(targets) - self.computed
        best, classes = part.best(targets), part.predicted[targets].tolist()
        tops = [instance.top for instance in request.instances]
        figures = zip(
            targets.tolist(), classes, part.values[targets].tolist(), best.confidence.tolist(),
            (best.state == CORRECTED).tolist(), self._players(part, targets, best, tops), strict=True,
        )  # fmt: skip
        rows = [
            {
                "target": target,
                "class": explained,
                "value": value,
                "confidence": None if confidence != confidence else confidence,
                "source": SOURCES[corrected],
                "players": players,
            }
            for target, explained, value, confidence, corrected, players in figures
        ]
        return {"predictions": classes, "explanations": rows}

    def _players(self, part: Part, targets: np.ndarray, best: Best, tops: list[int]) -> Iterable[Any]:
        """Of each target; where all of them are wanted, the text that the table holds."""
        texts = part.table.texts(targets) if min(tops) == TOP else None
        if texts is not None:
            return map(orjson.Fragment, texts)
        name, kept = self.namer(part), np.minimum(best.kept, tops).tolist()
        figures = zip(targets.tolist(), kept, best.player.tolist(), best.hop.tolist(), best.score.tolist(), strict=True)
        return (
            [
                {"id": player, "name": name(player, target), "hop": hop, "score": score}
                for player, hop, score in zip(players[:k], hops[:k], scores[:k], strict=True)
            ]
            for target, k, players, hops, scores in figures
        )

    def namer(self, part: Part) -> Callable[[int, int], str]:
        """(player, target) -> what it is called."""
        if part.game.kind.name == "nodes" and self.model.task.local:
            return lambda player, target: part.name(player)
        names: dict[int, dict[int, str]] = {}

        def by_library(player: int, target: int) -> str:
            if target not in names:
                players = part.game.players(torch.tensor([target]))
                nothing = torch.zeros(len(players.player))
                classes = part.game.explained_class[players.targets]
                one = self.named(Explanations(players, nothing, classes, self.model.task, "lara", part.game))
                names[target] = dict(zip(one.players.tolist(), one.player_names(), strict=True))
            return names[target][player]

        return by_library

    def named(self, found: Explanations) -> Explanation:
        """The first of them, with the names of the data set."""
        names = dict(self.model.names)
        count = found.game.graph.num_nodes() if found.game else 0
        if names["labels"] is not None and len(names["labels"]) < count:
            names["labels"] = [self.model.node_name(node) for node in range(count)]
        if names["motif"] is not None and len(names["motif"]) < count:
            more = names["motif"].new_full((count - len(names["motif"]),), -1)
            names["motif"] = torch.cat([names["motif"], more])
        return found.named(**names)[0]

    def classes_of(self, instance: Instance) -> list[int]:
        classes = [one for one in (instance.asked_class, instance.rather_than) if one is not None]
        if instance.rather_than is not None and instance.asked_class is None:
            raise InputError("rather_than goes with class: why one class rather than the other.")
        known = self.model.lara.explainer_.config.num_classes
        for one in classes:
            if one >= known:
                raise InputError(f"class must be in 0..{known - 1} (got {one}).")
        return classes

    def _single(self, instance: Instance) -> tuple[Json, int]:
        found = self.explanation(instance)
        game = found.game
        assert game is not None
        best = Best.of(found, min(instance.top, max(1, len(found.scores))))
        targets = found.players.targets
        names = self._plain_names(found) if instance.subgraph else self.named(found).player_names()
        called = dict(zip(found.players.player.tolist(), names, strict=True))
        confidence = float(best.confidence[0])
        row: Json = {
            "target": int(targets),
            "class": int(found.explained_class),
            "value": float(short(game.value_of(targets, found.asked).numpy())[0]),
            "confidence": None if confidence != confidence else confidence,
            "source": SOURCES[bool(best.state[0] == CORRECTED)],
            "players": [
                {"id": player, "name": called[player], "hop": hop, "score": score}
                for player, hop, score in zip(
                    best.player[0].tolist(), best.hop[0].tolist(), best.score[0].tolist(), strict=True
                )
            ][: int(best.kept[0])],
        }
        if found.rather_than is not None:
            row["rather_than"] = int(found.rather_than)
        return row, int(game.explained_class[targets])

    @staticmethod
    def _plain_names(found: Explanations) -> list[str]:
        return found[0].player_names()

    def explanation(self, instance: Instance) -> Explanations:
        """Of one target, with everything that was asked for."""
        classes = self.classes_of(instance)
        if instance.subgraph is not None:
            lara, target = self.brought(instance)
            before = 0
            asked = None if not classes else (tuple(classes) if len(classes) == 2 else classes)
            found = lara.explain([target], asked)
        else:
            part = self.part(instance)
            lara, before = part.lara, part.game.calls
            found = part.one(self.target(instance), classes)
        self.computed += 1
        if instance.refine:
            found = lara.refine(found, instance.refine).explanations
        assert found.game is not None
        self.model_calls += found.game.calls - before
        return found

    def brought(self, asked: Asked) -> tuple[LARA, int]:
        """A graph that came with the request, and which of its nodes is meant; explained by the same g."""
        assert asked.subgraph is not None
        kind = asked.players if isinstance(asked, Instance) else None
        base = self.model.lara if kind is None else self.part(asked).lara  # type: ignore[arg-type]
        graph, features = as_graph(asked.subgraph, base)
        if self.model.task.local:
            if asked.node is None or asked.graph is not None:
                raise InputError('with a subgraph of its own an instance names one of its nodes with "node".')
            if asked.node >= len(features):
                raise InputError(f"node must be in 0..{len(features) - 1} of the subgraph (got {asked.node}).")
        elif asked.node is not None or asked.graph is not None:
            raise InputError("this model explains graphs: with a subgraph of its own an instance names nothing else.")
        return on_graph(base, graph, features), asked.node or 0

    # --- predictions

    def predict(self, request: PredictRequest) -> Json:
        """f's own answer."""
        numbers, logits, classes = [], [], []
        for asked in request.instances:
            if time.monotonic() > self.deadline:
                raise TimeoutError
            if asked.subgraph is not None:
                lara, target = self.brought(asked)
                game = lara.game
                self.model_calls += game.calls
            else:
                target, game = self.target(asked), self.snapshot.first.game
            numbers.append(target)
            logits.append(short(game.logits[target].numpy()).tolist())
            classes.append(int(game.explained_class[target]))
        told = self.class_names()
        return {
            "predictions": [
                {"target": target, "class": one, "name": told(one), "logits": row}
                for target, one, row in zip(numbers, classes, logits, strict=True)
            ]
        }

    def class_names(self) -> Any:
        names = self.model.names["classes"] or ()
        return lambda one: str(names[one]) if one < len(names) else str(one)


def as_graph(given: Subgraph, base: LARA) -> tuple[dgl.DGLGraph, Tensor]:
    count, width = len(given.features), base.features.shape[1]
    for row, numbers in enumerate(given.features):
        if len(numbers) != width:
            raise InputError(f"subgraph.features.{row} must be {width} numbers (got {len(numbers)}).")
    ends = torch.tensor(given.edges, dtype=torch.long).view(-1, 2)
    if len(ends) and int(ends.max()) >= count:
        raise InputError(f"subgraph.edges must name nodes 0..{count - 1} (got {int(ends.max())}).")
    graph = dgl.graph((ends[:, 0], ends[:, 1]), num_nodes=count)
    features = torch.tensor(given.features, dtype=base.features.dtype)
    if not bool(torch.isfinite(features).all()):
        raise InputError("subgraph.features must be numbers of ordinary size.")
    return graph, features

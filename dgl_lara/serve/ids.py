"""What targets and players are called in requests and answers: nodes by their numbers, on a graph of several types by
type and number there; links by both ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanation, Explanations
from dgl_lara.game.inputs import to_internal_pairs, to_user_pairs
from dgl_lara.game.link_task import LinkTask
from dgl_lara.lara import LARA
from dgl_lara.serve.schemas import TargetRef

Json = dict[str, Any]
ELSEWHERE = -1  # the number of a pair that the run was not made for


class IdCodec:
    """`names`: of the data set; `node_name`: of a node that may have come later."""

    def __init__(self, lara: LARA, names: Mapping[str, Any], node_name: Callable[[int], str] = str) -> None:
        self.lara, self.task, self.types, self.node_name = lara, lara.task, lara.types, node_name
        self.names = dict(names)
        if self.types is not None and isinstance(names.get("labels"), Mapping):
            self.names["labels"] = self.types.node_names(names["labels"])

    # --- from requests to numbers

    def numbers(self, asked: Sequence[TargetRef], count: int) -> np.ndarray:
        """Of the targets that are asked about, of which there are `count`."""
        noun = "pair" if self.task.num_endpoints > 1 else self.task.name
        given = [getattr(one, noun) for one in asked]
        for other in {"node", "graph", "pair"} - {noun}:
            if any(getattr(one, other) is not None for one in asked):
                given = [None]
        if None in given:
            raise InputError(f'this model explains {self.task}s: name one with "{noun}", and nothing else.')
        for one in asked:
            if one.type is not None or one.relation is not None:
                self._check_kind(one)
        if isinstance(self.task, LinkTask):
            return self._places(asked)
        return self.checked(given, count)

    def checked(self, numbers: list[int], count: int) -> np.ndarray:
        """Those of targets, of which there are so many."""
        if (largest := max(numbers)) >= count:
            of = self.types.node_types[0] if self.types is not None else self.task
            raise InputError(f"{of} must be in 0..{count - 1} (got {largest}).")
        return np.array(numbers, dtype=np.int64)

    def _check_kind(self, asked: TargetRef) -> None:
        if self.task.num_endpoints > 1 and asked.type is None:
            return  # the relation is checked with its pair
        if self.task.num_endpoints > 1 or asked.relation is not None:
            raise InputError('a node has a "type", and a pair a "relation", where there are several.')
        if self.types is None:
            raise InputError(f"this model's nodes have one type: leave out type (got '{asked.type}').")
        if asked.type != self.types.node_types[0]:
            raise InputError(
                f"this model explains nodes of the type '{self.types.node_types[0]}' (got '{asked.type}')."
            )

    def pair(self, asked: TargetRef) -> tuple[int, int]:
        """Its ends on the graph that is played on; InputError where there is no such pair."""
        u, v = asked.pair or (0, 0)
        named: Any = (u, v) if asked.relation is None else (u, asked.relation, v)
        first, second = to_internal_pairs(self.lara.model, self.lara.graph, [named], self.lara.asked["relation"])[
            0
        ].tolist()
        return first, second

    def _places(self, asked: Sequence[TargetRef]) -> np.ndarray:
        return np.array([self._place_of.get(self.pair(one), ELSEWHERE) for one in asked], dtype=np.int64)

    @cached_property
    def _place_of(self) -> dict[tuple[int, int], int]:
        assert isinstance(self.task, LinkTask)
        return {(u, v): place for place, (u, v) in enumerate(self.task.pairs.tolist())}

    # --- from numbers to answers

    def target(self, number: int) -> int | list[int]:
        """Its number; of a link both ends."""
        return number if self._ends is None else self._ends[number]

    @cached_property
    def _ends(self) -> list[list[int]] | None:
        return to_user_pairs(self.lara.model, self.task.pairs).tolist() if isinstance(self.task, LinkTask) else None

    def target_name(self, number: int) -> str:
        """For people, in a list."""
        if self._ends is not None:
            return " → ".join(self.of_node(node)["name"] for node in self.task.endpoints_of(number).tolist())
        return self.of_node(number)["name"] if self.task.has_distances else str(number)

    def of_node(self, node: int) -> Json:
        """id and name of a node; of several types also its type."""
        if self.types is None:
            return {"id": node, "name": self.node_name(node)}
        kind, own = self._kinds[node], self._own[node]
        labels = self.names.get("labels")
        return {"id": own, "type": kind, "name": (labels[node] if labels else "") or f"{kind} {own}"}

    @cached_property
    def _kinds(self) -> list[str]:
        assert self.types is not None
        return self.types.locate(torch.arange(self.lara.graph.num_nodes()))[0]

    @cached_property
    def _own(self) -> list[int]:
        assert self.types is not None
        return self.types.local_ids(torch.arange(self.lara.graph.num_nodes())).tolist()

    def of_player(self, node: int, target: int) -> Json:
        """The same where nodes play; both ends of a link are one player."""
        told = self.of_node(node)
        if isinstance(self.task, LinkTask) and node == int(self.task.pairs[target, 0]):
            told["name"] = "both ends"
        return told

    def players(self, found: Explanations) -> list[Json]:
        """id and name of each player of the first target, in the order of its players."""
        ids, target = found.players.player.tolist(), int(found.players.targets[0])
        if found.players.player_type == "nodes" and self.task.has_distances:
            return [self.of_player(node, target) for node in ids]
        names = self.named(found).player_names()
        return [{"id": player, "name": name} for player, name in zip(ids, names, strict=True)]

    def named(self, found: Explanations) -> Explanation:
        """The first of them, with the names of the data set; nodes that came later have theirs too."""
        names = dict.fromkeys(("labels", "columns", "motif", "classes")) | self.names
        count = found.game.graph.num_nodes() if found.game else 0
        if names["labels"] is not None and len(names["labels"]) < count:
            names["labels"] = [self.node_name(node) for node in range(count)]
        if names["motif"] is not None and len(names["motif"]) < count:
            more = names["motif"].new_full((count - len(names["motif"]),), -1)
            names["motif"] = torch.cat([names["motif"], more])
        return found.named(**names)[0]

    def class_name(self, number: int) -> str:
        names = self.names.get("classes") or ()
        return str(names[number]) if number < len(names) else str(number)

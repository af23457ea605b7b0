"""Ids and names of nodes, targets and players in requests and answers.

A node is called by its number, on a graph with several types by its type and its number there, and a link by its ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_lara.blackbox.hetero_index import HeteroIndex
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanation, Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.inputs import to_internal_pairs, to_user_pairs
from dgl_lara.game.link_task import LinkTask
from dgl_lara.serve.schemas import TargetRef

Json = dict[str, Any]
NOT_IN_RUN = -1  # index of a pair that the run was not trained with
TARGET_FIELDS = ("node", "graph", "pair")


class _NodeIds:
    """Ids and names of the nodes of a graph with one type."""

    def __init__(self, name: Callable[[int], str]) -> None:
        self.name = name

    def check_type(self, name: str) -> None:
        """Raise if a request names another type than the explained one."""
        raise InputError("instance.type_alone", got=name)

    def entry(self, node: int) -> Json:
        """Return the id and the name of a node."""
        return {"id": node, "name": self.name(node)}

    def split(self, nodes: Tensor) -> tuple[list[str], list[int]]:
        """Return the type and the number within that type of each node."""
        return [""] * len(nodes), nodes.tolist()

    @property
    def target_type(self) -> str:
        return ""


class _HeteroNodeIds(_NodeIds):
    """Ids and names of the nodes of a graph with several types."""

    def __init__(self, types: HeteroIndex, labels: Sequence[str] | None) -> None:
        self.types, self.labels = types, labels

    def check_type(self, name: str) -> None:
        if name != self.target_type:
            raise InputError("instance.type", expected=self.target_type, got=name)

    def entry(self, node: int) -> Json:
        node_type, number = self._all[0][node], self._all[1][node]
        name = (self.labels[node] if self.labels else "") or f"{node_type} {number}"
        return {"id": number, "type": node_type, "name": name}

    def split(self, nodes: Tensor) -> tuple[list[str], list[int]]:
        names, numbers = self.types.locate(nodes)
        return names, numbers.tolist()

    @property
    def target_type(self) -> str:
        return self.types.node_types[0]

    @cached_property
    def _all(self) -> tuple[list[str], list[int]]:
        return self.split(torch.arange(int(self.types.node_offsets[-1])))


class IdCodec:
    """Ids and names for a model that explains nodes.

    Args:
        game: Game of the explanations.
        names: Names of the data set: "labels", "columns", "motif", "classes".
        node_name: Returns the name of a node, which an update may have added.
        relation: Relation of the links that are explained.
    """

    field = "node"  # of an instance
    fields_in_subgraph: tuple[str, ...] = ("node",)  # with which an instance names a target of its subgraph
    is_plain = True  # whether a request names targets by numbers of nodes
    has_thumbnails = False  # whether lists of targets show small pictures
    key_example = "a number"

    def __init__(
        self, game: Game, names: Mapping[str, Any], node_name: Callable[[int], str], relation: Any = None
    ) -> None:
        self.model, self.graph, self.task = game.f, game.graph, game.task
        self.names, self.node_name, self.relation = dict(names), node_name, relation
        self.nodes = _NodeIds(node_name)
        if game.types is not None:
            if isinstance(names.get("labels"), Mapping):
                self.names["labels"] = game.types.node_names(names["labels"])
            self.nodes = _HeteroNodeIds(game.types, self.names.get("labels"))

    def for_request(self, game: Game, has_own_graph: bool) -> IdCodec:
        """Return the ids of a game that was made for a request. A graph of its own has no names."""
        return make_ids(game, {} if has_own_graph else self.names, self.node_name, self.relation)

    @property
    def takes_updates(self) -> bool:
        """Whether the graph can be updated, because its nodes have one type and are explained."""
        return self.is_plain and not self.nodes.target_type

    # --- requests

    def indices(self, refs: Sequence[TargetRef], count: int) -> np.ndarray:
        """Return the indices of targets, of which there are `count`."""
        for ref in refs:
            if any((getattr(ref, field) is None) == (field == self.field) for field in TARGET_FIELDS):
                raise InputError("instance.target", task=self.task, field=self.field)
            if ref.type is not None or ref.relation is not None:
                self._check_type(ref)
        return self._indices(refs, count)

    def _indices(self, refs: Sequence[TargetRef], count: int) -> np.ndarray:
        return self.checked([getattr(ref, self.field) for ref in refs], count)

    def checked(self, numbers: list[int], count: int) -> np.ndarray:
        """Return the numbers as an array, and raise if there is no such target."""
        if (largest := max(numbers)) >= count:
            raise InputError("target.range", noun=self.noun, most=count - 1, got=largest)
        return np.array(numbers, dtype=np.int64)

    def _check_type(self, ref: TargetRef) -> None:
        if ref.relation is not None:
            raise InputError("instance.relation")
        self.nodes.check_type(ref.type or "")

    def index_in_subgraph(self, ref: TargetRef, count: int) -> int:
        """Return the index of the target of an instance with a graph of its own, which has `count` targets."""
        assert ref.node is not None
        if ref.node >= count:
            raise InputError("subgraph.node_range", most=count - 1, got=ref.node)
        return ref.node

    def check_subgraph_fields(self, ref: TargetRef) -> None:
        """Raise unless an instance names a target of its own graph."""
        named = tuple(field for field in TARGET_FIELDS if getattr(ref, field) is not None)
        if named != self.fields_in_subgraph:
            expected = " ".join(f'one of its {field}s with "{field}"' for field in self.fields_in_subgraph)
            raise InputError("instance.subgraph_target", task=self.task, expected=expected or "nothing else")

    # --- answers

    @property
    def noun(self) -> str:
        """What a target is called."""
        return self.nodes.target_type or self.task.name

    def target(self, index: int) -> int | list[int]:
        """Return the number of a target, or both ends of a link."""
        return index

    def target_name(self, index: int) -> str:
        """Return the name of a target for a list."""
        return self.nodes.entry(index)["name"]

    def player(self, node: int, target: int) -> Json:
        """Return the id and the name of a node that is a player."""
        return self.nodes.entry(node)

    def players(self, explanations: Explanations) -> list[Json]:
        """Return id and name of each player of the first target."""
        return {"nodes": self._nodes}.get(explanations.players.player_type, self._others)(explanations)

    def _nodes(self, explanations: Explanations) -> list[Json]:
        target = int(explanations.players.targets[0])
        return [self.player(node, target) for node in explanations.players.player.tolist()]

    def _others(self, explanations: Explanations) -> list[Json]:
        ids, names = explanations.players.player.tolist(), self.named(explanations).player_names()
        return [{"id": player, "name": name} for player, name in zip(ids, names, strict=True)]

    def named(self, explanations: Explanations) -> Explanation:
        """Return the first explanation with the names of the data set and of nodes that updates added."""
        names = dict.fromkeys(("labels", "columns", "motif", "classes")) | self.names
        count = explanations.game.graph.num_nodes() if explanations.game else 0
        if names["labels"] is not None and len(names["labels"]) < count:
            names["labels"] = [self.node_name(node) for node in range(count)]
        if names["motif"] is not None and len(names["motif"]) < count:
            added = names["motif"].new_full((count - len(names["motif"]),), -1)
            names["motif"] = torch.cat([names["motif"], added])
        return explanations.named(**names)[0]

    def class_name(self, number: int) -> str:
        """Return the name of a class, or its number."""
        names = self.names.get("classes") or ()
        return str(names[number]) if number < len(names) else str(number)

    # --- keys of the explorer

    def key(self, index: int) -> int | str:
        """Return the key of a target in URLs of the explorer."""
        return index

    def parse_key(self, key: str) -> Json:
        """Return the fields of an instance for a key of the explorer."""
        if not key.isdecimal():
            raise InputError("explorer.key", expected=self.key_example, got=key)
        return {self.field: int(key)}

    def links_of(self, explanation: Explanation, nodes: Tensor) -> list[str | None]:
        """Return the key of the explanation that a click on each node opens, or None if it cannot be explained."""
        types, numbers = self.nodes.split(nodes)
        pairs = zip(types, numbers, strict=True)
        return [str(number) if node_type == self.nodes.target_type else None for node_type, number in pairs]


class _GraphIds(IdCodec):
    """Ids and names for a model that explains graphs."""

    _nodes = IdCodec._others  # atoms have names, numbers of nodes in a batch of graphs mean nothing

    field = "graph"
    fields_in_subgraph = ()
    is_plain = False
    has_thumbnails = True

    def index_in_subgraph(self, ref: TargetRef, count: int) -> int:
        return 0

    def target_name(self, index: int) -> str:
        return str(index)

    def links_of(self, explanation: Explanation, nodes: Tensor) -> list[str | None]:
        return []


class _PairIds(IdCodec):
    """Ids and names for a model that explains links."""

    field = "pair"
    fields_in_subgraph = ("pair",)
    is_plain = False
    key_example = "both ends, like 3,14"
    task: LinkTask

    @property
    def noun(self) -> str:
        return self.task.name

    def _indices(self, refs: Sequence[TargetRef], count: int) -> np.ndarray:
        return np.array([self._index_of.get(self._internal_pair(ref), NOT_IN_RUN) for ref in refs], dtype=np.int64)

    def _internal_pair(self, ref: TargetRef) -> tuple[int, int]:
        u, v = ref.pair or (0, 0)
        pair: Any = (u, v) if ref.relation is None else (u, ref.relation, v)
        first, second = to_internal_pairs(self.model, self.graph, [pair], self.relation)[0].tolist()
        return first, second

    @cached_property
    def _index_of(self) -> dict[tuple[int, int], int]:
        return {(u, v): index for index, (u, v) in enumerate(self.task.pairs.tolist())}

    def _check_type(self, ref: TargetRef) -> None:
        if ref.type is not None:  # the relation is checked with its pair
            raise InputError("instance.relation")

    def index_in_subgraph(self, ref: TargetRef, count: int) -> int:
        return 0

    def target(self, index: int) -> int | list[int]:
        return self._ends[index]

    @cached_property
    def _ends(self) -> list[list[int]]:
        return to_user_pairs(self.model, self.task.pairs).tolist()

    def target_name(self, index: int) -> str:
        return " → ".join(self.nodes.entry(node)["name"] for node in self.task.endpoints_of(index).tolist())

    def player(self, node: int, target: int) -> Json:
        """Return the id and the name of a node that is a player. Both ends of a link are one player."""
        entry = self.nodes.entry(node)
        if node == int(self.task.pairs[target, 0]):
            entry["name"] = "both ends"
        return entry

    def key(self, index: int) -> int | str:
        return ",".join(map(str, self._ends[index]))

    def parse_key(self, key: str) -> Json:
        ends = [int(end) for end in key.split(",")]
        if len(ends) != 2:
            raise InputError("explorer.key", expected=self.key_example, got=key)
        return {"pair": tuple(ends)}

    def links_of(self, explanation: Explanation, nodes: Tensor) -> list[str | None]:
        """Return the pair that each node makes with the other end. With one type a node replaces the second end."""
        ends = explanation.task.endpoints_of(explanation.target)
        (start, end), (u, v) = self.nodes.split(ends)
        pair_with = {start: lambda node: f"{node},{v}", end: lambda node: f"{u},{node}"}
        is_end = torch.isin(nodes, ends).tolist()
        return [
            None if at_end or node_type not in pair_with else pair_with[node_type](number)
            for node_type, number, at_end in zip(*self.nodes.split(nodes), is_end, strict=True)
        ]


CODECS: dict[str, type[IdCodec]] = {"node": IdCodec, "graph": _GraphIds, "link": _PairIds}


def make_ids(
    game: Game, names: Mapping[str, Any], node_name: Callable[[int], str] = str, relation: Any = None
) -> IdCodec:
    """Return the ids and names for a game, see `IdCodec`."""
    return CODECS[game.task.name](game, names, node_name, relation)

"""Graphs of several node and edge types: one numbering for the game, the typed graph back for f.

All nodes are numbered through, type after type, the type that is asked about first, so that its nodes keep their own
numbers. The game plays on the graph of all edges; in the place of features it holds the number of each node. f is given
what is left of the typed graph, with the features of its nodes by type and the data of its edges by relation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara.blackbox.adapter import ModelAdapter
from dgl_lara.blackbox.edge_data import EDGE, as_columns, rows_of
from dgl_lara.errors import InputError, ModelError

Relation = tuple[str, str, str]
WIDE = 256  # columns of a type: more are left out of what g sees, as on graphs of one type


@dataclass(frozen=True, eq=False)
class HeteroIndex:
    """Who is who among the nodes and edges that are numbered through."""

    nodes: tuple[str, ...]  # types in the order of their numbers
    node_starts: Tensor  # (num_types + 1,) the first number of each
    relations: tuple[Relation, ...]
    edge_starts: Tensor  # (num_relations + 1,)

    def type_of(self, nodes: Tensor) -> Tensor:
        """(len(nodes),) the place of its type; of nobody (a negative number), the type that it is nobody of."""
        known = torch.searchsorted(self.node_starts, nodes.contiguous(), right=True) - 1
        return torch.where(nodes < 0, -1 - nodes, known)

    def local_id(self, nodes: Tensor) -> Tensor:
        """(len(nodes),) the number that a node has within its type; -1: nobody."""
        return torch.where(nodes < 0, -1, nodes - self.node_starts[self.type_of(nodes)])

    def relation_of(self, edges: Tensor) -> Tensor:
        return torch.searchsorted(self.edge_starts, edges, right=True) - 1

    @property
    def relation_names(self) -> list[str]:
        """Each by its name, with its types where others share that."""
        short = [name for _, name, _ in self.relations]
        return [name if short.count(name) == 1 else f"{start} {name} {end}" for start, name, end in self.relations]

    def count(self, kind: str) -> int:
        place = self.place(kind)
        return int(self.node_starts[place + 1] - self.node_starts[place])

    def place(self, kind: str) -> int:
        return self.nodes.index(kind)

    def number(self, kind: str, own: Tensor) -> Tensor:
        """What nodes of a type are called here."""
        return own + self.node_starts[self.place(kind)]

    def nobody(self, kind: str) -> int:
        """A node of this type without features, which is not in the graph."""
        return -1 - self.place(kind)

    def split(self, nodes: Tensor) -> tuple[list[str], Tensor]:
        """The type of each node by name, and its own number there."""
        return [self.nodes[place] for place in self.type_of(nodes).tolist()], self.local_id(nodes)

    def called(self, names: Mapping[str, Sequence[str]]) -> list[str]:
        """The user's own name of every node; empty where a type has none."""
        return [name for kind in self.nodes for name in names.get(kind, [""] * self.count(kind))]

    def in_words(self, nodes: Tensor, names: Mapping[int, str] | Sequence[str] | None = None) -> list[str]:
        """'author 12', or with the name that it has: 'author 12 (Jiawei Han)'."""
        kinds, own = self.split(nodes)
        plain = [f"{kind} {number}" for kind, number in zip(kinds, own.tolist(), strict=True)]
        if names is None:
            return plain
        called = [names[node] for node in nodes.tolist()]
        return [f"{one} ({name})" if name else one for one, name in zip(plain, called, strict=True)]


class HeteroAdapter(ModelAdapter):
    """f on the typed graph, called with parts of the graph of all nodes.

    With `ends`, places of nodes in the part, f is asked about pairs; else its answer has a row for each node of the
    part, zeros for types of which it says nothing."""

    types: HeteroIndex
    features: dict[str, Tensor]
    data: dict[Relation, dict[str, Tensor]]  # of edges
    _stretch: Tensor | None = None
    asked_types: tuple[str, ...]  # of a target: the type whose logits f gives, or those of both ends of a pair

    def forward(self, graph: dgl.DGLGraph, numbers: Tensor, *ends: Tensor) -> Tensor:
        numbers = numbers.flatten()
        kind = self.types.type_of(numbers)
        members = {name: (kind == place).nonzero().flatten() for place, name in enumerate(self.types.nodes)}
        within = torch.empty_like(numbers)  # the place of each node among those of its type
        for mine in members.values():
            within[mine] = torch.arange(len(mine), device=numbers.device)
        x = {name: rows_of(self.features[name], self.types.local_id(numbers[mine])) for name, mine in members.items()}
        if self._stretch is not None:
            x = {name: rows * self._stretch[members[name]] for name, rows in x.items()}
        part = self._typed(graph, within, {name: len(mine) for name, mine in members.items()})
        answer = self.model(part, x, *(within[end] for end in ends))
        return answer if ends else self._all_rows(answer, members, len(numbers))

    @contextmanager
    def stretched(self, by: Tensor) -> Iterator[None]:
        """Inside, the features of each node of a part are multiplied by its row of `by`, which may want gradients."""
        self._stretch = by
        try:
            yield
        finally:
            self._stretch = None

    def _typed(self, graph: dgl.DGLGraph, within: Tensor, counts: dict[str, int]) -> dgl.DGLGraph:
        src, dst = graph.edges()
        which = graph.edata[EDGE]
        relation = self.types.relation_of(which)
        edges, data = {}, {}
        for place, name in enumerate(self.types.relations):
            mine = (relation == place).nonzero().flatten()
            edges[name] = (within[src[mine]], within[dst[mine]])
            own = which[mine] - self.types.edge_starts[place]
            data[name] = {called: rows_of(rows, own) for called, rows in self.data[name].items()}
        part = dgl.heterograph(edges, num_nodes_dict=counts)
        for name, columns in data.items():
            for called, rows in columns.items():
                part.edges[name].data[called] = rows
        return part

    def _all_rows(self, answer: Any, members: dict[str, Tensor], count: int) -> Tensor:
        """A row for each node of the part, from logits of the type that is asked about, alone or among others."""
        asked = self.asked_types[0]
        given = answer if isinstance(answer, Mapping) else {asked: answer}
        if asked not in given:
            raise ModelError(
                f"the model must return logits of the type '{asked}' (got those of {', '.join(map(str, given))})."
            )
        first = given[asked]
        if not isinstance(first, Tensor) or first.dim() not in (1, 2) or len(first) != len(members[asked]):
            shape = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
            raise ModelError(
                f"the model must return one row of logits a {asked}, ({len(members[asked])}, classes) (got {shape})."
            )
        first = first.unsqueeze(1) if first.dim() == 1 else first
        rows = first.new_zeros(count, first.shape[1])
        for name, part in {**given, asked: first}.items():
            mine = members.get(name)
            if mine is not None and isinstance(part, Tensor) and part.shape == (len(mine), rows.shape[1]):
                rows[mine] = part
        return rows


def to_homogeneous(
    model: Callable, graph: dgl.DGLGraph, features: Any, *asked: str
) -> tuple[HeteroAdapter, dgl.DGLGraph, Tensor]:
    """f, the graph and the features for the game. `asked`: the type of the targets, whose nodes come first; of pairs
    those of both ends."""
    given = checked_features(graph, features)
    order = list(dict.fromkeys([*asked, *graph.ntypes]))
    node_starts = _starts([graph.num_nodes(kind) for kind in order], graph.device)
    relations = tuple(graph.canonical_etypes)
    edge_starts = _starts([graph.num_edges(relation) for relation in relations], graph.device)
    types = HeteroIndex(tuple(order), node_starts, relations, edge_starts)
    ends = [[end.long() for end in graph.edges(etype=relation)] for relation in relations]
    src = torch.cat([types.number(relation[0], pair[0]) for relation, pair in zip(relations, ends, strict=True)])
    dst = torch.cat([types.number(relation[2], pair[1]) for relation, pair in zip(relations, ends, strict=True)])
    whole = dgl.graph((src, dst), num_nodes=int(node_starts[-1]))
    whole.edata[EDGE] = torch.arange(len(src), device=graph.device)
    data = {relation: dict(graph.edges[relation].data) for relation in relations}
    for columns in data.values():
        columns.pop(dgl.EID, None)
    numbers = torch.arange(whole.num_nodes(), device=graph.device).unsqueeze(1)
    return HeteroAdapter(model, types=types, features=given, data=data, asked_types=asked), whole, numbers


def _starts(counts: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *counts], device=device).cumsum(0)


def checked_features(graph: dgl.DGLGraph, features: Any) -> dict[str, Tensor]:
    """Numbers of every node type, one row a node."""
    if features is None:
        features = {kind: graph.nodes[kind].data["feat"] for kind in graph.ntypes if "feat" in graph.nodes[kind].data}
    if not isinstance(features, Mapping):
        raise InputError(
            f"a graph of several types needs features by type, {{'{graph.ntypes[0]}': x, ...}} (got "
            f"{type(features).__name__})."
        )
    unknown = [str(kind) for kind in features if kind not in graph.ntypes]
    if unknown:
        raise InputError(
            f"features were given for the node type '{unknown[0]}', which the graph does not have (it has "
            f"{', '.join(graph.ntypes)})."
        )
    found = {}
    for kind in graph.ntypes:
        if kind not in features:
            raise InputError(
                f"the features of the node type '{kind}' are missing; a type that has none of its own can have a "
                f"column of ones, torch.ones({graph.num_nodes(kind)}, 1)."
            )
        found[kind] = _rows(kind, features[kind], graph.num_nodes(kind), graph.device)
    return found


def _rows(kind: str, given: Any, count: int, device: torch.device) -> Tensor:
    """A tensor as it is, an array as a tensor, as on graphs of one type."""
    try:
        rows = torch.as_tensor(given, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"the features of '{kind}' must be a tensor with one row a node (got {type(given).__name__})."
        ) from error
    if rows.dim() != 2 or len(rows) != count or not rows.shape[1] or rows.is_complex():
        raise InputError(
            f"the features of '{kind}' must have one row a node, ({count}, columns) (got {tuple(rows.shape)})."
        )
    return rows.float() if rows.dtype == torch.float64 and not isinstance(given, Tensor) else rows


def target_type_of(graph: dgl.DGLGraph, given: str | None) -> str:
    """The type whose nodes are explained."""
    if given is None:
        raise InputError(
            f"a graph of several types needs target_type, the type of the nodes to explain: {', '.join(graph.ntypes)}."
        )
    if given not in graph.ntypes:
        raise InputError(f"target_type must be one of {', '.join(graph.ntypes)} (got '{given}').")
    return given


def node_looks(f: HeteroAdapter, graph: dgl.DGLGraph) -> list[Tensor]:
    """What g may see of the nodes: their type, their features (columns of their own for each type, so that the first
    layer of g is one for each type), and how many edges of each relation enter them."""
    types, device = f.types, graph.device
    count = graph.num_nodes()
    kind = types.type_of(torch.arange(count, device=device))
    blocks = [torch.nn.functional.one_hot(kind, len(types.nodes)).float()]
    for place, name in enumerate(types.nodes):
        rows = f.features[name]
        if rows.shape[1] <= WIDE:
            own = torch.zeros(count, rows.shape[1], device=device)
            own[types.node_starts[place] : types.node_starts[place + 1]] = rows.float()
            blocks.append(own)
    relation = types.relation_of(graph.edata[EDGE])
    entered = torch.zeros(count, len(types.relations), device=device)
    entered.index_put_((graph.edges()[1], relation), torch.ones(len(relation), device=device), accumulate=True)
    return [*blocks, entered.log1p()]


def relation_looks(f: HeteroAdapter) -> Tensor:
    """(num_edges, columns): the relation of each edge, and what edges of that relation carry."""
    types = f.types
    total = int(types.edge_starts[-1])
    relation = types.relation_of(torch.arange(total, device=types.edge_starts.device))
    blocks = [torch.nn.functional.one_hot(relation, len(types.relations)).float()]
    for place, name in enumerate(types.relations):
        for called, rows in sorted(f.data[name].items()):
            columns = as_columns(called, rows)
            own = torch.zeros(total, columns.shape[1], device=columns.device)
            own[types.edge_starts[place] : types.edge_starts[place + 1]] = columns
            blocks.append(own)
    return torch.cat(blocks, dim=1)

"""Inputs of users as inputs of a game: f, a homogeneous graph, features, a task."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dgl_lara.blackbox.call import Model
from dgl_lara.blackbox.edge_data import detach_edge_data
from dgl_lara.blackbox.hetero_index import HeteroIndex, Relation
from dgl_lara.blackbox.input_adapter import EDGE_ID, input_adapter
from dgl_lara.errors import InputError
from dgl_lara.game.link_task import LinkTask, checked_pairs
from dgl_lara.game.removal import without_pairs
from dgl_lara.game.task import Task
from dgl_lara.game.tasks import as_task
from dgl_lara.graphs.graph import Graph


@dataclass(frozen=True, eq=False)
class _GameInputs:
    """What a game is created from.

    Attributes:
        f: Model that is called with subgraphs of `graph` and rows of `features`.
        graph: Homogeneous graph without data.
        features: (num_nodes, columns), or ids of nodes if the user's graph is heterogeneous.
        task: What is a target.
    """

    f: Model
    graph: Graph
    features: Tensor
    task: Task

    @property
    def types(self) -> HeteroIndex | None:
        return types_of(self.f)


def types_of(f: Callable) -> HeteroIndex | None:
    """Return the index of node and edge types, or None if the graph has one type."""
    return input_adapter(f).types


def normalize_inputs(
    model: Callable,
    graph: Graph | None,
    features: Any = None,
    task: str | Task = "node",
    target_type: str | None = None,
    pairs: Any = None,
    relation: str | Relation | None = None,
    leave_out: bool = False,
) -> _GameInputs:
    """Return the inputs of the game. The arguments are those of `LARA`.

    Raises:
        InputError: If the inputs do not fit together.
    """
    _check_model(model)
    if not isinstance(graph, Graph):
        networkx = type(graph).__module__.startswith("networkx.")
        raise InputError("graph.type_networkx" if networkx else "graph.type", got=type(graph).__name__)
    if "coo" not in itertools.chain(*graph.formats().values()):  # edges have no order then
        graph = graph.formats(["coo", "csr", "csc"])
    task = as_task(task)
    task.check_pair_options(pairs, relation, leave_out)
    if graph.is_homogeneous and EDGE_ID in graph.edata:  # normalized before
        return _GameInputs(model, graph, features, task)
    if graph.is_homogeneous:
        if target_type is not None or relation is not None:
            raise InputError("graph.one_type")
        f, plain = detach_edge_data(model, graph)
        inputs = _GameInputs(f, plain, _as_features(graph, features), task)
    else:
        inputs = _GameInputs(*task.homogeneous_inputs(model, graph, features, target_type, relation))
    if pairs is None:
        return inputs
    f, plain = inputs.f, inputs.graph
    links = LinkTask(to_internal_pairs(f, plain, pairs, relation))
    return _GameInputs(f, without_pairs(plain, links.pairs) if leave_out else plain, inputs.features, links)


def _check_model(model: object) -> None:
    """Raise an error for what is often passed instead of a model."""
    if isinstance(model, Graph):
        raise InputError("model.is_graph")
    if isinstance(model, tuple):
        raise InputError("model.is_tuple")
    if isinstance(model, type):
        raise InputError("model.is_class", name=model.__name__)


def to_internal_pairs(f: Callable, graph: Graph, pairs: Any, relation: str | Relation | None) -> Tensor:
    """Return (num_pairs, 2) nodes of the game's graph.

    Args:
        f: Model in its input adapter.
        graph: The game's graph.
        pairs: Pairs in ids of the user's graph, [(u, v), ...] or [(u, relation, v), ...].
        relation: The relation that is explained, if the user's graph is heterogeneous.
    """
    if isinstance(pairs, Sequence) and pairs and all(_is_triple(one) for one in pairs):
        pairs = _without_relation(f, pairs, relation)
    first, second = input_adapter(f).endpoint_ranges(graph.num_nodes())
    nodes = checked_pairs(pairs, len(first), len(second), graph.device)
    nodes = nodes + nodes.new_tensor([first.start, second.start])
    equal = nodes[nodes[:, 0] == nodes[:, 1]]
    if len(equal):
        raise InputError("pairs.equal", got=tuple(to_user_pairs(f, equal)[0].tolist()))
    return nodes


def to_user_pairs(f: Callable, pairs: Tensor) -> Tensor:
    """Return (num_pairs, 2) pairs in ids of the user's graph."""
    first, second = input_adapter(f).endpoint_ranges(0)
    return pairs - pairs.new_tensor([first.start, second.start])


def _is_triple(one: Any) -> bool:
    return isinstance(one, tuple | list) and len(one) == 3 and isinstance(one[1], str | tuple | list)


def _without_relation(f: Callable, triples: Sequence[Any], relation: str | Relation | None) -> list[tuple[Any, Any]]:
    """Return (u, v) of each (u, relation, v). All must be of the relation that is explained."""
    if relation is None or types_of(f) is None:
        raise InputError("pairs.relation_of_one_type", got=tuple(triples[0]))
    name = relation if isinstance(relation, str) else relation[1]
    start, end = f.target_types  # type: ignore[attr-defined]
    for u, between, v in triples:
        if (between if isinstance(between, str) else tuple(between)) not in (name, (start, name, end)):
            raise InputError("pairs.other_relation", got=(u, between, v), relation=name)
    return [(u, v) for u, _, v in triples]


def _as_features(graph: Graph, values: Any) -> Tensor:
    """Return (num_nodes, columns) features as a tensor, float64 arrays as float32.

    Args:
        graph: The graph. `graph.ndata["feat"]` is used without values.
        values: Tensor, array or table.
    """
    if values is None and "feat" not in graph.ndata:
        raise InputError("features.none", fields=", ".join(graph.ndata) or "nothing")
    features = graph.ndata["feat"] if values is None else values
    if not isinstance(features, Tensor):
        try:
            if hasattr(features, "to_numpy"):  # the array of a pandas table may be read-only
                features = features.to_numpy(copy=True)
            features = torch.as_tensor(features, device=graph.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError("features.type", got=type(features).__name__) from error
        features = features.float() if features.dtype == torch.float64 else features
    if features.layout != torch.strided or features.device.type == "meta":
        raise InputError("features.dense", got=f"{features.layout} on {features.device.type}")
    features = features.detach()
    if features.dim() != 2 or not features.shape[1] or features.is_complex():
        raise InputError("features.shape", got=f"{features.dtype} {tuple(features.shape)}")
    if len(features) != graph.num_nodes():
        raise InputError("features.rows", count=graph.num_nodes(), got=len(features))
    return features

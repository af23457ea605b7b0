"""What users give, made into what the game is played with: f, a graph of one type, features, a task.

Everything is checked here that can be checked without asking f, and whatever does not fit gets one sentence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara.blackbox.call import Model
from dgl_lara.blackbox.edge_data import detach_edge_data
from dgl_lara.blackbox.hetero import HeteroAdapter, check_target_type, to_homogeneous
from dgl_lara.blackbox.hetero_index import HeteroIndex, Relation
from dgl_lara.blackbox.input_adapter import EDGE_ID, input_adapter
from dgl_lara.errors import InputError
from dgl_lara.game.link_task import LinkTask, checked_pairs
from dgl_lara.game.node_task import TypedNodeTask
from dgl_lara.game.removal import without_pairs
from dgl_lara.game.task import Task
from dgl_lara.game.tasks import as_task


@dataclass(frozen=True, eq=False)
class GameInputs:
    f: Model  # called with parts of `graph` and rows of `features`
    graph: dgl.DGLGraph
    features: Tensor
    task: Task

    @property
    def types(self) -> HeteroIndex | None:
        """Who is who, on a graph of several types."""
        return types_of(self.f)


def types_of(f: Callable) -> HeteroIndex | None:
    return input_adapter(f).types


def normalize_inputs(
    model: Callable,
    graph: dgl.DGLGraph | None,
    features: Any = None,
    task: str | Task = "node",
    target_type: str | None = None,
    pairs: Any = None,
    relation: str | Relation | None = None,
    leave_out: bool = False,
) -> GameInputs:
    """See `LARA` for what the arguments mean."""
    _check_model(model)
    if not isinstance(graph, dgl.DGLGraph):
        kind = type(graph)
        instead = "of PyTorch Geometric: LARA(*dgl_lara.blackbox.adapters.from_pyg(model, data))"
        if kind.__module__.startswith("networkx."):
            instead = "of networkx: dgl.from_networkx(graph)"
        raise InputError(f"the graph must be a DGL graph (got {kind.__name__}); {instead}.")
    if "coo" not in itertools.chain(*graph.formats().values()):  # edges have no order then
        graph = graph.formats(["coo", "csr", "csc"])
    task = as_task(task)
    is_link = isinstance(task, LinkTask)
    if not is_link and (pairs is not None or relation is not None or leave_out):
        raise InputError(f"pairs, relation and leave_out go with task='link' (the task is '{task}').")
    if EDGE_ID in graph.edata if graph.is_homogeneous else False:  # it has been seen to before
        return GameInputs(model, graph, features, task)
    if graph.is_homogeneous:
        if target_type is not None or relation is not None:
            raise InputError("target_type and relation are for graphs of several types; this graph has one.")
        x = as_features(graph, features)
        f, plain = detach_edge_data(model, graph)
        given = GameInputs(f, plain, x, task)
    else:
        given = _typed(model, graph, features, task, target_type, relation)
    if not is_link or pairs is None:
        return given
    task = LinkTask(to_internal_pairs(given.f, given.graph, pairs, relation))
    return GameInputs(
        given.f, without_pairs(given.graph, task.pairs) if leave_out else given.graph, given.features, task
    )


def _check_model(model: object) -> None:
    """What is often given in the place of a model."""
    if isinstance(model, dgl.DGLGraph):
        raise InputError("the model comes first: LARA(model, graph, features).")
    if isinstance(model, tuple):
        raise InputError("several things are given as one model: LARA(*from_pyg(model, data)), with a star.")
    if isinstance(model, type):
        name = model.__name__
        raise InputError(f"{name} is a class and no model yet: build it, {name}(), and give what that returns.")


def _typed(
    model: Callable,
    graph: dgl.DGLGraph,
    features: Any,
    task: Task,
    target_type: str | None,
    relation: str | Relation | None,
) -> GameInputs:
    if not task.has_distances:
        raise InputError("graphs of several types can be explained by their nodes and links, not as a batch of graphs.")
    if isinstance(task, LinkTask):
        start, _, end = relation_of(graph, relation)
        return GameInputs(*to_homogeneous(model, graph, features, start, end), task)
    asked = check_target_type(graph, target_type)
    return GameInputs(*to_homogeneous(model, graph, features, asked), TypedNodeTask(graph.num_nodes(asked)))


def relation_of(graph: dgl.DGLGraph, given: str | Relation | None) -> Relation:
    """The relation that pairs stand for, which says the types of both ends."""
    known = ", ".join(f"'{name}'" for _, name, _ in graph.canonical_etypes)
    if given is None:
        raise InputError(
            f"pairs on a graph of several types need a relation, which says the types of their ends: {known}."
        )
    if isinstance(given, str):
        found = [relation for relation in graph.canonical_etypes if relation[1] == given]
        if len(found) > 1:
            raise InputError(f"several relations are called '{given}'; name one whole, {found[0]}.")
        if found:
            return found[0]
        raise InputError(f"relation must be one of {known} (got '{given}').")
    whole = tuple(map(str, given)) if isinstance(given, Sequence) else ()
    if len(whole) != 3 or whole[0] not in graph.ntypes or whole[2] not in graph.ntypes:
        raise InputError(
            f"relation must be (type, name, type) with types of the graph, {', '.join(graph.ntypes)} (got {given})."
        )
    return whole[0], whole[1], whole[2]


def to_internal_pairs(f: Callable, graph: dgl.DGLGraph, pairs: Any, relation: str | Relation | None) -> Tensor:
    """(num_pairs, 2) nodes of the game's graph, from numbers that the user's graph has: [(u, v), ...], or
    [(u, relation, v), ...]."""
    count = graph.num_nodes()
    if isinstance(pairs, Sequence) and pairs and all(_is_triple(one) for one in pairs):
        pairs = _without_relation(f, pairs, relation)
    if not isinstance(f, HeteroAdapter):
        found = checked_pairs(pairs, count, count, graph.device)
    else:
        start, end = f.target_types
        found = checked_pairs(pairs, f.types.num_nodes(start), f.types.num_nodes(end), graph.device)
        found = torch.stack([f.types.global_ids(start, found[:, 0]), f.types.global_ids(end, found[:, 1])], dim=1)
    same = found[found[:, 0] == found[:, 1]]
    if len(same):
        raise InputError(f"a pair must have two different ends (got ({int(same[0, 0])}, {int(same[0, 1])})).")
    return found


def _is_triple(one: Any) -> bool:
    return isinstance(one, tuple | list) and len(one) == 3 and isinstance(one[1], str | tuple | list)


def _without_relation(f: Callable, triples: Sequence[Any], relation: str | Relation | None) -> list[tuple[Any, Any]]:
    """The ends of (u, relation, v), all of the relation that is explained."""
    if relation is None or not isinstance(f, HeteroAdapter):
        raise InputError(f"a graph of one type has no relations: write (u, v) (got {tuple(triples[0])}).")
    name = relation if isinstance(relation, str) else relation[1]
    start, end = f.target_types
    for u, between, v in triples:
        if (between if isinstance(between, str) else tuple(between)) not in (name, (start, name, end)):
            raise InputError(f"({u}, {between!r}, {v}) is not of the relation that is explained ('{name}').")
    return [(u, v) for u, _, v in triples]


def to_user_pairs(f: Callable, pairs: Tensor) -> Tensor:
    """The same pairs in the numbers of the user's graph."""
    return f.types.local_ids(pairs) if isinstance(f, HeteroAdapter) else pairs


def features_of(graph: dgl.DGLGraph) -> Tensor:
    """Where DGL's data sets keep them."""
    if "feat" not in graph.ndata:
        held = ", ".join(graph.ndata) or "nothing"
        raise InputError(
            f"no features were given, and graph.ndata has no 'feat' to take in their place (it has {held})."
        )
    return graph.ndata["feat"]


def as_features(graph: dgl.DGLGraph, given: Any) -> Tensor:
    """(num_nodes, columns) on the device of the graph's own kind: a tensor as it is, an array as a tensor."""
    features = features_of(graph) if given is None else given
    if not isinstance(features, Tensor):
        try:
            if hasattr(features, "to_numpy"):  # a table of pandas, whose own array may not be written to
                features = features.to_numpy(copy=True)
            features = torch.as_tensor(features, device=graph.device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"features must be a tensor with one row a node (got {type(features).__name__})."
            ) from error
        features = features.float() if features.dtype == torch.float64 else features
    if features.layout != torch.strided or features.device.type == "meta":
        kind = features.layout if features.device.type != "meta" else "a tensor without numbers, on 'meta'"
        raise InputError(f"features must be a dense tensor, one row a node (got {kind}).")
    features = features.detach()
    if features.dim() != 2 or not features.shape[1] or features.is_complex():
        raise InputError(
            f"features must be numbers, one row a node and one column or more (got {features.dtype} "
            f"{tuple(features.shape)})."
        )
    if len(features) != graph.num_nodes():
        raise InputError("features.rows", count=graph.num_nodes(), got=len(features))
    return features

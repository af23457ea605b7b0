"""A graph that came with a request, made into what the same g explains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara.blackbox.edge_data import WithEdgeData
from dgl_lara.blackbox.hetero import HeteroAdapter
from dgl_lara.blackbox.hetero_index import Relation
from dgl_lara.errors import InputError
from dgl_lara.lara import LARA
from dgl_lara.serve.schemas import Subgraph

Rows = list[list[float]]
Ends = list[tuple[int, int]]


def on_brought(base: LARA, given: Subgraph, pair: tuple[int, int] | None) -> LARA:
    """`pair`: the one that is asked about, where links are explained."""
    graph, features = _typed(base.model, given) if isinstance(base.model, HeteroAdapter) else _plain(base, given)
    return base.on(graph, features, None if pair is None else [pair])


def _plain(base: LARA, given: Subgraph) -> tuple[dgl.DGLGraph, Tensor]:
    if isinstance(given.features, dict) or isinstance(given.edges, dict):
        raise InputError("this model's graph has one type of nodes: subgraph has lists of features and of edges.")
    features = _features(given.features, base.features, "subgraph.features")
    src, dst = _ends(given.edges, len(features), len(features), "subgraph.edges")
    graph = dgl.graph((src, dst), num_nodes=len(features))
    known = base.model.data if isinstance(base.model, WithEdgeData) else {}
    needed = known if base.explainer_.config.edge_columns else {}
    graph.edata.update(_carried(given.edge_data, known, needed, len(src), "subgraph.edge_data"))
    return graph, features


def _typed(f: HeteroAdapter, given: Subgraph) -> tuple[dgl.DGLGraph, dict[str, Tensor]]:
    types = f.types
    if not isinstance(given.features, dict) or not (isinstance(given.edges, dict) or given.edges == []):
        raise InputError(
            f"this model's graph has several types: subgraph.features are by type, {_list(types.node_types)}."
        )
    edges = given.edges if isinstance(given.edges, dict) else {}
    relations = dict(zip(types.relation_names, types.relations, strict=True))
    _known(given.features, types.node_types, "subgraph.features", "type")
    for what, named in (("edges", edges), ("edge_data", given.edge_data)):
        _known(named, relations, f"subgraph.{what}", "relation")
    features = {
        kind: _features(given.features.get(kind, []), f.features[kind], f"subgraph.features.{kind}")
        for kind in types.node_types
    }
    ends: dict[Relation, tuple[Tensor, Tensor]] = {}
    for name, relation in relations.items():
        sizes = len(features[relation[0]]), len(features[relation[2]])
        ends[relation] = _ends(edges.get(name, []), *sizes, f"subgraph.edges.{name}")
    graph = dgl.heterograph(ends, {kind: len(rows) for kind, rows in features.items()})
    for name, relation in relations.items():
        said = given.edge_data.get(name, {})
        where, known = f"subgraph.edge_data.{name}", f.data[relation]
        graph.edges[relation].data.update(_carried(said, known, known, len(ends[relation][0]), where))
    return graph, features


def _features(rows: Rows, like: Tensor, where: str) -> Tensor:
    width = like.shape[1]
    for place, row in enumerate(rows):
        if len(row) != width:
            raise InputError(f"{where}.{place} must be {width} numbers (got {len(row)}).")
    found = torch.tensor(rows, dtype=like.dtype).view(-1, width)
    if not bool(torch.isfinite(found).all()):
        raise InputError(f"{where} must be numbers of ordinary size.")
    return found


def _ends(edges: Ends, sources: int, destinations: int, where: str) -> tuple[Tensor, Tensor]:
    ends = torch.tensor(edges, dtype=torch.long).view(-1, 2)
    for column, count in zip(ends.unbind(1), (sources, destinations), strict=True):
        if len(column) and int(column.max()) >= count:
            raise InputError(f"{where} must name nodes 0..{count - 1} (got {int(column.max())}).")
    return ends[:, 0], ends[:, 1]


def _carried(
    given: Any, known: Mapping[str, Tensor], needed: Mapping[str, Tensor], edges: int, where: str
) -> dict[str, Tensor]:
    """What edges carry, in the kind of numbers that the model knows."""
    if not isinstance(given, dict):
        raise InputError(f"{where} must name what edges carry, one list for each name.")
    _known(given, known, where, "column")
    for name in needed:
        if name not in given and edges:
            raise InputError(f"{where} must hold '{name}', which the model reads, one entry an edge.")
    found = {}
    for name in needed:
        rows, shape = given.get(name, []), tuple(needed[name].shape[1:])
        try:
            found[name] = torch.tensor(rows, dtype=torch.double).view(edges, *shape).to(needed[name].dtype)
        except (TypeError, ValueError, RuntimeError) as error:
            of = f"{edges} lists of {shape[0]} numbers" if shape else f"{edges} numbers, one an edge"
            raise InputError(f"{where}.{name} must be {of}.") from error
    return found


def _known(given: Any, known: Any, where: str, noun: str) -> None:
    for name in given:
        if name not in known:
            raise InputError(f"{where} names the {noun} '{name}'; this model knows {_list(known) or 'none'}.")


def _list(names: Any) -> str:
    return ", ".join(map(str, names))

"""Heterogeneous graphs: the game works on one homogeneous graph, f gets the heterogeneous one back.

Global ids run type after type. The target type comes first, so that its nodes keep their ids. In the game, the features
of a node are its global id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara.blackbox.hetero_index import HeteroIndex, Relation
from dgl_lara.blackbox.input_adapter import EDGE_ID, MAX_INPUT_COLUMNS, InputAdapter, as_columns, gather_rows
from dgl_lara.errors import InputError, ModelError

RATING = "rating"  # of edge data


class HeteroAdapter(InputAdapter):
    """f on a heterogeneous graph, called with subgraphs of the homogeneous one.

    With `ends`, indices of nodes in the subgraph, f scores pairs. Otherwise the output has a row for each node of the
    subgraph, zeros for types that f returns no logits for.
    """

    types: HeteroIndex
    features: dict[str, Tensor]
    data: dict[Relation, dict[str, Tensor]]  # of edges
    target_types: tuple[str, ...]  # the type that f classifies, or the types of both ends of a pair
    _scale: Tensor | None = None  # (num_nodes of a subgraph, 1) multiplies the features

    def forward(self, graph: dgl.DGLGraph, node_ids: Tensor, *ends: Tensor) -> Tensor:
        node_ids = node_ids.flatten()
        type_index = self.types.type_of(node_ids)
        members = {name: (type_index == i).nonzero().flatten() for i, name in enumerate(self.types.node_types)}
        rank = torch.empty_like(node_ids)  # index of each node among those of its type
        for nodes in members.values():
            rank[nodes] = torch.arange(len(nodes), device=node_ids.device)
        x = {
            name: gather_rows(self.features[name], self.types.local_ids(node_ids[nodes]))
            for name, nodes in members.items()
        }
        if self._scale is not None:
            x = {name: rows * self._scale[members[name]] for name, rows in x.items()}
        subgraph = self._to_hetero(graph, rank, {name: len(nodes) for name, nodes in members.items()})
        outputs = self.model(subgraph, x, *(rank[end] for end in ends))
        return outputs if ends else self._rows_of_all(outputs, members, len(node_ids))

    def holds_ratings(self) -> bool:
        if len(set(self.target_types)) != 2:
            return False
        between = {self.target_types, self.target_types[::-1]}
        data = [self.data[relation] for relation in self.types.relations if (relation[0], relation[2]) in between]
        return bool(data) and all(RATING in columns and columns[RATING].dim() == 1 for columns in data)

    def likes(self, graph: dgl.DGLGraph, node: int) -> dict[int, bool]:
        others, _, edge_ids = graph.in_edges(node, form="all")
        edges = graph.edata[EDGE_ID][edge_ids]
        relation = self.types.relation_of(edges)
        likes: dict[int, bool] = {}
        for index in torch.unique(relation).tolist():
            mask, data = relation == index, self.data[self.types.relations[index]]
            if RATING in data:
                ratings = data[RATING].float()
                liked = ratings[edges[mask] - self.types.edge_offsets[index]] > ratings.mean()
                likes |= dict(zip(others[mask].tolist(), liked.tolist(), strict=True))
        return likes

    def _to_hetero(self, graph: dgl.DGLGraph, rank: Tensor, counts: dict[str, int]) -> dgl.DGLGraph:
        src, dst = graph.edges()
        edge_ids = graph.edata[EDGE_ID]
        relation_index = self.types.relation_of(edge_ids)
        edges, data = {}, {}
        for index, relation in enumerate(self.types.relations):
            chosen = (relation_index == index).nonzero().flatten()
            edges[relation] = (rank[src[chosen]], rank[dst[chosen]])
            local = edge_ids[chosen] - self.types.edge_offsets[index]
            data[relation] = {name: gather_rows(rows, local) for name, rows in self.data[relation].items()}
        subgraph = dgl.heterograph(edges, num_nodes_dict=counts)
        for relation, columns in data.items():
            for name, rows in columns.items():
                subgraph.edges[relation].data[name] = rows
        return subgraph

    def _rows_of_all(self, outputs: Any, members: dict[str, Tensor], count: int) -> Tensor:
        """Return (count, num_classes) logits of all nodes, from those of the target type and perhaps of others."""
        target = self.target_types[0]
        by_type = outputs if isinstance(outputs, Mapping) else {target: outputs}
        if target not in by_type:
            raise ModelError("model.output_types", expected=target, got=", ".join(map(str, by_type)))
        logits, num_targets = by_type[target], len(members[target])
        if not isinstance(logits, Tensor) or logits.dim() not in (1, 2) or len(logits) != num_targets:
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ModelError("model.rows", target=target, rows=num_targets, got=shape)
        logits = logits.unsqueeze(1) if logits.dim() == 1 else logits
        rows = logits.new_zeros(count, logits.shape[1])
        for name, part in {**by_type, target: logits}.items():
            nodes = members.get(name)
            if nodes is not None and isinstance(part, Tensor) and part.shape == (len(nodes), rows.shape[1]):
                rows[nodes] = part
        return rows

    def _feature_blocks(self, graph: dgl.DGLGraph, features: Tensor) -> list[Tensor]:
        """Return type, features (in columns of their own for each type) and log in-degree by relation, of each node."""
        types, count, device = self.types, graph.num_nodes(), graph.device
        type_index = types.type_of(torch.arange(count, device=device))
        blocks = [torch.nn.functional.one_hot(type_index, len(types.node_types)).float()]
        for name in types.node_types:
            rows, nodes = self.features[name], types.id_range(name)
            if rows.shape[1] <= MAX_INPUT_COLUMNS:
                block = torch.zeros(count, rows.shape[1], device=device)
                block[nodes.start : nodes.stop] = rows.float()
                blocks.append(block)
        relation_index = types.relation_of(graph.edata[EDGE_ID])
        in_degrees = torch.zeros(count, len(types.relations), device=device)
        ones = torch.ones(len(relation_index), device=device)
        in_degrees.index_put_((graph.edges()[1], relation_index), ones, accumulate=True)
        return [*blocks, in_degrees.log1p()]

    def edge_columns(self) -> Tensor:
        """Return (num_edges, columns) the relation of each edge, and its data in columns of that relation."""
        types = self.types
        total = int(types.edge_offsets[-1])
        relation_index = types.relation_of(torch.arange(total, device=types.edge_offsets.device))
        blocks = [torch.nn.functional.one_hot(relation_index, len(types.relations)).float()]
        for index, relation in enumerate(types.relations):
            for name, rows in sorted(self.data[relation].items()):
                columns = as_columns(name, rows)
                block = torch.zeros(total, columns.shape[1], device=columns.device)
                block[types.edge_offsets[index] : types.edge_offsets[index + 1]] = columns
                blocks.append(block)
        return torch.cat(blocks, dim=1)

    def null_features(self, features: Tensor, count: int) -> Tensor:
        return torch.tensor([[self.types.null_id(name)] for name in self.target_types], device=features.device)

    def endpoint_ranges(self, num_nodes: int) -> list[range]:
        return [self.types.id_range(name) for name in self.target_types]

    def num_feature_columns(self, features: Tensor) -> int:
        return max(rows.shape[1] for rows in self.features.values())

    def features_of(self, node: int, features: Tensor) -> Tensor:
        (name,), local = self.types.locate(torch.tensor([node], device=features.device))
        return self.features[name][int(local)]

    @contextmanager
    def differentiable(self, features: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        self._scale = torch.ones(len(features), 1, device=features.device, requires_grad=True)
        try:
            yield self._scale, features
        finally:
            self._scale = None


def to_homogeneous(
    model: Callable, graph: dgl.DGLGraph, features: Any, *target_types: str
) -> tuple[HeteroAdapter, dgl.DGLGraph, Tensor]:
    """Return f, the graph and the features for the game.

    Args:
        model: f(graph, {type: features}).
        graph: The heterogeneous graph.
        features: By node type.
        target_types: The type of the targets, or of both ends of a pair. Their nodes come first.
    """
    features = _validate_features(graph, features)
    order = list(dict.fromkeys([*target_types, *graph.ntypes]))
    node_offsets = _offsets([graph.num_nodes(name) for name in order], graph.device)
    relations = tuple(graph.canonical_etypes)
    edge_offsets = _offsets([graph.num_edges(relation) for relation in relations], graph.device)
    types = HeteroIndex(tuple(order), node_offsets, relations, edge_offsets)
    ends = [[end.long() for end in graph.edges(etype=relation)] for relation in relations]
    src = torch.cat([types.global_ids(relation[0], pair[0]) for relation, pair in zip(relations, ends, strict=True)])
    dst = torch.cat([types.global_ids(relation[2], pair[1]) for relation, pair in zip(relations, ends, strict=True)])
    homogeneous = dgl.graph((src, dst), num_nodes=int(node_offsets[-1]))
    homogeneous.edata[EDGE_ID] = torch.arange(len(src), device=graph.device)
    data = {relation: dict(graph.edges[relation].data) for relation in relations}
    for columns in data.values():
        columns.pop(dgl.EID, None)
    node_ids = torch.arange(homogeneous.num_nodes(), device=graph.device).unsqueeze(1)
    adapter = HeteroAdapter(model, types=types, features=features, data=data, target_types=target_types)
    return adapter, homogeneous, node_ids


def _offsets(counts: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor([0, *counts], device=device).cumsum(0)


def _validate_features(graph: dgl.DGLGraph, features: Any) -> dict[str, Tensor]:
    """Return the features of every node type as tensors with one row per node. Raise InputError if one is wrong."""
    if features is None:
        features = {name: graph.nodes[name].data["feat"] for name in graph.ntypes if "feat" in graph.nodes[name].data}
    if not isinstance(features, Mapping):
        raise InputError("features.not_by_type", example=graph.ntypes[0], got=type(features).__name__)
    for name in features:
        if name not in graph.ntypes:
            raise InputError("features.unknown_type", got=name, types=", ".join(graph.ntypes))
    for name in graph.ntypes:
        if name not in features:
            raise InputError("features.missing_type", type=name, count=graph.num_nodes(name))
    return {name: _as_rows(name, features[name], graph.num_nodes(name), graph.device) for name in graph.ntypes}


def _as_rows(name: str, value: Any, count: int, device: torch.device) -> Tensor:
    try:
        rows = torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError("features.not_a_tensor", type=name, got=type(value).__name__) from error
    if rows.dim() != 2 or len(rows) != count or not rows.shape[1] or rows.is_complex():
        raise InputError("features.rows_by_type", type=name, count=count, got=tuple(rows.shape))
    # float64 arrays of NumPy become float32, tensors keep their type
    return rows.float() if rows.dtype == torch.float64 and not isinstance(value, Tensor) else rows


def check_target_type(graph: dgl.DGLGraph, target_type: str | None) -> str:
    """Return the target type. Raise InputError if it is missing or not in the graph."""
    if target_type is None:
        raise InputError("target_type.missing", types=", ".join(graph.ntypes))
    if target_type not in graph.ntypes:
        raise InputError("target_type.unknown", types=", ".join(graph.ntypes), got=target_type)
    return target_type

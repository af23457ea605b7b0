"""Numbering of the nodes and edges of a heterogeneous graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Relation = tuple[str, str, str]


@dataclass(frozen=True, eq=False)
class HeteroIndex:
    """Maps between global ids (of the homogeneous graph) and pairs of type and local id.

    A negative global id `-1 - type` stands for a null node of that type, which has no features and is not in the graph.
    """

    node_types: tuple[str, ...]  # in the order of their global ids
    node_offsets: Tensor  # (num_types + 1,) the first global id of each type
    relations: tuple[Relation, ...]
    edge_offsets: Tensor  # (num_relations + 1,)

    def type_of(self, nodes: Tensor) -> Tensor:
        """Return (len(nodes),) the index of each node's type."""
        types = torch.searchsorted(self.node_offsets, nodes.contiguous(), right=True) - 1
        return torch.where(nodes < 0, -1 - nodes, types)

    def local_ids(self, nodes: Tensor) -> Tensor:
        """Return (len(nodes),) ids within the type, -1 for null nodes."""
        return torch.where(nodes < 0, -1, nodes - self.node_offsets[self.type_of(nodes)])

    def relation_of(self, edges: Tensor) -> Tensor:
        """Return (len(edges),) the index of each edge's relation."""
        return torch.searchsorted(self.edge_offsets, edges, right=True) - 1

    @property
    def relation_names(self) -> list[str]:
        """Relation names, with both types if several relations share a name."""
        short = [name for _, name, _ in self.relations]
        return [name if short.count(name) == 1 else f"{start} {name} {end}" for start, name, end in self.relations]

    def num_nodes(self, node_type: str) -> int:
        """Count the nodes of a type."""
        return len(self.id_range(node_type))

    def type_index(self, node_type: str) -> int:
        """Return the position of a type among the node types."""
        return self.node_types.index(node_type)

    def id_range(self, node_type: str) -> range:
        """Return the global ids of a type."""
        index = self.type_index(node_type)
        return range(int(self.node_offsets[index]), int(self.node_offsets[index + 1]))

    def global_ids(self, node_type: str, local_ids: Tensor) -> Tensor:
        """Return the global ids of nodes of a type."""
        return local_ids + self.node_offsets[self.type_index(node_type)]

    def null_id(self, node_type: str) -> int:
        """Return the id of the null node of a type."""
        return -1 - self.type_index(node_type)

    def locate(self, nodes: Tensor) -> tuple[list[str], Tensor]:
        """Return the type name and the local id of each node."""
        return [self.node_types[index] for index in self.type_of(nodes).tolist()], self.local_ids(nodes)

    def node_names(self, names: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the user's name of every node, empty for types without names."""
        return [name for one in self.node_types for name in names.get(one, [""] * self.num_nodes(one))]

    def node_labels(self, nodes: Tensor, names: Mapping[int, str] | Sequence[str] | None = None) -> list[str]:
        """Return 'author 12' for each node, or 'author 12 (Jiawei Han)' if it has a name."""
        node_types, ids = self.locate(nodes)
        plain = [f"{one} {number}" for one, number in zip(node_types, ids.tolist(), strict=True)]
        if names is None:
            return plain
        user_names = [names[node] for node in nodes.tolist()]
        return [f"{label} ({name})" if name else label for label, name in zip(plain, user_names, strict=True)]

"""`Dataset`: graph(s), features, targets with labels, splits and ground truth."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara.datasets.undirected import add_reverse_relations, undirected_graph

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Dataset:
    """One graph with labelled nodes or with pairs of nodes, or a batch of graphs with graph labels.

    Args:
        name: Name, or stem of the file.
        task: "node", "graph" or "link".
        graph: DGL graph. A graph task has one batched graph.
        features: (num_nodes, dim) float32, on heterogeneous graphs {type: (num_nodes, dim)}.
        labels: (num_targets,) int64 labels of nodes (of the target type), graphs or pairs, -1 for unknown.
        train: Indices of targets.
        val: Indices of targets.
        test: Indices of targets.
        num_classes: 0 without labels.
        source: Origin, for people.
        key: Every parameter that determines the content. It identifies cached models.
        motif: (num_nodes,) motif instance of each node, -1 for none.
        edge_truth: (num_edges,) bool, whether the edge lies inside a motif.
        category_names: Names of the feature columns, if features are one-hot categories such as atoms.
        display_names: User names of "nodes" (also {type: names}), "classes" and "features".
        target_type: Node type of the targets on heterogeneous graphs.
        pairs: (num_targets, 2) both ends of each target of a link task.
        relation: Relation that a pair stands for on heterogeneous graphs.
        leave_out: Remove edges between the ends of pairs from the graph.
        checked_edge_data: Edge data have a checksum of their own and are no part of the fingerprint.
    """

    name: str
    task: str
    graph: dgl.DGLGraph
    features: Any
    labels: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    num_classes: int
    source: str
    key: dict = field(default_factory=dict)
    motif: Tensor | None = None
    edge_truth: Tensor | None = None
    category_names: tuple[str, ...] | None = None
    display_names: dict[str, Any] = field(default_factory=dict)
    target_type: str | None = None
    pairs: Tensor | None = None
    relation: tuple[str, str, str] | None = None
    leave_out: bool = False
    checked_edge_data: bool = False

    @property
    def num_targets(self) -> int:
        """The number of nodes, graphs or pairs that can be explained."""
        return len(self.labels)

    @property
    def is_labelled(self) -> bool:
        return self.num_classes > 0

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes()

    @property
    def device(self) -> torch.device:
        return self.graph.device

    @cached_property
    def graph_of_node(self) -> Tensor:
        """(num_nodes,) the graph of the batch that each node belongs to."""
        sizes = self.graph.batch_num_nodes()
        return torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)

    @property
    def lara_arguments(self) -> dict[str, Any]:
        """Arguments of `LARA` that depend on the targets, except the task."""
        if self.pairs is None:
            return {"target_type": self.target_type}
        return {"pairs": self.pairs, "relation": self.relation, "leave_out": self.leave_out}

    def targets(self, indices: Tensor) -> Tensor:
        """Return targets as `LARA` takes them: the ends of pairs, otherwise the indices."""
        return indices if self.pairs is None else self.pairs[indices.to(self.pairs.device)]

    @property
    def names(self) -> dict[str, Any]:
        """Arguments of `Explanations.named`."""
        return {
            "labels": self.display_names.get("nodes", self._node_categories),
            "columns": self.display_names.get("features", self.category_names),
            "motif": self.motif,
            "classes": self.display_names.get("classes"),
        }

    @cached_property
    def _node_categories(self) -> list[str] | None:
        """The category of each node (its atom), if features are one-hot categories."""
        names = self.category_names
        return None if names is None else [names[column] for column in self.features.argmax(dim=1).tolist()]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content, independent of names."""
        digest = hashlib.sha256()
        parts = [*self.graph.edges(), self.graph.batch_num_nodes(), self.features] if self.graph.is_homogeneous else []
        for part in [*parts, self.labels]:
            digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
            digest.update(part.cpu().contiguous().numpy().data)
        for name, part in self._optional_parts():
            digest.update(f"{name} {part.dtype} {tuple(part.shape)}".encode())
            digest.update(part.cpu().contiguous().numpy().tobytes())
        for part in (self.train, self.val, self.test):
            digest.update(part.cpu().contiguous().numpy().tobytes() + b"|")
        return digest.hexdigest()[:16]

    def _optional_parts(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parts that only some data sets have: node types, relations, edge data and pairs."""
        is_hetero = not self.graph.is_homogeneous
        for node_type in self.graph.ntypes if is_hetero else ():
            is_target = " (targets)" * (node_type == self.target_type)
            yield f"{node_type} {self.graph.num_nodes(node_type)}{is_target}", self.features[node_type]
        for relation in self.graph.canonical_etypes:
            if is_hetero:
                yield f"{relation}", torch.stack(self.graph.edges(etype=relation))
            if not self.checked_edge_data:
                data = self.graph.edges[relation].data
                yield from ((f"{relation} {name}", data[name]) for name in sorted(data))
        if self.pairs is not None:
            yield f"{self.relation}", self.pairs

    def split(self, name: str) -> Tensor:
        """Return the indices of "train", "val", "test" or "all"."""
        if name == "all":
            return torch.arange(self.num_targets, device=self.labels.device)
        return {"train": self.train, "val": self.val, "test": self.test}[name]

    def to(self, device: torch.device | str) -> Dataset:
        """Return the data set on a device."""
        moved: dict[str, Any] = {
            name: value.to(device)
            for name, value in vars(self).items()
            if isinstance(value, Tensor | dgl.DGLGraph) and name != "graph_of_node"
        }
        if isinstance(self.features, dict):
            moved["features"] = {node_type: rows.to(device) for node_type, rows in self.features.items()}
        return replace(self, **moved)

    def to_undirected(self) -> Dataset:
        """Return the data set with every edge in both directions, once. Relations get a reverse relation."""
        if self.edge_truth is not None:
            return self  # sets with ground truth are stored in both directions
        if self.graph.is_homogeneous:
            src, dst = self.graph.edges()
            graph = undirected_graph(src, dst, self.graph.num_nodes(), dict(self.graph.edata))
        else:
            graph = add_reverse_relations(self.graph)
        if self.graph.batch_size > 1:
            sizes = self.graph.batch_num_nodes()
            graph.set_batch_num_nodes(sizes)
            graph.set_batch_num_edges(torch.bincount(self.graph_of_node[graph.edges()[0]], minlength=len(sizes)))
        return replace(self, graph=graph, key={**self.key, "undirected": True}, source=self.source + ", undirected")


def random_split(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw 80/10/10 % of the targets, as in the paper."""
    return split_by_fraction(torch.randperm(count, generator=torch.Generator().manual_seed(seed)))


def split_by_fraction(order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Cut a permutation into 80/10/10 % and sort the parts."""
    first, second = int(0.8 * len(order)), int(0.9 * len(order))
    train, val, test = order[:first], order[first:second], order[second:]
    return train.sort().values, val.sort().values, test.sort().values

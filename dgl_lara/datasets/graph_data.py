"""The content of a user's graph file, whatever its format, and its conversion to a data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara.datasets.dataset import SPLITS, Dataset, random_split
from dgl_lara.datasets.names import Names, check_names, read_names
from dgl_lara.datasets.text_files import read_pairs
from dgl_lara.datasets.validate import validate_dataset
from dgl_lara.errors import InputError

Relation = tuple[str, str, str]


@dataclass(frozen=True, eq=False)
class GraphData:
    """Graph, features, labels and masks as the file holds them."""

    path: Path
    graph: dgl.DGLGraph  # without node data
    features: dict[str, Tensor]  # by node type
    task: str = "node"
    target_type: str | None = None  # of a heterogeneous graph
    labels: Tensor | None = None
    masks: Mapping[str, Tensor | None] = field(default_factory=dict)  # by split
    names: Names = field(default_factory=dict)

    @property
    def node_features(self) -> Any:
        """The tensor of a homogeneous graph, {type: tensor} of a heterogeneous one."""
        x = {node_type: rows.float() for node_type, rows in self.features.items()}
        return x[self.graph.ntypes[0]] if self.graph.is_homogeneous else x

    def labelled_dataset(self, seed: int) -> Dataset:
        """Return the data set whose targets are nodes or graphs, with the masks or a random split."""
        count = self.graph.batch_size if self.task == "graph" else self.graph.num_nodes(self.target_type)
        labels = self._labels(count)
        splits, split_source = self._splits(labels, seed)
        num_classes = int(labels.max()) + 1 if len(labels) else 0
        fields = {"labels": labels, "num_classes": num_classes, "target_type": self.target_type, **splits}
        key = {} if self.target_type is None else {"target_type": self.target_type}
        return self._dataset(split_source, key, {"classes": num_classes or None}, **fields)

    def pair_dataset(self, pairs_file: Path, relation: str | None, leave_out: bool, seed: int) -> Dataset:
        """Return the data set whose targets are the pairs of a file, with a random split.

        Args:
            pairs_file: One pair u,v per line.
            relation: Name of the relation that a pair stands for, on heterogeneous graphs.
            leave_out: Remove edges between the ends of pairs from the graph.
            seed: Of the split.
        """
        pairs = read_pairs(pairs_file)
        if len(pairs) < 3:
            raise InputError("pairs_file.too_few", path=pairs_file, got=len(pairs))
        triple = None if self.graph.is_homogeneous else self._relation(relation)
        train, val, test = random_split(len(pairs), seed)
        val = val if len(val) else train[-1:]  # very few pairs
        test = test if len(test) else train[-1:]
        train = train[~torch.isin(train, torch.cat([val, test]))]
        labels = torch.zeros(len(pairs), dtype=torch.long)
        fields = {"labels": labels, "num_classes": 1, "train": train, "val": val, "test": test}
        fields |= {"pairs": pairs, "relation": triple, "leave_out": leave_out}
        source = f", pairs of {pairs_file.name}, random split, seed {seed}"
        return self._dataset(source, {"relation": triple, "leave_out": leave_out}, {}, **fields)

    def _dataset(self, split_source: str, key: dict, counts: dict[str, int | None], **fields: Any) -> Dataset:
        num_nodes = {node_type: self.graph.num_nodes(node_type) for node_type in self.graph.ntypes}
        features = self.node_features
        if self.graph.is_homogeneous:
            counts = {**counts, "nodes": self.graph.num_nodes(), "features": features.shape[-1]}
        else:
            counts = {**counts, "nodes": num_nodes}  # type: ignore[dict-item]
        dataset = Dataset(
            name=self.path.stem,
            task="link" if "pairs" in fields else self.task,
            graph=self.graph,
            features=features,
            display_names=check_names(self.path, {**self.names, **read_names(self.path)}, counts),
            source=f"file {self.path.name}{split_source}",
            **fields,
        )
        validate_dataset(dataset, self.path)
        return replace(dataset, key={"dataset": dataset.name, "content": dataset.fingerprint, **key})

    def _labels(self, count: int) -> Tensor:
        """Return (count,) labels, -1 if the file has none."""
        if self.labels is None:
            return torch.full((count,), -1)
        labels = whole_numbers(self.path, "labels", self.labels)
        labels = labels.flatten() if labels.dim() == 2 and labels.shape[1] == 1 else labels
        if labels.dim() != 1 or len(labels) != count:
            got = tuple(labels.shape)
            raise InputError("data.labels_count", name=self.path, expected=count, task=self.task, got=got)
        if count and int(labels.max()) >= count:
            raise InputError("graph_file.labels_range", path=self.path, got=int(labels.max()), count=count)
        return labels

    def _splits(self, labels: Tensor, seed: int) -> tuple[dict[str, Tensor], str]:
        """Return the targets of each split, and the source of the split if the file has no masks."""
        masks = {split: mask for split, mask in self.masks.items() if mask is not None}
        if not masks:
            labelled = (labels >= 0).nonzero().flatten() if bool((labels >= 0).any()) else torch.arange(len(labels))
            chosen = (labelled[split] for split in random_split(len(labelled), seed))
            return dict(zip(SPLITS, chosen, strict=True)), f", random split, seed {seed}"
        if len(masks) < 3:
            raise InputError("graph_file.masks", path=self.path, got=", ".join(masks))
        for split, mask in masks.items():
            if mask.shape != labels.shape:
                shapes = {"expected": tuple(labels.shape), "got": tuple(mask.shape)}
                raise InputError("graph_file.mask_shape", path=self.path, split=split, **shapes)
            if not bool(((mask == 0) | (mask == 1)).all()):
                raise InputError("graph_file.mask_values", path=self.path, split=split, task=self.task)
        return {split: mask.bool().nonzero().flatten() for split, mask in masks.items()}, ""

    def _relation(self, name: str | None) -> Relation:
        relations = self.graph.canonical_etypes
        chosen = [relation for relation in relations if relation[1] == name]
        if len(chosen) != 1:
            known = ", ".join(relation[1] for relation in relations)
            raise InputError("graph_file.relation", path=self.path, relations=known, got=name)
        return chosen[0]


def whole_numbers(path: Path, name: str, values: Tensor) -> Tensor:
    """Return int64 values. Raise InputError for fractions and for floats beyond 2^53, which are not exact."""
    if values.is_floating_point() and not bool((values == values.round()).all()):
        raise InputError("graph_file.fractions", path=path, name=name)
    if values.is_floating_point() and bool((values.abs() > 2**53).any()):
        raise InputError("graph_file.large_floats", path=path, name=name)
    return values.long()


def build_graph(path: Path, edges: Mapping[Relation, tuple[Tensor, Tensor]], counts: Mapping[str, int]) -> dgl.DGLGraph:
    """Build a graph of these edges. Raise InputError if one joins nodes that do not exist.

    Args:
        path: The file, for errors.
        edges: Sources and destinations by relation.
        counts: Number of nodes by type.
    """
    for relation, (src, dst) in edges.items():
        start, name, end = relation
        outside = ((src < 0) | (src >= counts[start]) | (dst < 0) | (dst >= counts[end])).nonzero().flatten()
        if len(outside):
            edge = int(outside[0])
            first = f"{int(src[edge])} -> {int(dst[edge])}"
            sizes = {"num_src": counts[start], "num_dst": counts[end]}
            raise InputError(
                "graph_file.edges", path=path, count=len(outside), edge=edge, got=first, name=name, **sizes
            )
    return dgl.heterograph(dict(edges), dict(counts))


def numeric_edge_data(data: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the edge data that a model can read, without DGL's own (_ID, _TYPE)."""
    kept = {name: data[name] for name in data if not name.startswith("_") and not data[name].is_complex()}
    return {name: rows.float() if rows.is_floating_point() else rows for name, rows in kept.items()}

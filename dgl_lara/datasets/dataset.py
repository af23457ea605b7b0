"""`Dataset`: one graph with labelled nodes or pairs of nodes, or many graphs (batched into one) with graph labels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara._util.schema import sums_up
from dgl_lara.errors import InputError
from dgl_lara.game.tasks import as_task


@dataclass(frozen=True, eq=False)
class Dataset:
    """Graph(s), features, labels, split and ground truth.

    A graph task is stored as one batched DGL graph, so that every later step is a single pass over all graphs.
    On a graph of several node types, features are a dict by type, and the targets are nodes of `target_type`.
    """

    name: str
    task: str  # "node", "graph" or "link"
    graph: dgl.DGLGraph
    features: Any  # (num_nodes, dim) float32; of several node types: {type: (num_nodes of it, dim)}
    labels: Tensor  # (num_targets,) int64: of nodes (of the target type), graphs or pairs; -1: nobody knows
    train: Tensor  # indices of targets
    val: Tensor
    test: Tensor
    num_classes: int  # 0: there are no labels
    source: str  # in words: where it comes from
    key: dict = field(default_factory=dict)  # every parameter that made it; identifies stored target models
    motif: Tensor | None = None  # (num_nodes,) which motif instance the node belongs to, -1 for none
    edge_truth: Tensor | None = None  # (num_edges,) bool: the edge lies inside a motif
    node_names: tuple[str, ...] | None = None  # of each feature column, where a column is a kind (atoms)
    display_names: dict[str, Any] = field(default_factory=dict)  # "nodes", "classes", "features"
    target_type: str | None = None  # the node type of the targets, where the graph has several
    pairs: Tensor | None = None  # (num_targets, 2) the two ends of each target of a link task
    relation: tuple[str, str, str] | None = None  # what a pair stands for, where the graph has several relations
    leave_out: bool = False  # edges between the ends of pairs are not part of the graph
    checked_edge_data: bool = False  # a checksum of its own holds it: it does not enter the fingerprint

    @property
    def num_targets(self) -> int:
        """How many things can be explained: nodes of a node task, graphs of a graph task, pairs of a link task."""
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

    @property
    def node_truth(self) -> Tensor | None:
        """(num_nodes,) bool: the node lies inside a motif."""
        return None if self.motif is None else self.motif >= 0

    @cached_property
    def graph_of_node(self) -> Tensor:
        """(num_nodes,) which graph of the batch a node belongs to."""
        sizes = self.graph.batch_num_nodes()
        return torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)

    @cached_property
    def node_labels(self) -> list[str] | None:
        """The kind of each node (its atom), where a feature column is a kind."""
        if self.node_names is None:
            return None
        return [self.node_names[kind] for kind in self.features.argmax(dim=1).tolist()]

    @property
    def lara_arguments(self) -> dict[str, Any]:
        """What `LARA` is told of the targets, beside the task."""
        if self.pairs is None:
            return {"target_type": self.target_type}
        return {"pairs": self.pairs, "relation": self.relation, "leave_out": self.leave_out}

    def targets(self, numbers: Tensor) -> Tensor:
        """Targets as `LARA` knows them: pairs by their ends, all others by their numbers."""
        return numbers if self.pairs is None else self.pairs[numbers.to(self.pairs.device)]

    @property
    def names(self) -> dict[str, Any]:
        """What `Explanations.named` takes: everything by which people know nodes, features and classes."""
        return {
            "labels": self.display_names.get("nodes", self.node_labels),
            "columns": self.display_names.get("features", self.node_names),
            "motif": self.motif,
            "classes": self.display_names.get("classes"),
        }

    @cached_property
    def fingerprint(self) -> str:
        """Of the content itself: a file that was changed gives another one, whatever it is called."""
        digest = hashlib.sha256()
        parts = [*self.graph.edges(), self.graph.batch_num_nodes(), self.features] if self.graph.is_homogeneous else []
        for part in [*parts, self.labels]:
            digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
            digest.update(part.cpu().contiguous().numpy().data)
        for name, part in self._more_parts():
            digest.update(f"{name} {part.dtype} {tuple(part.shape)}".encode())
            digest.update(part.cpu().contiguous().numpy().tobytes())
        for part in (self.train, self.val, self.test):
            digest.update(part.cpu().contiguous().numpy().tobytes() + b"|")
        return digest.hexdigest()[:16]

    def _more_parts(self) -> Iterator[tuple[str, Tensor]]:
        """What only graphs of several types, edge data and pairs add to the content, each with its name."""
        if not self.graph.is_homogeneous:
            for kind in self.graph.ntypes:
                yield (
                    f"{kind} {self.graph.num_nodes(kind)}{' (targets)' * (kind == self.target_type)}",
                    self.features[kind],
                )
        for relation in self.graph.canonical_etypes:
            if not self.graph.is_homogeneous:
                yield f"{relation}", torch.stack(self.graph.edges(etype=relation))
            if not self.checked_edge_data:
                data = self.graph.edges[relation].data
                yield from ((f"{relation} {name}", data[name]) for name in sorted(data))
        if self.pairs is not None:
            yield f"{self.relation}", self.pairs

    def split(self, name: str) -> Tensor:
        if name == "all":
            return torch.arange(self.num_targets, device=self.labels.device)
        return {"train": self.train, "val": self.val, "test": self.test}[name]

    def to(self, device: torch.device | str) -> Dataset:
        moved: dict[str, Any] = {
            name: value.to(device)
            for name, value in vars(self).items()
            if isinstance(value, Tensor | dgl.DGLGraph) and name != "graph_of_node"
        }
        if isinstance(self.features, dict):
            moved["features"] = {kind: rows.to(device) for kind, rows in self.features.items()}
        return replace(self, **moved)

    def to_undirected(self) -> Dataset:
        """Every edge in both directions, once; of several relations, each gets its reverse where there is none."""
        if self.edge_truth is not None:
            return self  # sets with ground truth are stored in both directions already
        if self.graph.is_homogeneous:
            src, dst = self.graph.edges()
            graph = undirected_graph(src, dst, self.graph.num_nodes(), dict(self.graph.edata))
        else:
            graph = with_reverse_relations(self.graph)
        if self.graph.batch_size > 1:
            sizes = self.graph.batch_num_nodes()
            graph.set_batch_num_nodes(sizes)
            graph.set_batch_num_edges(torch.bincount(self.graph_of_node[graph.edges()[0]], minlength=len(sizes)))
        return replace(self, graph=graph, key={**self.key, "undirected": True}, source=self.source + ", undirected")


def undirected_graph(
    src: Tensor, dst: Tensor, num_nodes: int, edge_data: dict[str, Tensor] | None = None
) -> dgl.DGLGraph:
    """The simple graph with each edge in both directions, ordered by source then target.

    An edge that is there in one direction only lends its data to the other; of several alike, the first counts.
    """
    both = torch.cat([src * num_nodes + dst, dst * num_nodes + src])
    pairs, place = torch.unique(both, return_inverse=True)
    graph = dgl.graph((pairs // num_nodes, pairs % num_nodes), num_nodes=num_nodes)
    if edge_data:
        where = torch.arange(len(both), device=both.device)
        first = torch.full_like(pairs, len(both)).scatter_reduce(0, place, where, "amin") % len(src)
        graph.edata.update({name: values[first] for name, values in edge_data.items()})
    return graph


def with_reverse_relations(graph: dgl.DGLGraph) -> dgl.DGLGraph:
    """Each relation and its reverse: "rev_<name>", unless the same edges are there the other way round already."""
    edges = {relation: graph.edges(etype=relation) for relation in graph.canonical_etypes}
    data = {relation: dict(graph.edges[relation].data) for relation in edges}

    def pairs(src: Tensor, dst: Tensor) -> Tensor:
        return torch.unique(torch.stack([src, dst]), dim=1)

    for (start, name, end), (src, dst) in list(edges.items()):
        back, there = (end, f"rev_{name}", start), pairs(dst, src)
        if not any((u, v) == (end, start) and torch.equal(pairs(*edges[u, by, v]), there) for u, by, v in edges):
            edges[back], data[back] = (dst, src), data[start, name, end]
    doubled = dgl.heterograph(edges, {kind: graph.num_nodes(kind) for kind in graph.ntypes})
    for relation, values in data.items():
        doubled.edges[relation].data.update(values)
    return doubled


def random_split(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """80/10/10, as the paper."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return split_by_fraction(order)


def split_by_fraction(order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first, second = int(0.8 * len(order)), int(0.9 * len(order))
    train, val, test = order[:first], order[first:second], order[second:]
    return train.sort().values, val.sort().values, test.sort().values


def checked(dataset: Dataset, file: Path | None = None) -> Dataset:
    """The data set itself, if its parts fit together; otherwise one sentence that says which does not.

    `file`: where it was read from, which is what its user knows it by.
    """
    name, graph = str(file or dataset.name), dataset.graph
    _check_types(dataset, name)
    if graph.is_homogeneous:
        _check_rows(name, "", dataset.features, graph.num_nodes())
    else:
        for kind in graph.ntypes:
            _check_rows(name, f" of type '{kind}'", dataset.features[kind], graph.num_nodes(kind))
    units, expected = dataset.task, _num_targets(dataset)
    if dataset.labels.dim() != 1 or len(dataset.labels) != expected:
        got = f"{len(dataset.labels):,}" if dataset.labels.dim() == 1 else f"shape {tuple(dataset.labels.shape)}"
        raise InputError(f"{name}: there must be one label for each of the {expected:,} {units}s (got {got}).")
    if graph.num_edges() == 0:
        raise InputError(f"{name}: the graph has no edges, so there is nothing to explain.")
    low, high = int(dataset.labels.min()), int(dataset.labels.max())
    if low < -1:
        raise InputError(f"{name}: labels must be 0 or more, or -1 where nobody knows (got {low}).")
    if dataset.is_labelled and high >= dataset.num_classes:
        raise InputError(f"{name}: labels must lie in 0..{dataset.num_classes - 1} (got {high}).")
    for part in ("train", "val", "test"):
        if len(dataset.split(part)) == 0:
            raise InputError(f"{name}: the {part} split is empty; give masks with at least one {units} each.")
    everyone = torch.cat([dataset.train, dataset.val, dataset.test])
    if int(everyone.min()) < 0 or int(everyone.max()) >= expected:
        raise InputError(f"{name}: the splits must name {units}s 0..{expected - 1}.")
    unknown = everyone[dataset.labels[everyone] < 0]
    if dataset.is_labelled and len(unknown):
        raise InputError(
            f"{name}: {units}s of train, val and test must have labels (got -1 for {len(unknown):,}, first: "
            f"{int(unknown.min())}); give masks that leave the others out."
        )
    doubled = (torch.bincount(everyone) > 1).nonzero().flatten()
    if len(doubled):
        raise InputError(
            f"{name}: train, val and test must have no {units} in common ({len(doubled)} are in two, first: "
            f"{int(doubled[0])})."
        )
    return dataset


def _num_targets(dataset: Dataset) -> int:
    if dataset.pairs is not None:
        return len(dataset.pairs)
    if dataset.target_type is not None:
        return dataset.graph.num_nodes(dataset.target_type)
    return as_task(dataset.task).num_targets(dataset.graph)


def _check_rows(name: str, of: str, features: Tensor, nodes: int) -> None:
    if features.dim() != 2 or len(features) != nodes or not features.shape[1]:
        raise InputError(
            f"{name}: features{of} must have one row a node, ({nodes}, dim) (got {tuple(features.shape)})."
        )
    if sums_up(features):
        return
    bad = (~torch.isfinite(features)).any(dim=1).nonzero().flatten()
    if len(bad):
        raise InputError(
            f"{name}: features{of} must be finite ({len(bad)} rows hold NaN or infinity, first: row {bad[0]})."
        )


def _check_types(dataset: Dataset, name: str) -> None:
    """What only graphs of several node types and link tasks can get wrong."""
    graph, known = dataset.graph, ", ".join(dataset.graph.ntypes)
    if isinstance(dataset.features, dict) == graph.is_homogeneous:
        wanted = "a tensor" if graph.is_homogeneous else f"a dict of tensors by node type ({known})"
        raise InputError(f"{name}: features must be {wanted} (got {type(dataset.features).__name__}).")
    if not graph.is_homogeneous:
        for kind in sorted({*graph.ntypes} ^ {*dataset.features}):
            wrong = f"features of type '{kind}' are missing" if kind in graph.ntypes else f"there is no type '{kind}'"
            raise InputError(f"{name}: {wrong}; the graph has nodes of the types {known}.")
        if dataset.pairs is None and dataset.target_type is None:
            raise InputError(f"{name}: target_type must name the node type that is explained, one of {known}.")
    if dataset.target_type is not None and dataset.target_type not in graph.ntypes:
        raise InputError(f"{name}: target_type must be one of {known} (got '{dataset.target_type}').")
    if dataset.pairs is None:
        return
    start, _, end = dataset.relation or (graph.canonical_etypes[0] if graph.is_homogeneous else ("", "", ""))
    if not {start, end} <= {*graph.ntypes}:
        raise InputError(
            f"{name}: relation must say what a pair stands for, (type, name, type) with types of the graph, {known} "
            f"(got {dataset.relation})."
        )
    if dataset.pairs.dim() != 2 or dataset.pairs.shape[1] != 2 or not len(dataset.pairs):
        raise InputError(f"{name}: pairs must have two columns, (num_pairs, 2) (got {tuple(dataset.pairs.shape)}).")
    for column, kind in enumerate((start, end)):
        ends, nodes = dataset.pairs[:, column], graph.num_nodes(kind)
        outside = ((ends < 0) | (ends >= nodes)).nonzero().flatten()
        if len(outside):
            pair, noun = int(outside[0]), "node" if graph.is_homogeneous else kind
            raise InputError(
                f"{name}: pairs must name nodes of the graph, {noun} 0..{nodes - 1} in column {column} "
                f"({len(outside)} do not, first: pair {pair}, {dataset.pairs[pair].tolist()})."
            )

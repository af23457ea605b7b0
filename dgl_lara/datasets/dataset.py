"""`Dataset`: one graph with node labels, or many graphs (batched into one) with graph labels."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara.errors import InputError
from dgl_lara.game.tasks import as_task


@dataclass(frozen=True, eq=False)
class Dataset:
    """Graph(s), features, labels, split and ground truth.

    A graph task is stored as one batched DGL graph, so that every later step is a single pass over all graphs.
    """

    name: str
    task: str  # "node" or "graph"
    graph: dgl.DGLGraph
    features: Tensor  # (num_nodes, dim) float32
    labels: Tensor  # (num_nodes,) or (num_graphs,) int64
    train: Tensor  # indices of nodes, or of graphs
    val: Tensor
    test: Tensor
    num_classes: int
    source: str  # in words: where it comes from
    key: dict = field(default_factory=dict)  # every parameter that made it; identifies stored target models
    motif: Tensor | None = None  # (num_nodes,) which motif instance the node belongs to, -1 for none
    edge_truth: Tensor | None = None  # (num_edges,) bool: the edge lies inside a motif
    node_names: tuple[str, ...] | None = None  # of each feature column, where a column is a kind (atoms)
    own_names: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the user's: of "nodes", "classes", "features"

    @property
    def num_targets(self) -> int:
        """How many things can be explained: nodes of a node task, graphs of a graph task."""
        return len(self.labels)

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
    def names(self) -> dict[str, Any]:
        """What `Explanations.named` takes: everything by which people know nodes, features and classes."""
        return {
            "labels": self.own_names.get("nodes", self.node_labels),
            "columns": self.own_names.get("features", self.node_names),
            "motif": self.motif,
            "classes": self.own_names.get("classes"),
        }

    @cached_property
    def fingerprint(self) -> str:
        """Of the content itself: a file that was changed gives another one, whatever it is called."""
        digest = hashlib.sha256()
        for part in (*self.graph.edges(), self.graph.batch_num_nodes(), self.features, self.labels):
            digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
            digest.update(part.cpu().contiguous().numpy().data)
        for part in (self.train, self.val, self.test):
            digest.update(part.cpu().contiguous().numpy().tobytes() + b"|")
        return digest.hexdigest()[:16]

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
        return replace(self, **moved)

    def to_undirected(self) -> Dataset:
        """Every edge in both directions, once."""
        if self.edge_truth is not None:
            return self  # sets with ground truth are stored in both directions already
        src, dst = self.graph.edges()
        graph = undirected_graph(src, dst, self.graph.num_nodes())
        if self.graph.batch_size > 1:
            sizes = self.graph.batch_num_nodes()
            graph.set_batch_num_nodes(sizes)
            graph.set_batch_num_edges(torch.bincount(self.graph_of_node[graph.edges()[0]], minlength=len(sizes)))
        return replace(self, graph=graph, key={**self.key, "undirected": True}, source=self.source + ", undirected")


def undirected_graph(src: Tensor, dst: Tensor, num_nodes: int) -> dgl.DGLGraph:
    """The simple graph with each edge in both directions, ordered by source then target."""
    pairs = torch.unique(torch.cat([src * num_nodes + dst, dst * num_nodes + src]))
    return dgl.graph((pairs // num_nodes, pairs % num_nodes), num_nodes=num_nodes)


def random_split(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """80/10/10, as the paper."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return cut(order)


def cut(order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    first, second = int(0.8 * len(order)), int(0.9 * len(order))
    train, val, test = order[:first], order[first:second], order[second:]
    return train.sort().values, val.sort().values, test.sort().values


def checked(dataset: Dataset) -> Dataset:
    """The data set itself, if its parts fit together; otherwise one sentence that says which does not."""
    name, graph = dataset.name, dataset.graph
    if dataset.features.dim() != 2 or len(dataset.features) != graph.num_nodes() or not dataset.features.shape[1]:
        raise InputError(
            f"{name}: features must have one row a node, ({graph.num_nodes()}, dim) "
            f"(got {tuple(dataset.features.shape)})."
        )
    bad = (~torch.isfinite(dataset.features)).any(dim=1).nonzero().flatten()
    if len(bad):
        raise InputError(
            f"{name}: features must be finite ({len(bad)} rows hold NaN or infinity, first: row {bad[0]})."
        )
    units, expected = dataset.task, as_task(dataset.task).num_targets(graph)
    if dataset.labels.dim() != 1 or len(dataset.labels) != expected:
        raise InputError(
            f"{name}: labels must have one entry a {units}, ({expected},) (got {tuple(dataset.labels.shape)})."
        )
    if graph.num_edges() == 0:
        raise InputError(f"{name}: the graph has no edges, so there is nothing to explain.")
    low, high = int(dataset.labels.min()), int(dataset.labels.max())
    if low < 0 or high >= dataset.num_classes:
        raise InputError(f"{name}: labels must lie in 0..{dataset.num_classes - 1} (got {low}..{high}).")
    for part in ("train", "val", "test"):
        if len(dataset.split(part)) == 0:
            raise InputError(f"{name}: the {part} split is empty; give masks with at least one {units} each.")
    everyone = torch.cat([dataset.train, dataset.val, dataset.test])
    if int(everyone.min()) < 0 or int(everyone.max()) >= expected:
        raise InputError(f"{name}: the splits must name {units}s 0..{expected - 1}.")
    doubled = (torch.bincount(everyone) > 1).nonzero().flatten()
    if len(doubled):
        raise InputError(
            f"{name}: train, val and test must have no {units} in common ({len(doubled)} are in two, first: "
            f"{int(doubled[0])})."
        )
    return dataset

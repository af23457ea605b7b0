"""Subgraphs for a batch of targets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara.graphs.graph import Graph


@dataclass(frozen=True, eq=False)
class SharedSubgraph:
    """One subgraph on which f is evaluated for several targets (Eq. 11).

    Attributes:
        graph: The subgraph.
        nodes: (num_local,) ids of its nodes in the full graph.
        targets: (num_targets,) targets in the full graph.
        target_rows: (num_targets,) their rows of f's outputs on the subgraph.
        bystander: (num_local,) bool, nodes that are no players and only keep the degrees of others.
    """

    graph: Graph
    nodes: Tensor
    targets: Tensor
    target_rows: Tensor
    bystander: Tensor | None = None


@dataclass(frozen=True, eq=False)
class EgoBatch:
    """One separate graph per target, side by side: its ego graph, or the graph that is the target.

    Attributes:
        graph: All graphs as one.
        nodes: (num_local,) ids of the nodes in the full graph.
        row: (num_local,) index of the target that each node belongs to, ascending.
        hop: (num_local,) distance to that target, 0 for graph tasks.
        target_rows: (num_targets,) row of f's outputs for each target.
        num_nodes: Number of nodes of the full graph.
        targets: (num_targets,) targets in the full graph.
    """

    graph: Graph
    nodes: Tensor
    row: Tensor
    hop: Tensor
    target_rows: Tensor
    num_nodes: int
    targets: Tensor

    @property
    def key(self) -> Tensor:
        """Return (num_local,) ascending keys of (target, node), comparable with `Players.key`."""
        return self.row * self.num_nodes + self.nodes

    @property
    def num_targets(self) -> int:
        return len(self.target_rows)

    def counts(self, marked: Tensor) -> Tensor:
        """Return (num_targets,) the number of marked nodes of each target."""
        return torch.bincount(self.row[marked], minlength=self.num_targets)

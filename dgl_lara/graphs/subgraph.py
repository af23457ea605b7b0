"""What is cut out of the graph for a batch of targets, with names in the place of positions."""

from __future__ import annotations

from dataclasses import dataclass

import dgl
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SharedSubgraph:
    """Some targets and the one part of the graph on which f answers for all of them (Eq. 11)."""

    graph: dgl.DGLGraph  # the part
    nodes: Tensor  # (num_local,) which nodes of the whole graph its nodes are
    targets: Tensor  # (num_targets,) nodes or graphs of the whole graph
    target_rows: Tensor  # (num_targets,) the rows of f's answer on the part that are theirs
    bystander: Tensor | None = None  # (num_local,) bool: nobody's player, there only for the degrees of the others


@dataclass(frozen=True, eq=False)
class EgoBatch:
    """One separate graph a target, side by side: its ego graph, or the graph itself where a graph is the target."""

    graph: dgl.DGLGraph
    nodes: Tensor  # (num_local,) which node of the whole graph it is
    row: Tensor  # (num_local,) which of the targets it belongs to; rising
    hop: Tensor  # (num_local,) distance to that target; 0 throughout for a graph
    target_rows: Tensor  # (num_targets,) the row of f's answer that is the target
    num_nodes: int  # of the whole graph
    targets: Tensor  # (num_targets,) nodes or graphs of the whole graph

    @property
    def key(self) -> Tensor:
        """(num_local,) rising numbers, one for each (target, node), as in `Players.key`."""
        return self.row * self.num_nodes + self.nodes

    @property
    def num_targets(self) -> int:
        return len(self.target_rows)

    def counts(self, of: Tensor) -> Tensor:
        """(num_targets,) how many of its nodes are marked in `of` (bool)."""
        return torch.bincount(self.row[of], minlength=self.num_targets)

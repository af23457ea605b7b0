"""`GraphSource`, the rows of a graph that is never loaded as a whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path

import numpy as np
from torch import Tensor

from dgl_lara.graphs.extract import extract_subgraph
from dgl_lara.graphs.subgraph import SharedSubgraph


class GraphSource(ABC):
    """A graph whose subgraphs are extracted, wherever its rows are.

    Nodes are int64 ids of the user's graph, in any order. Results are in that order.

    Attributes:
        num_nodes: Number of nodes.
        num_edges: Number of edges.
        columns: Number of features of a node.
        has_loops: Some node has a self-loop.
        all_loops: Every node has a self-loop.
    """

    num_nodes: int
    num_edges: int
    columns: int
    has_loops: bool
    all_loops: bool

    @abstractmethod
    def in_edges(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return (len(nodes) + 1,) the first in-edge of each node, and (num_edges,) their source nodes."""

    @abstractmethod
    def in_degrees(self, nodes: Tensor) -> Tensor:
        """Return (len(nodes),) in-degrees in the full graph."""

    @abstractmethod
    def features(self, nodes: Tensor) -> Tensor:
        """Return (len(nodes), columns) features as float32."""

    @cached_property
    def _marks(self) -> np.ndarray:
        return np.full(self.num_nodes, -1, np.int32)

    def subgraph(self, targets: Tensor, hops: int, inner: bool = False) -> SharedSubgraph:
        """Return the subgraph induced by the K-hop in-neighbourhoods of targets, with ascending nodes.

        Args:
            targets: Ids of nodes.
            hops: K.
            inner: Leave out edges into the outermost nodes, whose in-edges are not read then.
        """
        return extract_subgraph(self.in_edges, self._marks, targets, hops, inner)

    def ordered_edges(self, path: Path) -> tuple[np.ndarray, np.ndarray] | None:
        """Return all in-edges in the order of nodes, (indptr, mapped sources), or None if rows are elsewhere.

        Args:
            path: File for the sources.
        """
        return None

"""Models that can be evaluated one layer at a time, for graphs that do not fit into memory."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from dgl_lara.graphs.graph import Graph


@runtime_checkable
class LayerwiseModel(Protocol):
    """A model whose f(graph, features) is `read_out` of the states after each layer. User models may implement it."""

    num_hops: int  # the number of layers

    def layer(self, index: int, graph: Graph, h: Tensor) -> Tensor:
        """Return (num_nodes, width) states after layer `index`, which may read in-neighbours and degrees."""

    def read_out(self, states: list[Tensor]) -> Tensor:
        """Return (num_nodes, num_classes) logits from the states after each layer."""

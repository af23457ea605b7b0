"""Models that can be asked layer by layer, for graphs that are never whole: a layer of all nodes, then the next one."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import dgl
from torch import Tensor


@runtime_checkable
class LayerwiseModel(Protocol):
    """f(graph, features) is `read_out` of the states after each layer. A model of the user's own may be one too."""

    num_hops: int  # as many as there are layers

    def layer(self, place: int, graph: dgl.DGLGraph, h: Tensor) -> Tensor:
        """(num_nodes, width) after layer `place`, 0, 1, ...; it may look one hop far, and at degrees."""

    def read_out(self, states: list[Tensor]) -> Tensor:
        """(num_nodes, num_classes) from the states of nodes after each layer."""

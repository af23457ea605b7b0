"""w_d = (Â^d)_ij, the weight of all walks of d steps. It is exact for linear GNNs."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.gate import BY_WALK, Gate
from dgl_lara.game.player_index import Players
from dgl_lara.game.walks import walk_weights
from dgl_lara.graphs.graph import Graph, sum_in_neighbors


class WalkGate(Gate):
    """Weights of walks along the edges."""

    kernel = BY_WALK
    supports_propagation = True

    def weights(self, graph: Graph, players: Players, hops: int) -> Tensor:
        return walk_weights(graph, players, hops)

    def aggregate(self, graph: EncoderGraph, messages: Tensor, terms: int, nodes: Tensor) -> Tensor:
        """Send the messages of term d along the edges d times, so that memory grows with nodes and not with pairs."""
        count, masks, width = messages.shape
        moving = messages.view(count, masks, terms, width // terms)
        sums = [moving[:, :, 0][nodes]]
        for step in range(1, terms):
            flat = moving[:, :, 1:].reshape(count, -1) * graph.scale
            moving = (sum_in_neighbors(graph.looped, flat) * graph.scale).view(count, masks, terms - step, -1)
            sums.append(moving[:, :, 0][nodes])
        return torch.cat(sums, dim=2)

    def propagate(self, graph: EncoderGraph, x: Tensor, steps: int, nodes: Tensor) -> Tensor:
        sums = [x[nodes]]
        for _ in range(steps):
            x = sum_in_neighbors(graph.looped, x * graph.scale) * graph.scale
            sums.append(x[nodes])
        return torch.stack(sums, dim=1)


GATE = WalkGate()

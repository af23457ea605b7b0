"""w_d = (Â^d)_ij, the weight of all walks of d steps; exact for linear GNNs."""

from __future__ import annotations

import torch
from dgl import ops
from torch import Tensor

from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.gate import BY_WALK, Gate
from dgl_lara.game.player_index import Players
from dgl_lara.game.walks import walk_weights
from dgl_lara.graphs.graph import Graph


class WalkGate(Gate):
    kernel = BY_WALK
    supports_propagation = True

    def weights(self, graph: Graph, players: Players, hops: int) -> Tensor:
        return walk_weights(graph, players, hops)

    def aggregate(self, graph: EncoderGraph, held: Tensor, terms: int, places: Tensor) -> Tensor:
        """What is held for distance d is sent d steps along the edges: memory grows with nodes, not with pairs."""
        count, masks, width = held.shape
        moving = held.view(count, masks, terms, width // terms)
        arrived = [moving[:, :, 0][places]]
        for step in range(1, terms):
            flat = moving[:, :, 1:].reshape(count, -1) * graph.scale
            moving = (ops.copy_u_sum(graph.looped, flat) * graph.scale).view(count, masks, terms - step, -1)
            arrived.append(moving[:, :, 0][places])
        return torch.cat(arrived, dim=2)

    def carry(self, graph: EncoderGraph, x: Tensor, steps: int, places: Tensor) -> Tensor:
        arrived = [x[places]]
        for _ in range(steps):
            x = ops.copy_u_sum(graph.looped, x * graph.scale) * graph.scale
            arrived.append(x[places])
        return torch.stack(arrived, dim=1)


GATE = WalkGate()

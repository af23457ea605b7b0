"""w_d = (Â^d)_ij, the weight of all walks of d steps; exact for linear GNNs."""

from __future__ import annotations

import dgl
import torch
from dgl import ops
from torch import Tensor

from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.gate import BY_WALK, Gate
from dgl_lara.game.players import Players
from dgl_lara.game.walks import walk_weights


class WalkGate(Gate):
    kernel = BY_WALK

    def weights(self, graph: dgl.DGLGraph, players: Players, hops: int) -> Tensor:
        return walk_weights(graph, players, hops)

    def signed_sums(self, graph: EncoderGraph, signs: Tensor, p: Tensor, terms: int, targets: Tensor) -> Tensor:
        """Each distance d sends its signed sources d steps along the edges: memory grows with nodes, not with pairs."""
        count, masks = signs.shape
        dim = p.shape[1] // terms
        moving = (signs.unsqueeze(2) * p.unsqueeze(1)).view(count, masks, terms, dim)
        arrived = [moving[:, :, 0][targets]]
        for step in range(1, terms):
            flat = moving[:, :, 1:].reshape(count, -1) * graph.scale
            moving = (ops.copy_u_sum(graph.looped, flat) * graph.scale).view(count, masks, terms - step, dim)
            arrived.append(moving[:, :, 0][targets])
        return torch.cat(arrived, dim=2)


GATE = WalkGate()

"""w_d = 1 if the player is d hops from the target, else 0."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from dgl_lara.explainer.gate import BY_HOP, Gate
from dgl_lara.game.player_index import Players
from dgl_lara.graphs.graph import Graph


class _HopGate(Gate):
    """Weights by hop distance."""

    kernel = BY_HOP

    def weights(self, graph: Graph, players: Players, hops: int) -> Tensor:
        return F.one_hot(players.hop, hops + 1).float()


GATE = _HopGate()

"""w = 1, the form of the paper with one term."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.explainer.gate import ONE_TERM, Gate
from dgl_lara.game.player_index import Players
from dgl_lara.graphs.graph import Graph


class _NoGate(Gate):
    """One term with weight 1."""

    kernel = ONE_TERM

    def terms(self, hops: int) -> int:
        return 1

    def weights(self, graph: Graph, players: Players, hops: int) -> Tensor:
        return torch.ones(len(players.player), 1, device=players.player.device)


GATE = _NoGate()

"""w = 1: the paper's form, one term."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.explainer.gate import ONE_TERM, Gate
from dgl_lara.game.player_index import Players
from dgl_lara.graphs.graph import Graph


class NoGate(Gate):
    kernel = ONE_TERM

    def terms(self, hops: int) -> int:
        return 1

    def weights(self, graph: Graph, players: Players, hops: int) -> Tensor:
        return torch.ones(len(players.player), 1, device=players.player.device)


GATE = NoGate()

"""The kernel for feature columns that play for every target: a table with a column for each player."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from dgl_lara.explainer.decoders.features import FeatureDecoder
from dgl_lara.inference.kernels.pairs import PairKernel, TopLists

if TYPE_CHECKING:
    from dgl_lara.explainer.network import Explainer
    from dgl_lara.game.game import Game

MAX_TABLE_ROWS = 50_000  # targets whose scores of all columns are held at a time


class TableKernel(PairKernel):
    """Scores of feature columns. The best ones are sorted out of a table of all of them."""

    @staticmethod
    def supports(explainer: Explainer, game: Game) -> bool:
        return game.player_set.num_table_columns > 0

    def top(self, targets: Tensor, t: Tensor, top: int) -> TopLists:
        decoder = cast(FeatureDecoder, self.explainer.decoder)
        player, score = [], []
        for rows in torch.arange(len(targets), device=targets.device).split(MAX_TABLE_ROWS):
            table = decoder.table(self.explainer, self.game, self.source, t[rows], targets[rows])
            best = table.sort(dim=1, descending=True, stable=True)
            player.append(best.indices[:, :top])
            score.append(best.values[:, :top])
        players = torch.cat(player).cpu().numpy()
        return players, torch.cat(score).cpu().numpy(), np.zeros(players.shape, np.int8)

"""`Explanations`: scores of the players of a batch of targets, and the choice of the important ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from dgl_lara.datasets.storage import written_whole
from dgl_lara.errors import InputError
from dgl_lara.neighborhood import Neighborhood


@dataclass(frozen=True, eq=False)
class Explanations:
    """How much each player contributed to the explained class of each target."""

    players: Neighborhood
    scores: Tensor  # (num_pairs,)
    explained_class: Tensor  # (num_targets,)
    task: str
    method: str

    def __len__(self) -> int:
        return len(self.players.targets)

    def rank(self, include_target: bool = True) -> Tensor:
        """(num_pairs,) 0 for the highest score of each target; the target itself ranks last if not included."""
        players, scores = self.players, self.scores
        if not include_target:
            scores = scores.masked_fill(self.is_target, -torch.inf)
        order = torch.argsort(scores, descending=True, stable=True)
        order = order[torch.argsort(players.row[order], stable=True)]
        rank = torch.empty_like(order)
        start = torch.repeat_interleave(players.first[:-1], players.counts)
        rank[order] = torch.arange(len(order), device=order.device) - start
        return rank

    @property
    def is_target(self) -> Tensor:
        """(num_pairs,) bool: the player is the target itself (never for a graph task)."""
        if self.task == "graph":
            return torch.zeros_like(self.players.player, dtype=torch.bool)
        return self.players.player == self.players.targets[self.players.row]

    def important(self, sparsity: float, include_target: bool = True) -> Tensor:
        """(num_pairs,) bool: the top (1 - sparsity) of the players, at least one."""
        if not 0 <= sparsity < 1:
            raise InputError(f"sparsity must be in [0, 1) (got {sparsity}).")
        players = self.players.counts if include_target or self.task == "graph" else self.players.counts - 1
        kept = torch.round((1 - sparsity) * players).clamp(min=1)
        return self.rank(include_target) < torch.repeat_interleave(kept, self.players.counts)

    def to_frame(self) -> pd.DataFrame:
        """One row a (target, player) pair."""
        players = self.players
        return pd.DataFrame(
            {
                "target": players.targets[players.row].cpu().numpy(),
                "player": players.player.cpu().numpy(),
                "hop": players.hop.cpu().numpy(),
                "score": self.scores.cpu().numpy(),
                "rank": self.rank().cpu().numpy() + 1,
                "explained_class": self.explained_class[players.row].cpu().numpy(),
            }
        )

    def save(self, path: Path) -> None:
        """As .csv."""
        with written_whole(path) as temporary:
            self.to_frame().to_csv(temporary, index=False)

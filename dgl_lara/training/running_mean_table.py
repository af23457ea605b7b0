"""Eq. 10: the running mean of the attribution, one number per (target, player) pair of the training targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara.errors import LaraError
from dgl_lara.graphs.indexing import lookup_sorted

if TYPE_CHECKING:
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players

MAX_PAIRS = 400_000_000
COUNTED_TARGETS = 4096  # at once


class AttributionTable:
    """The running mean of every pair, and how often each target was visited."""

    def __init__(self, game: Game, targets: Tensor) -> None:
        self.targets = targets.sort().values
        counts = [game.players(some).counts for some in self.targets.split(COUNTED_TARGETS)]
        self.indptr = torch.cat([targets.new_zeros(1), torch.cat(counts).cumsum(0)])
        pairs = int(self.indptr[-1])
        if pairs > MAX_PAIRS:
            raise LaraError("running_mean.too_large", pairs=pairs, most=MAX_PAIRS)
        self.phi = torch.zeros(pairs, device=targets.device)
        self.visits = torch.zeros(len(self.targets), device=targets.device)

    def update(self, players: Players, sample: Tensor, valid: Tensor | None = None) -> Tensor:
        """Update phi(t) = (1 - 1/t) phi(t-1) + sample / t.

        Args:
            players: The (target, player) pairs of a batch.
            sample: (num_pairs,) their attribution in this step.
            valid: (num_targets,) bool, the targets with a valid sample. None means all.

        Returns:
            (num_pairs,) phi(t).
        """
        row, _ = lookup_sorted(players.targets, self.targets)
        valid = torch.ones_like(row, dtype=torch.bool) if valid is None else valid
        self.visits[row] += valid
        start = torch.repeat_interleave(self.indptr[row], players.counts)
        within = torch.arange(len(players.player), device=start.device) - torch.repeat_interleave(
            players.indptr[:-1], players.counts
        )
        pairs = start + within
        t = torch.repeat_interleave(self.visits[row].clamp(min=1), players.counts)
        self.phi[pairs] += (sample - self.phi[pairs]) / t * valid[players.row]
        return self.phi[pairs]

    def state_dict(self) -> dict[str, Tensor]:
        return {"targets": self.targets, "indptr": self.indptr, "phi": self.phi, "visits": self.visits}

    def load_state_dict(self, content: dict[str, Tensor]) -> None:
        """Load a checkpoint. Raises ValueError if it belongs to other targets."""
        for name, own in self.state_dict().items():
            tensor = content[name].to(self.phi.device)
            if tensor.shape != own.shape or tensor.dtype != own.dtype or not bool(tensor.isfinite().all()):
                raise ValueError(f"{name} of the running mean is of other targets")
            setattr(self, name, tensor)

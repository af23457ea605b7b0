"""Eq. 10: the running mean of the attribution, one number a (target, player) pair of the training targets."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.errors import LaraError
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players
from dgl_lara.graphs.indexing import lookup_sorted

MOST_PAIRS = 400_000_000
TARGETS_AT_ONCE = 4096


class AttributionTable:
    def __init__(self, game: Game, targets: Tensor) -> None:
        self.targets = targets.sort().values
        counts = [game.players(part).counts for part in self.targets.split(TARGETS_AT_ONCE)]
        self.indptr = torch.cat([targets.new_zeros(1), torch.cat(counts).cumsum(0)])
        if int(self.indptr[-1]) > MOST_PAIRS:
            raise LaraError(
                f"the running mean of Eq. 10 needs a number for each of {int(self.indptr[-1]):,} (target, player) "
                "pairs, too many to keep; use --objective least-squares, which needs none."
            )
        self.phi = torch.zeros(int(self.indptr[-1]), device=targets.device)
        self.visits = torch.zeros(len(self.targets), device=targets.device)

    def update(self, players: Players, sample: Tensor, heard: Tensor | None = None) -> Tensor:
        """phi(t) = (1 - 1/t) phi(t-1) + sample / t for the pairs of these targets; returns phi(t). `heard`: the targets
        of which the sample says anything (bool), if not all."""
        row, _ = lookup_sorted(players.targets, self.targets)
        heard = torch.ones_like(row, dtype=torch.bool) if heard is None else heard
        self.visits[row] += heard
        start = torch.repeat_interleave(self.indptr[row], players.counts)
        within = torch.arange(len(players.player), device=start.device) - torch.repeat_interleave(
            players.indptr[:-1], players.counts
        )
        pairs = start + within
        t = torch.repeat_interleave(self.visits[row].clamp(min=1), players.counts)
        self.phi[pairs] += (sample - self.phi[pairs]) / t * heard[players.row]
        return self.phi[pairs]

    def state_dict(self) -> dict[str, Tensor]:
        return vars(self)

    def load_state_dict(self, content: dict[str, Tensor]) -> None:
        renamed = {"first": "indptr"}  # in checkpoints of 0.1.0
        parts = {renamed.get(name, name): part.to(self.phi.device) for name, part in content.items()}
        for name, mine in vars(self).items():
            if (
                parts[name].shape != mine.shape
                or parts[name].dtype != mine.dtype
                or not bool(parts[name].isfinite().all())
            ):
                raise ValueError(f"{name} of the running mean is of other targets")
        vars(self).update({name: parts[name] for name in vars(self)})

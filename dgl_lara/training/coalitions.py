"""Alg. 1, lines 7 and 8: coalitions of a batch of targets, and what f says of them (Eq. 9)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dgl_lara._util.distributed import ALONE, ProcessGroup
from dgl_lara.attribution.monte_carlo import BYTES_A_DRAW, random_coalitions, signed
from dgl_lara.game.game import Game
from dgl_lara.game.values import to_values
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph

BYTES_AN_ANSWER = 16  # a class, of one target under one pair: f's two answers, and while they are put together


@dataclass(frozen=True, eq=False)
class CoalitionBatch:
    """Coalitions S of everyone who plays for a batch, and what f says of every target under S and under the rest."""

    targets: Tensor  # (num_targets,)
    ids: Tensor  # (num_local,) the players that the masks speak of, rising
    keep: Tensor  # (num_masks, num_local) bool: S
    inside: Tensor  # (num_masks, num_targets, num_classes): logits of f under S
    outside: Tensor  # the same under the complement of S

    def sigma(self, players: Tensor) -> Tensor:
        """(num_masks, len(players)): +1 where the player is in S, -1 where not."""
        place, _ = lookup_sorted(players, self.ids)
        return signed(self.keep[:, place])

    def of(self, targets: Tensor, rows: Tensor | slice) -> CoalitionBatch:
        """The same for some of the targets, which stand in these rows."""
        return replace(self, targets=targets, inside=self.inside[:, rows], outside=self.outside[:, rows])

    def under(self, masks: Tensor | slice) -> CoalitionBatch:
        """The same for some of the coalitions."""
        return replace(self, keep=self.keep[masks], inside=self.inside[masks], outside=self.outside[masks])

    def differences(self, value: str) -> Tensor:
        """(num_masks, num_targets, num_classes): d(S) = f(S) - f(N without S)."""
        return to_values(self.inside, value) - to_values(self.outside, value)


def evaluate_coalitions(
    game: Game, batch: SharedSubgraph | EgoBatch, masks: int, drawn: torch.Generator, ranks: ProcessGroup = ALONE
) -> CoalitionBatch:
    """Draw coalitions and ask f about them. Two passes of f teach every target of the batch."""
    columns = len(game.player_set.ids(batch))
    answers = BYTES_AN_ANSWER * len(batch.targets) * game.num_classes
    game.budget.check(masks * (BYTES_A_DRAW * columns + answers), f"{masks:,} pairs of coalitions a step (--masks)")
    return evaluate_masks(game, batch, random_coalitions(masks, columns, drawn, batch.targets.device), ranks)


def evaluate_masks(
    game: Game, batch: SharedSubgraph | EgoBatch, keep: Tensor, ranks: ProcessGroup = ALONE
) -> CoalitionBatch:
    """What f says of these coalitions. Several processes have drawn the same, and each asks about its share of all S
    and all rests."""
    ids, masks = game.player_set.ids(batch), len(keep)
    if ranks.count == 1:
        inside, outside = (game.batch_logits(batch, side) for side in (keep, ~keep))
        return CoalitionBatch(batch.targets, ids, keep, inside, outside)
    mine = ranks.share(2 * masks)
    sides = torch.cat([keep, ~keep])[mine]
    nothing = game.null_logits.new_empty(0, len(batch.targets), game.num_classes)  # more processes than questions
    said = ranks.joined(game.batch_logits(batch, sides) if len(sides) else nothing, mine, 2 * masks)
    return CoalitionBatch(batch.targets, ids, keep, said[:masks], said[masks:])

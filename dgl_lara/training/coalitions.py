"""Algorithm 1, lines 7 and 8: coalitions of a batch of targets and f's outputs under them (Eq. 9)."""

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

OUTPUT_BYTES = 16  # per class, target and pair of coalitions: two float32 outputs, twice while they are joined


@dataclass(frozen=True, eq=False)
class CoalitionBatch:
    """Coalitions S of the players of a batch, and f's logits of every target under S and under its complement."""

    targets: Tensor  # (num_targets,)
    ids: Tensor  # (num_local,) the players that the columns of a mask stand for, ascending
    keep: Tensor  # (num_masks, num_local) bool: S
    inside: Tensor  # (num_masks, num_targets, num_classes) logits under S
    outside: Tensor  # (num_masks, num_targets, num_classes) logits under the complement of S

    def sigma(self, players: Tensor) -> Tensor:
        """Return (num_masks, len(players)): +1 if the player is in S, -1 if not."""
        index, _ = lookup_sorted(players, self.ids)
        return signed(self.keep[:, index])

    def for_targets(self, targets: Tensor, rows: Tensor | slice) -> CoalitionBatch:
        """Select targets, which stand in these rows."""
        return replace(self, targets=targets, inside=self.inside[:, rows], outside=self.outside[:, rows])

    def for_masks(self, masks: Tensor | slice) -> CoalitionBatch:
        """Select coalitions."""
        return replace(self, keep=self.keep[masks], inside=self.inside[masks], outside=self.outside[masks])

    def differences(self, value: str) -> Tensor:
        """Compute (num_masks, num_targets, num_classes): d(S) = f(S) - f(N without S)."""
        return to_values(self.inside, value) - to_values(self.outside, value)


def evaluate_coalitions(
    game: Game, batch: SharedSubgraph | EgoBatch, masks: int, drawn: torch.Generator, processes: ProcessGroup = ALONE
) -> CoalitionBatch:
    """Draw coalitions and evaluate f under each and its complement, for all targets of a batch at once."""
    columns = len(game.player_set.ids(batch))
    outputs = OUTPUT_BYTES * len(batch.targets) * game.num_classes
    game.budget.check(masks * (BYTES_A_DRAW * columns + outputs), f"{masks:,} pairs of coalitions a step (--masks)")
    return evaluate_masks(game, batch, random_coalitions(masks, columns, drawn, batch.targets.device), processes)


def evaluate_masks(
    game: Game, batch: SharedSubgraph | EgoBatch, keep: Tensor, processes: ProcessGroup = ALONE
) -> CoalitionBatch:
    """Evaluate f under coalitions and their complements.

    Several processes have drawn equal coalitions. Each evaluates a share of them.
    """
    ids, masks = game.player_set.ids(batch), len(keep)
    if processes.count == 1:
        inside, outside = (game.batch_logits(batch, side) for side in (keep, ~keep))
        return CoalitionBatch(batch.targets, ids, keep, inside, outside)
    mine = processes.share(2 * masks)
    sides = torch.cat([keep, ~keep])[mine]
    empty = game.null_logits.new_empty(0, len(batch.targets), game.num_classes)  # more processes than coalitions
    logits = processes.joined(game.batch_logits(batch, sides) if len(sides) else empty, mine, 2 * masks)
    return CoalitionBatch(batch.targets, ids, keep, logits[:masks], logits[masks:])

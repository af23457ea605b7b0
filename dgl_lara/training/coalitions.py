"""Algorithm 1, lines 7 and 8: coalitions of a batch of targets and f's outputs under them (Eq. 9)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara._util.distributed import ALONE, ProcessGroup
from dgl_lara.attribution.monte_carlo import BYTES_A_DRAW
from dgl_lara.game.values import to_values
from dgl_lara.graphs.indexing import lookup_sorted

if TYPE_CHECKING:
    from dgl_lara.game.game import Game
    from dgl_lara.game.index import Masks
    from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph

OUTPUT_BYTES = 16  # per class, target and pair of coalitions: two float32 outputs, twice while they are joined


@dataclass(frozen=True, eq=False)
class CoalitionBatch:
    """Coalitions S of the players of a batch, and f's logits of every target under S and under its complement.

    Attributes:
        game: The game of the batch.
        targets: (num_targets,)
        ids: (num_local,) the players that the columns of a mask stand for, ascending.
        masks: (num_masks, num_local) S.
        inside: (num_masks, num_targets, num_classes) logits under S.
        outside: (num_masks, num_targets, num_classes) logits under the complement, those of S if the index needs none.
        full: (num_targets, num_classes) values with all players.
        empty: (num_targets, num_classes) values without any player, zeros if the index needs none.
    """

    game: Game
    targets: Tensor
    ids: Tensor
    masks: Masks
    inside: Tensor
    outside: Tensor
    full: Tensor
    empty: Tensor

    def contains(self, players: Tensor) -> Tensor:
        """(num_masks, len(players)) bool: Return whether a player is in S."""
        return self._masks_of(players).keep

    def design(self, players: Tensor) -> Tensor:
        """(num_masks, len(players)) Return z, for Banzhaf values +1 if the player is in S, -1 if not."""
        return self.game.index.design(self._masks_of(players))

    def _masks_of(self, players: Tensor) -> Masks:
        return self.masks.for_players(lookup_sorted(players, self.ids)[0])

    def for_targets(self, targets: Tensor, rows: Tensor | slice) -> CoalitionBatch:
        """Select targets, which stand in these rows."""
        inside, outside = self.inside[:, rows], self.outside[:, rows]
        full, empty = self.full[rows], self.empty[rows]
        return replace(self, targets=targets, inside=inside, outside=outside, full=full, empty=empty)

    def for_masks(self, masks: Tensor | slice) -> CoalitionBatch:
        """Select coalitions."""
        return replace(self, masks=self.masks[masks], inside=self.inside[masks], outside=self.outside[masks])

    def responses(self) -> Tensor:
        """(num_masks, num_targets, num_classes) Compute y, for Banzhaf values d(S) = f(S) - f(N without S)."""
        inside, outside = (to_values(side, self.game.value) for side in (self.inside, self.outside))
        return self.game.index.response(inside, outside, self.full, self.empty, self.masks.probability)


def evaluate_coalitions(
    game: Game, batch: SharedSubgraph | EgoBatch, masks: int, drawn: torch.Generator, processes: ProcessGroup = ALONE
) -> CoalitionBatch:
    """Draw coalitions and evaluate f under each and its complement, for all targets of a batch at once."""
    columns = len(game.player_set.ids(batch))
    outputs = OUTPUT_BYTES * len(batch.targets) * game.num_classes
    game.budget.check(masks * (BYTES_A_DRAW * columns + outputs), f"{masks:,} pairs of coalitions a step (--masks)")
    return evaluate_masks(game, batch, game.index.draw(masks, columns, drawn, batch.targets.device), processes)


def evaluate_masks(
    game: Game, batch: SharedSubgraph | EgoBatch, masks: Masks, processes: ProcessGroup = ALONE
) -> CoalitionBatch:
    """Evaluate f under coalitions and, if the index needs them, their complements.

    Several processes have drawn equal coalitions. Each evaluates a share of them.
    """
    ids, count = game.player_set.ids(batch), len(masks)
    full = game.full_values[batch.targets]
    empty = game.empty_batch_values(batch) if game.index.is_centred else torch.zeros_like(full)
    sides = [masks.keep, ~masks.keep] if game.index.evaluates_complements else [masks.keep]
    if processes.count == 1:
        logits = [game.batch_logits(batch, side) for side in sides]
    else:
        mine = processes.share(len(sides) * count)
        keep = torch.cat(sides)[mine]
        nothing = game.null_logits.new_empty(0, len(batch.targets), game.num_classes)  # more processes than coalitions
        joined = processes.joined(game.batch_logits(batch, keep) if len(keep) else nothing, mine, len(sides) * count)
        logits = list(joined.split(count))
    return CoalitionBatch(game, batch.targets, ids, masks, logits[0], logits[-1], full, empty)

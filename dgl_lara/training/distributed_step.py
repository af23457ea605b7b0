"""A training step that several processes take together.

Every process has the logits of f under all coalitions. Each computes the predictions of g for its share of the masks on
the full graph, or of the targets of a mini-batch. The shares are joined, so every process has the loss of the full
batch. Gradients flow through its own share only, and their sum over the processes is the gradient of one process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara.training.objective import Step, local_scores
from dgl_lara.training.subgraphs import FullGraph, Subgraphs

if TYPE_CHECKING:
    from dgl_lara._util.distributed import ProcessGroup
    from dgl_lara.explainer.network import Explainer
    from dgl_lara.game.player_index import Players
    from dgl_lara.training.coalitions import CoalitionBatch


@dataclass(frozen=True, eq=False)
class DistributedStep(Step):
    """A step with a share in each process. `embedded` has the targets of this process.

    Attributes:
        ranks: The processes.
        own: The share of this process, or None.
        mine: Its position among the masks or the targets.
        dim: 0 if masks are shared out, 1 for targets.
    """

    ranks: ProcessGroup
    own: Step | None
    mine: slice
    dim: int

    def predicted_responses(self) -> Tensor:
        shape = [len(self.coalitions.masks), len(self.targets), len(self.explainer.all_class_weights())]
        total, shape[self.dim] = shape[self.dim], 0
        own = self.own.predicted_responses() if self.own else torch.empty(shape, device=self.targets.device)
        return self.ranks.joined(own, self.mine, total, self.dim)

    def scores(self, players: Players) -> Tensor:
        rows = self.ranks.share(len(self.targets))
        mine = slice(*players.indptr[[rows.start, rows.stop]].tolist())
        own = torch.empty(0, device=self.targets.device)
        if rows.stop > rows.start:
            own = local_scores(self.explainer, self.game, self.embedded, players.part(rows))
        return self.ranks.joined(own, mine, len(players.player))


def share_step(
    explainer: Explainer, subgraphs: Subgraphs, coalitions: CoalitionBatch, ranks: ProcessGroup
) -> DistributedStep:
    """Return this process's share of a step."""
    game, targets = subgraphs.game, coalitions.targets
    mine = ranks.share(len(targets))
    if isinstance(subgraphs, FullGraph):  # walks over the full graph take as long for few targets as for all
        everything, masks = subgraphs.embed(explainer, targets), ranks.share(len(coalitions.masks))
        own = Step(game, explainer, coalitions.for_masks(masks), everything) if masks.stop > masks.start else None
        embedded = replace(everything, t=everything.t[mine])
        return DistributedStep(game, explainer, coalitions, embedded, ranks, own, masks, dim=0)
    # with more processes than targets some have no share and embed the first target without using it
    few = targets[mine] if mine.stop > mine.start else targets[:1]
    embedded = subgraphs.embed(explainer, few)
    own = Step(game, explainer, coalitions.for_targets(few, mine), embedded) if mine.stop > mine.start else None
    return DistributedStep(game, explainer, coalitions, embedded, ranks, own, mine, dim=1)

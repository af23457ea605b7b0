"""A step of Alg. 1 that several processes take together.

What f said of the coalitions is known to all. What g makes of it each process computes for its share, of the masks on
the whole graph and of the targets of a mini-batch; the shares are joined, and every process has the same loss of the
whole batch, whatever the objective. Gradients flow through its own share alone, so their sum over the processes is the
gradient that one process would have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dgl_lara._util.distributed import ProcessGroup
from dgl_lara.explainer.network import Explainer
from dgl_lara.game.player_index import Players
from dgl_lara.training.coalitions import CoalitionBatch
from dgl_lara.training.objective import Step, local_scores
from dgl_lara.training.subgraphs import FullGraph, Subgraphs


@dataclass(frozen=True, eq=False)
class DistributedStep(Step):
    """`embedded` is what g says of this process's share of the targets."""

    ranks: ProcessGroup
    own: Step | None  # this process's share; None: there is nothing left for it
    mine: slice  # where that stands among the masks, or the targets
    dim: int  # 0: among the masks, 1: among the targets

    def predicted_differences(self) -> Tensor:
        shape = [len(self.coalitions.keep), len(self.targets), len(self.explainer.all_class_weights())]
        total, shape[self.dim] = shape[self.dim], 0
        own = self.own.predicted_differences() if self.own else torch.empty(shape, device=self.targets.device)
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
    """This process's share of a step."""
    game, targets = subgraphs.game, coalitions.targets
    mine = ranks.share(len(targets))
    if isinstance(subgraphs, FullGraph):  # walks over everything take as long for few targets as for all of them
        everything, masks = subgraphs.embed(explainer, targets), ranks.share(len(coalitions.keep))
        own = Step(game, explainer, coalitions.for_masks(masks), everything) if masks.stop > masks.start else None
        embedded = replace(everything, t=everything.t[mine])
        return DistributedStep(game, explainer, coalitions, embedded, ranks, own, masks, dim=0)
    # where there are more processes than targets, somebody has nobody and looks at the first one in vain
    few = targets[mine] if mine.stop > mine.start else targets[:1]
    embedded = subgraphs.embed(explainer, few)
    own = Step(game, explainer, coalitions.for_targets(few, mine), embedded) if mine.stop > mine.start else None
    return DistributedStep(game, explainer, coalitions, embedded, ranks, own, mine, dim=1)

"""Edge occlusion: how far the explained logit moves when one edge is taken away, both directions of it.

No rival of the paper, but a yardstick for those that score edges: what f itself says of each of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.baselines.common.edge_masks import EdgeMethod, MaskBatch
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.errors import LaraError

MOST_CALLS = 2_000  # of f, on all ego graphs at once


class EdgeOcclusion(EdgeMethod):
    name = "edge-occlusion"

    def score(self, some: MaskBatch) -> Tensor:
        """One edge of every target at a time: as many calls of f as the largest ego graph has edges."""
        counts = torch.bincount(some.row, minlength=len(some.targets))
        if int(counts.max()) > MOST_CALLS:
            raise LaraError(f"taking away {int(counts.max()):,} edges one by one is too much (at most {MOST_CALLS:,}).")
        first = counts.cumsum(0) - counts
        everything = torch.ones(len(some.edge), device=some.edge.device)
        moved = torch.zeros_like(everything)
        with eval_mode(self.game.f):
            full = self._value(some, everything)
            for place in range(int(counts.max())):
                still = counts > place
                edge = first[still] + place
                mask = everything.clone()
                mask[edge] = mask[some.twin[edge]] = 0
                moved[edge] = (full - self._value(some, mask))[still].abs()
        return moved

    def _value(self, some: MaskBatch, mask: Tensor) -> Tensor:
        logits = self.predict(some, mask, self.game.features[some.egos.nodes])
        return logits.gather(1, self.game.explained_class[some.targets].unsqueeze(1)).squeeze(1)

"""Edge occlusion: how far the explained logit moves when one edge is removed, in both directions.

The paper does not compare with it. It shows what the model itself does with each edge.
"""

import torch

from dgl_lara.baselines.common.edge_masks import EdgeMethod
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.errors import LaraError

MAX_CALLS = 2_000  # of f, each on all ego graphs of a batch


class EdgeOcclusion(EdgeMethod):
    name = "edge-occlusion"

    def score(self, batch):
        """Return (num_scored,) |change of the logit| per edge. Calls f as often as the largest ego graph has edges."""
        counts = torch.bincount(batch.row, minlength=len(batch.targets))
        if int(counts.max()) > MAX_CALLS:
            raise LaraError(f"at most {MAX_CALLS:,} edges of a target can be removed one by one (got {counts.max():,})")
        first = counts.cumsum(0) - counts
        ones = torch.ones(len(batch.edge), device=batch.edge.device)
        change = torch.zeros_like(ones)
        with eval_mode(self.game.f):
            full = self._value(batch, ones)
            for number in range(int(counts.max())):
                has_edge = counts > number
                edge = first[has_edge] + number
                mask = ones.clone()
                mask[edge] = mask[batch.twin[edge]] = 0
                change[edge] = (full - self._value(batch, mask))[has_edge].abs()
        return change

    def _value(self, batch, mask):
        logits = self.predict(batch, mask, self.game.features[batch.egos.nodes])
        return logits.gather(1, self.game.explained_class[batch.targets].unsqueeze(1)).squeeze(1)

"""w_d = (P^d)_ij, P = D^-1 (A + I): the share of j in the average of i over d steps. It is exact for averaging GNNs.

P^d = diag(s) Â^d diag(1/s) with the scale s of Â, so with the factors of both ends in p and t it is the walk gate.
"""

from __future__ import annotations

from torch import Tensor

from dgl_lara.explainer.gates.walk import WalkGate


class _RandomWalkGate(WalkGate):
    """Weights of random walks."""

    def scaled(self, p: Tensor, t: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        return p / scale, t * scale


GATE = _RandomWalkGate()

"""`abs-gradient`: the absolute value of gradient x input, without the direction of the effect."""

from __future__ import annotations

from torch import Tensor

from dgl_lara.baselines.gradient import GradientInput


class AbsoluteGradientInput(GradientInput):
    """The sum over features of |gradient x input|."""

    name = "|gradient x input|"
    style = ("#CC79A7", "-")

    def _reduce(self, products: Tensor) -> Tensor:
        return products.abs().sum(dim=1)


METHOD = AbsoluteGradientInput

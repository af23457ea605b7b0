"""The mutual-information value of the appendix, which earlier explainers learn."""

from __future__ import annotations

from torch import Tensor


def mi_value(full: Tensor, coalition: Tensor) -> Tensor:
    """Compute alpha = sum_y p(y | N) log p(y | S) - log p(y | N) from logits, 0 if S changes nothing.

    Section 5.2 averages it over the coalitions S that contain a player. The appendix takes one coalition and
    leaves out the
    second term, which does not depend on S.
    """
    log_full = full.log_softmax(dim=-1)
    return (log_full.exp() * (coalition.log_softmax(dim=-1) - log_full)).sum(dim=-1)

"""The number that is explained: a logit, a probability, log-odds or an output."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.constants import VALUES
from dgl_lara.errors import InputError


def checked_value(value: str) -> str:
    """Return the name of a value. Raise an error for any other name."""
    if value not in VALUES:
        raise InputError("value.unknown", known=", ".join(VALUES), got=value)
    return value


def to_values(logits: Tensor, value: str) -> Tensor:
    """Return the explained number of each class.

    Args:
        logits: (..., num_classes) logits of f.
        value: "logit", "probability", "log-odds" or "output".
    """
    if value in ("logit", "output"):
        return logits
    if value == "log-odds" and logits.shape[-1] == 2:
        return logits - logits.flip(-1)  # the same as below, and exact for certain predictions too
    log_p = logits.log_softmax(dim=-1)
    if value == "probability":
        return log_p.exp()
    # log p/(1-p), with 1-p = sum of the other classes' probabilities, stable where p is near 1
    total = logits.logsumexp(dim=-1, keepdim=True)
    others = torch.log(-torch.expm1((logits - total).clamp(max=-1e-7)))
    return log_p - others

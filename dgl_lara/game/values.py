"""Which number of f is explained: the raw logit of a class, its probability, its log-odds, or an output as it is."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.constants import VALUES
from dgl_lara.errors import InputError


def checked_value(kind: str) -> str:
    if kind not in VALUES:
        raise InputError("value.unknown", known=", ".join(VALUES), got=kind)
    return kind


def to_values(logits: Tensor, kind: str) -> Tensor:
    """The numbers that are explained, one a class, from the logits."""
    if kind in ("logit", "output"):
        return logits
    if kind == "log-odds" and logits.shape[-1] == 2:
        return logits - logits.flip(-1)  # the same as below, and exact for certain predictions too
    log_p = logits.log_softmax(dim=-1)
    if kind == "probability":
        return log_p.exp()
    # log p/(1-p), with 1-p = sum of the other classes' probabilities, stable where p is near 1
    total = logits.logsumexp(dim=-1, keepdim=True)
    others = torch.log(-torch.expm1((logits - total).clamp(max=-1e-7)))
    return log_p - others

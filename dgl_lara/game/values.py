"""What is explained: a number (a logit, a probability, log-odds or an output), and the classes it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
        return logits - logits.flip(-1)  # equals the line below, and is exact for certain predictions too
    log_p = logits.log_softmax(dim=-1)
    if value == "probability":
        return log_p.exp()
    # log p/(1-p), with 1-p = sum of the other classes' probabilities, stable where p is near 1
    total = logits.logsumexp(dim=-1, keepdim=True)
    others = torch.log(-torch.expm1((logits - total).clamp(max=-1e-7)))
    return log_p - others


@dataclass(frozen=True, eq=False)
class ClassQuery:
    """The class that is explained for each target.

    Attributes:
        classes: (num_targets,) the explained classes.
        versus: (num_targets,) the classes they are contrasted with. None means no contrast.

    Examples:
        >>> query = ClassQuery(torch.tensor([2, 0]), versus=torch.tensor([1, 1]))
        >>> query.select(values)  # (num_masks, num_targets): class 2 minus class 1, class 0 minus class 1
    """

    classes: Tensor
    versus: Tensor | None = None

    @staticmethod
    def repeat(numbers: Sequence[int], count: int, device: torch.device | str = "cpu") -> ClassQuery | None:
        """Return one question for all targets.

        Args:
            numbers: No class, one class, or two classes of which the first is contrasted with the second.
            count: Number of targets.
            device: Device of the tensors.

        Returns:
            The query; None without classes.
        """
        columns = [torch.full((count,), number, device=device) for number in numbers]
        return ClassQuery(*columns) if columns else None

    def __getitem__(self, rows: slice | Tensor) -> ClassQuery:
        return ClassQuery(self.classes[rows], None if self.versus is None else self.versus[rows])

    def select(self, values: Tensor) -> Tensor:
        """Return (num_masks, num_targets) the value of each target's class, minus that of the contrasted class.

        Args:
            values: (num_masks, num_targets, num_classes).
        """
        selected = _gather(values, self.classes)
        return selected if self.versus is None else selected - _gather(values, self.versus)

    def rows_of(self, table: Tensor) -> Tensor:
        """Return (num_targets, width) the row of each target's class, minus that of the contrasted class.

        Args:
            table: (num_classes, width).
        """
        rows = table[self.classes]
        return rows if self.versus is None else rows - table[self.versus]


def _gather(values: Tensor, classes: Tensor) -> Tensor:
    return values.gather(2, classes.expand(len(values), -1).unsqueeze(2)).squeeze(2)

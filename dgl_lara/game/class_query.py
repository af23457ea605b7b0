"""`ClassQuery`: which class is explained for each target, and which other class it is contrasted with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


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

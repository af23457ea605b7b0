"""A metric: a table for the explanations of one method, and what a benchmark shows of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
from torch import Tensor

from dgl_lara._util.progress import phase
from dgl_lara.errors import message
from dgl_lara.metrics.common.reference import Reference, reference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dgl_lara.explanation import Explanations
    from dgl_lara.game.game import Game

Rows = tuple[Sequence[str], Sequence[Sequence[object]]]  # header and cells


@dataclass(frozen=True, eq=False)
class EvalCase:
    """What explanations are evaluated on. phi is estimated once, when it is first needed.

    Args:
        game: The explained game.
        targets: The explained targets.
        motif: (num_nodes,) ground truth, if there is one.
        reference_pairs: Pairs of coalitions for the estimate of phi.
        seed: Seed of that estimate.
    """

    game: Game
    targets: Tensor
    motif: Tensor | None = None
    reference_pairs: int = 2000
    seed: int = 0

    @cached_property
    def phi(self) -> Reference:
        with phase("reference attributions"):
            return reference(self.game, self.targets, self.reference_pairs, self.seed)


class Metric:
    """One way to evaluate explanations."""

    columns: ClassVar[dict[str, int]] = {}  # of a benchmark: name -> +1 if high is good, -1 if low, 0 if neither
    measures_speed: ClassVar[bool] = False  # it times the explaining and does not look at the explanations
    note_code: ClassVar[str] = ""  # of the note below the summary

    def unavailable(self, case: EvalCase) -> str | None:
        """Return the code of the reason why the metric cannot be computed, or None."""
        return None

    def table(self, case: EvalCase, explanations: Explanations) -> pd.DataFrame:
        """Compute every value for the explanations of one method."""
        raise NotImplementedError

    def values(self, table: pd.DataFrame) -> dict[str, float]:
        """Select the values that a benchmark keeps, among them `columns`."""
        return {}

    def summary(self, table: pd.DataFrame) -> Rows:
        """Select what a reader needs first from the tables of several methods (with a column `method`)."""
        return list(table.columns), table.to_numpy().tolist()

    def notes(self, table: pd.DataFrame) -> dict[str, dict[str, Any]]:
        """Return the codes of the notes below the summary, with their fields."""
        return {self.note_code: {}} if self.note_code else {}

    def note(self, table: pd.DataFrame) -> str:
        """Return the text of the notes, a line each."""
        return "\n".join(message(code, **fields) for code, fields in self.notes(table).items())

    def plot(self, table: pd.DataFrame, title: str) -> Figure | None:
        """Draw the table, if the metric has a plot."""
        return None

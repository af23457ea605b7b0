"""What a metric is: a table of one method's explanations, and what of it a comparison shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import pandas as pd
from torch import Tensor

from dgl_lara._util.progress import phase
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.metrics.common.reference import Reference, reference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = tuple[Sequence[str], Sequence[Sequence[object]]]  # header and cells


@dataclass(frozen=True, eq=False)
class EvalCase:
    """What explanations are judged on; phi is estimated once, for whoever asks first."""

    game: Game
    targets: Tensor
    motif: Tensor | None = None  # (num_nodes,) ground truth, where there is one
    reference_pairs: int = 2000  # of coalitions, for the estimate of phi
    seed: int = 0

    @cached_property
    def phi(self) -> Reference:
        with phase("reference attributions"):
            return reference(self.game, self.targets, self.reference_pairs, self.seed)


class Metric:
    columns: ClassVar[dict[str, int]] = {}  # a comparison's: figure -> +1 where high is good, -1 low, 0 neither
    of_speed: ClassVar[bool] = False  # it times the explaining; the explanations themselves do not matter

    def missing(self, case: EvalCase) -> str | None:
        """Why it cannot be had of this case, in a sentence; None where it can."""
        return None

    def table(self, case: EvalCase, explanations: Explanations) -> pd.DataFrame:
        """Every figure, of one method's explanations."""
        raise NotImplementedError

    def figures(self, table: pd.DataFrame) -> dict[str, float]:
        """Those that a comparison keeps, `columns` among them."""
        return {}

    def shown(self, table: pd.DataFrame) -> Rows:
        """What a reader needs first, of tables of several methods below each other (with a column `method`)."""
        return list(table.columns), table.to_numpy().tolist()

    def note(self, table: pd.DataFrame) -> str:
        """A line below that."""
        return ""

    def figure(self, table: pd.DataFrame, title: str) -> Figure | None:
        """A picture of it, if it has one."""
        return None

"""E[(d - sum_j sigma_j phi_hat_j)^2] = Eq. 8 + a constant, because E[sigma sigma^T] = I. Needs no table of labels."""

from __future__ import annotations

from torch import Tensor

from dgl_lara.training.objective import Objective, Step
from dgl_lara.training.running_mean_table import AttributionTable


class LeastSquares(Objective):
    every_class = True

    def loss(self, step: Step, table: AttributionTable | None) -> Tensor:
        return squared_loss(step, step.predicted_differences())


def squared_loss(step: Step, predicted: Tensor) -> Tensor:
    """Half the weight is on the explained class, half on the mean over all classes where g knows them."""
    wanted, g, usable = step.differences(), step.explainer, step.usable()
    if usable is not None:  # nothing is said of the rest
        wanted, predicted = wanted * usable.unsqueeze(2), predicted * usable.unsqueeze(2)
    if g.class_weight is None:
        return ((step.of_explained_class(wanted) - predicted) / g.unit).square().mean()
    error = ((wanted - predicted) / g.unit).square()
    return 0.5 * step.of_explained_class(error).mean() + 0.5 * error.mean()


OBJECTIVE = LeastSquares()

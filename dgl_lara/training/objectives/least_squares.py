"""E[(y - sum_j z_j phi_hat_j)^2] = Eq. 8 + a constant, because E[z z^T] = I. It needs no table."""

from __future__ import annotations

from torch import Tensor

from dgl_lara.training.objective import Objective, Step
from dgl_lara.training.running_mean_table import AttributionTable


class _LeastSquares(Objective):
    every_class = True

    def loss(self, step: Step, table: AttributionTable | None) -> Tensor:
        return squared_loss(step, step.predicted_responses())


def squared_loss(step: Step, predicted: Tensor) -> Tensor:
    """Compute the squared error. If g has all classes, half of the weight is on the explained one."""
    responses, g, usable = step.responses(), step.explainer, step.usable()
    if usable is not None:
        responses, predicted = responses * usable.unsqueeze(2), predicted * usable.unsqueeze(2)
    if g.class_weight is None:
        return ((step.of_explained_class(responses) - predicted) / g.unit).square().mean()
    error = ((responses - predicted) / g.unit).square()
    return 0.5 * step.of_explained_class(error).mean() + 0.5 * error.mean()


OBJECTIVE = _LeastSquares()

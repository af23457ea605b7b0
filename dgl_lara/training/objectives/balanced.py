"""Least squares in which the neighbours count as much as the target itself, for Banzhaf values.

A node is in exactly one of S and its complement, and a removed node has the null prediction. So with sigma_i, the
target's own sign, sigma_i d(S) is its value together with the neighbours on its side. With e = phi - phi_hat,

    sigma_i (d(S) - sum_j sigma_j phi_hat_j) = e_i + sum over j != i of sigma_i sigma_j e_j + noise.

The mean over coalitions is the error of the target's own score. The variance about it is the neighbours' error. The
plain square adds the two, and the target's own error, by far the larger, is noise to the neighbours. Here each is a
share of what there was to explain. The minimum is that of Eq. 8.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.training.objective import Objective, Step
from dgl_lara.training.objectives.least_squares import squared_loss
from dgl_lara.training.running_mean_table import AttributionTable


class _Balanced(Objective):
    every_class = True
    needs_uniform_coalitions = True  # the target's column of the design is 1 or -1

    def loss(self, step: Step, table: AttributionTable | None) -> Tensor:
        predicted, own = step.predicted_responses(), step.game.player_set.target_player(step.targets)
        if own is None or len(predicted) < 2:  # no target is a player, or one mask shows no variance
            return squared_loss(step, predicted)
        differences = step.responses()
        if step.explainer.class_weight is None:
            differences = step.of_explained_class(differences)
        sign = step.coalitions.design(own).unsqueeze(2)  # (num_masks, num_targets, 1)
        usable = step.usable()
        if usable is not None:
            return _loss_of_usable(step, sign * differences, sign * predicted, usable.unsqueeze(2))
        error, total = _moments(step, sign * (differences - predicted)), _moments(step, sign * differences)
        return (error / (total + 1e-9 * step.explainer.unit.square())).sum()


def _moments(step: Step, values: Tensor) -> Tensor:
    """Return (2,) the squared mean over coalitions and the variance about it."""
    mean = values.mean(0, keepdim=True)
    return torch.stack([_over_classes(step, mean.square()), _over_classes(step, (values - mean).square())])


def _loss_of_usable(step: Step, differences: Tensor, predicted: Tensor, usable: Tensor) -> Tensor:
    """Compute the loss over the masks that are coalitions for a target. With fewer than two there is no variance."""
    count = usable.sum(0, keepdim=True)

    def moments(values: Tensor) -> Tensor:
        mean = (values * usable).sum(0, keepdim=True) / count.clamp(min=1)
        variance = ((values - mean) * usable).square().sum(0, keepdim=True) / (count - 1).clamp(min=1)
        return torch.stack([_over_classes(step, mean.square()), _over_classes(step, variance)])

    error, total = moments(differences - predicted), moments(differences)
    return (error / (total + 1e-9 * step.explainer.unit.square())).sum()


def _over_classes(step: Step, squares: Tensor) -> Tensor:
    """Average over targets, with half of the weight on the explained class and half on all classes."""
    if squares.shape[2] == 1:
        return squares.mean()
    return 0.5 * step.of_explained_class(squares).mean() + 0.5 * squares.mean()


OBJECTIVE = _Balanced()

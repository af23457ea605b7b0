"""Least squares in which the neighbours count as much as the target itself.

A node is in exactly one of S and the rest, and a removed node has the null prediction. So with sigma_i, the target's
own sign, sigma_i d(S) is its value in the company of the neighbours on its side, and with e = phi - phi_hat

    sigma_i (d(S) - sum_j sigma_j phi_hat_j) = e_i + sum over j != i of sigma_i sigma_j e_j + noise:

its mean over coalitions is the error of the target's own score, its variation about that mean is the neighbours'. The
plain square adds the two as they are, and the target's own error, by far the larger, is noise to the neighbours. Here
each is taken as a share of what there was to explain. The minimum is that of Eq. 8.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.training.objective import Objective, Step
from dgl_lara.training.objectives.least_squares import squared_loss
from dgl_lara.training.running_mean_table import AttributionTable


class Balanced(Objective):
    every_class = True

    def loss(self, step: Step, table: AttributionTable | None) -> Tensor:
        predicted, own = step.predicted_differences(), step.game.player_set.target_player(step.targets)
        if own is None or len(predicted) < 2:  # nobody is the target itself, or there is no variation to see
            return squared_loss(step, predicted)
        wanted = step.differences()
        if step.explainer.class_weight is None:
            wanted = step.of_explained_class(wanted)
        sign = step.coalitions.sigma(own).unsqueeze(2)  # (num_masks, num_targets, 1)
        usable = step.usable()
        if usable is not None:
            return _of_usable(step, sign * wanted, sign * predicted, usable.unsqueeze(2))
        left, there = _parts(step, sign * (wanted - predicted)), _parts(step, sign * wanted)
        return (left / (there + 1e-9 * step.explainer.unit.square())).sum()


def _parts(step: Step, values: Tensor) -> Tensor:
    """(2,) the squared mean over coalitions, and the variance about it."""
    mean = values.mean(0, keepdim=True)
    return torch.stack([_over_classes(step, mean.square()), _over_classes(step, (values - mean).square())])


def _of_usable(step: Step, wanted: Tensor, predicted: Tensor, usable: Tensor) -> Tensor:
    """The same over the masks that are coalitions for a target: with fewer than two of them, nothing varies."""
    many = usable.sum(0, keepdim=True)

    def parts(values: Tensor) -> Tensor:
        mean = (values * usable).sum(0, keepdim=True) / many.clamp(min=1)
        about = ((values - mean) * usable).square().sum(0, keepdim=True) / (many - 1).clamp(min=1)
        return torch.stack([_over_classes(step, mean.square()), _over_classes(step, about)])

    return (parts(wanted - predicted) / (parts(wanted) + 1e-9 * step.explainer.unit.square())).sum()


def _over_classes(step: Step, squares: Tensor) -> Tensor:
    """Mean over targets, half of the weight on the explained class and half on all of them."""
    if squares.shape[2] == 1:
        return squares.mean()
    return 0.5 * step.of_explained_class(squares).mean() + 0.5 * squares.mean()


OBJECTIVE = Balanced()

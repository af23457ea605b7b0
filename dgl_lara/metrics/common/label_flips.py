"""Predictions for the important players alone and for the rest, for the metrics of PyTorch Geometric.

They use labels and probabilities instead of the explained value. Removal is that of the game. PyG multiplies features
by a mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import pandas as pd
import torch
from torch import Tensor

from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.metrics.common.metric import EvalCase, Metric
from dgl_lara.metrics.fidelity import DEFINITIONS, SPARSITIES


@dataclass(frozen=True, eq=False)
class MaskedPredictions:
    """f's logits of the targets that have players to remove."""

    full: Tensor  # (num_targets, num_classes)
    only: Tensor  # (num_sparsities, num_targets, num_classes) with the important players alone
    without: Tensor  # (num_sparsities, num_targets, num_classes) without them

    @property
    def fidelity(self) -> tuple[Tensor, Tensor]:
        """Return fid+ and fid- of a "model" explanation, (num_sparsities,) each.

        They are the shares of labels that change without the important players, and with them alone.
        """
        label = self.full.argmax(-1)
        plus, minus = (1 - (logits.argmax(-1) == label).double().mean(1) for logits in (self.without, self.only))
        return plus, minus


_PREDICTIONS: WeakKeyDictionary[Explanations, dict[str, MaskedPredictions]] = WeakKeyDictionary()


def masked_predictions(game: Game, explanations: Explanations) -> dict[str, MaskedPredictions]:
    """Return the predictions of each definition of fidelity. Several metrics share one evaluation of f."""
    if explanations not in _PREDICTIONS:
        definitions = DEFINITIONS if explanations.includes_target else DEFINITIONS[:1]
        _PREDICTIONS[explanations] = {name: _predict(game, explanations, name == "kept") for name in definitions}
    return _PREDICTIONS[explanations]


def _predict(game: Game, explanations: Explanations, keep_target: bool) -> MaskedPredictions:
    players = explanations.players
    important = torch.stack([explanations.important(sparsity, not keep_target) for sparsity in SPARSITIES])
    always = explanations.is_target if keep_target else torch.zeros_like(important[0])
    logits = game.logits_per_target(players, torch.cat([important | always, ~important | always]))
    removable = players.counts > int(keep_target)
    only, without = logits[:, removable].chunk(2)
    return MaskedPredictions(game.full_logits[players.targets[removable]], only, without)


class LabelMetric(Metric):
    """A metric that needs classes."""

    def unavailable(self, case: EvalCase) -> str | None:
        return "metric.needs_classes" if case.game.value == "output" else None

    def rows(self, predictions: MaskedPredictions) -> list[dict[str, object]]:
        """Compute the rows of one definition of fidelity."""
        raise NotImplementedError

    def table(self, case: EvalCase, explanations: Explanations) -> pd.DataFrame:
        by_definition = masked_predictions(case.game, explanations).items()
        return pd.DataFrame(
            [{"definition": name, **row} for name, predictions in by_definition for row in self.rows(predictions)]
        )

"""What f says of the important players alone and of the rest, as PyTorch Geometric's metrics ask it: by its labels and
probabilities, in the place of the explained value. Removal is the game's, where PyG multiplies features by a mask."""

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
    """f's logits, (num_sparsities, num_targets, num_classes); targets without anybody to remove are left out."""

    full: Tensor  # (num_targets, num_classes)
    only: Tensor
    without: Tensor

    @property
    def fidelity(self) -> tuple[Tensor, Tensor]:
        """fid+ and fid- of a "model" explanation, (num_sparsities,): how many labels change without the important
        players, and with them alone."""
        label = self.full.argmax(-1)
        plus, minus = (1 - (said.argmax(-1) == label).double().mean(1) for said in (self.without, self.only))
        return plus, minus


def predict_masked(game: Game, explanations: Explanations, definition: str) -> MaskedPredictions:
    """Definitions are those of `fidelity`: "paper", or the target itself "kept"."""
    players, kept = explanations.players, definition == "kept"
    important = torch.stack([explanations.important(sparsity, not kept) for sparsity in SPARSITIES])
    always = explanations.is_target if kept else torch.zeros_like(important[0])
    said = game.logits_per_target(players, torch.cat([important | always, ~important | always]))
    seen = players.counts > int(kept)
    only, without = said[:, seen].chunk(2)
    return MaskedPredictions(game.full_logits[players.targets[seen]], only, without)


_HEARD: WeakKeyDictionary[Explanations, dict[str, MaskedPredictions]] = WeakKeyDictionary()


def heard(game: Game, explanations: Explanations) -> dict[str, MaskedPredictions]:
    """By definition. Several metrics ask, f is asked once."""
    if explanations not in _HEARD:
        definitions = DEFINITIONS if explanations.includes_target else DEFINITIONS[:1]
        _HEARD[explanations] = {
            definition: predict_masked(game, explanations, definition) for definition in definitions
        }
    return _HEARD[explanations]


class LabelMetric(Metric):
    """Defined where f has classes."""

    def missing(self, case: EvalCase) -> str | None:
        return "a regression model has no labels and no probabilities." if case.game.value == "output" else None

    def rows(self, said: MaskedPredictions) -> list[dict[str, object]]:
        """One definition's part of the table."""
        raise NotImplementedError

    def table(self, case: EvalCase, explanations: Explanations) -> pd.DataFrame:
        found = heard(case.game, explanations).items()
        return pd.DataFrame(
            [{"definition": definition, **row} for definition, said in found for row in self.rows(said)]
        )

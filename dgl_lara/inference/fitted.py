"""`Fitted`: what training leaves behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dgl_lara.attribution.shared_samples import SharedSamples
from dgl_lara.explainer.network import Explainer
from dgl_lara.explanation import Explanations
from dgl_lara.inference.correction import correct_with_samples
from dgl_lara.inference.error_model import ErrorModel
from dgl_lara.training.config import TrainingConfig


@dataclass(frozen=True, eq=False)
class Fitted:
    """The trained explainer, and what corrects its scores.

    Attributes:
        explainer: The trained g.
        config: Settings of the training.
        samples: Outputs of f for coalitions that all targets share. None means nothing is kept.
        errors: Expected errors of the scores. None means unknown.
        cost: Nodes of all graphs that f was given in training, for each target. None means unknown.
        history: Step, epoch, loss and agreement of each validation.
    """

    explainer: Explainer
    config: TrainingConfig
    samples: SharedSamples | None = None
    errors: ErrorModel | None = None
    cost: float | None = None
    history: Sequence[dict] = ()

    @property
    def agreement(self) -> float | None:
        """Return the best agreement on validation targets, None if it is unknown."""
        return max((row["agreement"] for row in self.history), default=None)

    @property
    def stretch(self) -> float:
        """Return the factor of the errors of corrected scores, see `ErrorModel`."""
        return self.errors.stretch if self.errors else 1.0

    @property
    def reads_edge_data(self) -> bool:
        """Return whether f depends on edge data."""
        return self.explainer.config.edge_columns > 0

    def with_errors(self, explanations: Explanations, correct: bool = True) -> Explanations:
        """Return amortised explanations with expected errors, corrected with the samples if there are some.

        Args:
            explanations: Amortised explanations.
            correct: Whether the samples are used.
        """
        return correct_with_samples(explanations, self.samples if correct else None, self.errors)

    def on_another_graph(self) -> Fitted:
        """Return the explainer without samples, which belong to one graph."""
        return replace(self, samples=None)

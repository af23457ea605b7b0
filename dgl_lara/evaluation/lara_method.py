"""LARA as one of the methods of a benchmark, in several forms."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from dgl_lara._util.schema import number, validate, whole
from dgl_lara.baselines.common.method import Method
from dgl_lara.explainer.network import Embeddings, load_explainer
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.inference.scorer import Scorer, embed_all
from dgl_lara.lara import LARA
from dgl_lara.training.config import TrainingConfig

STYLES = {
    "lara-paper": ("#D55E00", "--"),
    "lara": ("#D55E00", "-"),
    "lara-amortised": ("#D55E00", "-."),
    "lara-all": ("#D55E00", ":"),
}


class LaraMethod(Method):
    """LARA. `explain` includes the pass of g over the full graph, `explain_again` uses the embeddings of that pass.

    Args:
        game: The explained game.
        seed: Seed of training.
        config: Settings of training.
        validation: Validation targets.
        label: The name in tables.
        corrected: Correct the scores by the samples kept from training.
    """

    name: ClassVar[str] = "lara"

    def __init__(
        self,
        game: Game,
        seed: int,
        config: TrainingConfig,
        validation: Tensor,
        label: str = "lara",
        corrected: bool = True,
    ) -> None:
        super().__init__(game, seed)
        self.corrected = corrected
        self.fit_seconds, self.nodes_asked = 0.0, 0  # the cost of training
        self.config, self.validation, self._label = replace(config, seed=seed), validation, label
        self.lara = LARA.of_game(game)
        self.embeddings: Embeddings | None = None

    @property
    def label(self) -> str:
        return self._label

    @property
    def settings(self) -> dict[str, Any]:
        return asdict(self.config)

    def with_fewer_steps(self) -> LaraMethod:
        self.config = replace(self.config, steps=2)
        self.lara.warn_if_poor = False  # its scores are not used
        return self

    def fit(self, targets: Tensor) -> None:
        self.lara.config = self.config
        before = self.game.caller.nodes_evaluated
        self.lara.fit(targets, self.validation)
        self.nodes_asked = self.game.caller.nodes_evaluated - before

    def save(self, path: Path) -> None:
        """Save the explainer and the cost of training."""
        self.lara.save(path, fit_seconds=self.fit_seconds, nodes_asked=self.nodes_asked)

    def load(self, path: Path) -> None:
        """Load a saved explainer instead of training one."""
        explainer, stored = load_explainer(path, self.game.features.device)
        validate(stored, {"fit_seconds": number, "nodes_asked": whole()}, path)
        self.lara.restore(explainer, stored)
        self.fit_seconds, self.nodes_asked = stored["fit_seconds"], stored["nodes_asked"]

    def explain(self, targets: Tensor) -> Explanations:
        self.embeddings = embed_all(self.lara.explainer_, self.game, self.lara.config_.inputs)
        return self.explain_again(targets)

    def explain_again(self, targets: Tensor) -> Explanations:
        """Explain targets from the embeddings of the last `explain`."""
        assert self.embeddings is not None
        explanations = Scorer(self.lara.explainer_, self.game, self.embeddings).explain(targets)
        return replace(
            self.lara.fitted.with_errors(explanations) if self.corrected else explanations, method=self.label
        )

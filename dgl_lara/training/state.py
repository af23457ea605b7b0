"""What a checkpoint of training holds: enough to continue as if nothing had happened."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dgl_lara.attribution.monte_carlo import Samples
from dgl_lara.attribution.shared_samples import SampleKeeper
from dgl_lara.explainer.network import Explainer
from dgl_lara.training.attribution_table import AttributionTable


@dataclass(eq=False)
class TrainingState:
    step: int
    explainer: Explainer
    average: Explainer
    optimiser: torch.optim.Optimizer
    best: float = -math.inf
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict] = field(default_factory=list)
    judged_by: str = ""
    table: AttributionTable | None = None
    keeper: SampleKeeper | None = None  # what f said of everybody, where the whole graph is asked at once
    nodes_asked: int = 0  # that f was given, see `Game.nodes_asked`
    judging: Samples | None = None  # of validation targets, by which g was judged

    def best_explainer(self) -> Explainer:
        """g with the best weights so far, for explaining."""
        best = copy.deepcopy(self.average)
        best.load_state_dict(self.best_weights)
        return best.requires_grad_(False).eval()

    def to_dict(self) -> dict:
        return {
            "step": self.step,
            "explainer": self.explainer.state_dict(),
            "average": self.average.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "best": self.best,
            "best_weights": self.best_weights,
            "history": self.history,
            "running_mean": self.table.state_dict() if self.table else None,
            "nodes_asked": self.nodes_asked,
            "shared": self.keeper.state_dict() if self.keeper else None,
        }

    def load_dict(self, content: dict) -> None:
        self.step, self.best, self.history = content["step"], content["best"], content["history"]
        self.best_weights, self.nodes_asked = content["best_weights"], content.get("nodes_asked", 0)
        self.explainer.load_state_dict(content["explainer"])
        self.average.load_state_dict(content["average"])
        self.optimiser.load_state_dict(content["optimiser"])
        if self.table:
            self.table.load_state_dict(content["running_mean"])
        if self.keeper and content.get("shared"):  # checkpoints of 0.1.0 have none
            self.keeper.load_state_dict(content["shared"])

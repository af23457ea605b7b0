"""What a checkpoint of training holds: enough to continue as if nothing had happened."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dgl_lara.attribution.monte_carlo import Samples
from dgl_lara.attribution.shared_samples import SampleReservoir
from dgl_lara.blackbox.identity import load_exactly
from dgl_lara.errors import LaraError
from dgl_lara.explainer.network import Explainer
from dgl_lara.training.running_mean_table import AttributionTable


@dataclass(eq=False)
class TrainingState:
    step: int
    explainer: Explainer
    average: Explainer
    optimiser: torch.optim.Optimizer
    best: float = -math.inf
    best_of_neighbours: float | None = None  # the same without the targets' own phi, where training has ended
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict] = field(default_factory=list)
    judged_by: str = ""
    table: AttributionTable | None = None
    keeper: SampleReservoir | None = None  # what f said of everybody, where the whole graph is asked at once
    pool: int = 0  # pairs that all steps share; 0: each has its own
    nodes_asked: int = 0  # that f was given, see `Game.nodes_evaluated`
    went_on_from: int | None = None  # the step of the checkpoint, where training was resumed
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
            "pool": self.pool,
            "shared": self.keeper.state_dict() if self.keeper else None,
        }

    def load_dict(self, content: dict) -> None:
        """What `to_dict` gave; LaraError where it is of another explainer, or damaged."""
        try:
            self.step, self.best, self.history = content["step"], content["best"], content["history"]
            if content["best_weights"]:
                load_exactly(self.average, content["best_weights"])  # it fits, or this fails
            self.best_weights, self.nodes_asked = content["best_weights"], content.get("nodes_asked", 0)
            self.pool = content.get("pool", 0)
            load_exactly(self.explainer, content["explainer"])
            load_exactly(self.average, content["average"])
            self._load_optimiser(content["optimiser"]["state"])
            if self.table:
                self.table.load_state_dict(content["running_mean"])
            if self.keeper and content.get("shared"):  # checkpoints of 0.1.0 have none
                self.keeper.load_state_dict(content["shared"])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, LaraError) as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise LaraError(f"the checkpoint does not fit this run, or is damaged ({said}).") from error

    def _load_optimiser(self, moments: dict) -> None:
        """Adam's running means; its settings are those of the config."""
        parameters = list(self.explainer.parameters())
        if sorted(moments) != (list(range(len(parameters))) if self.step else []):
            raise ValueError(f"Adam has means of {len(moments)} weights of {len(parameters)}")
        for place, parts in moments.items():
            for name in ("exp_avg", "exp_avg_sq"):
                mean, of = parts[name], parameters[place]
                if mean.shape != of.shape or mean.dtype != of.dtype or not bool(mean.isfinite().all()):
                    raise ValueError(f"{name} of weight {place} is not of its kind")
            if not parts["step"].is_floating_point() or not 0 <= float(parts["step"]) <= self.step:
                raise ValueError(f"Adam counts {float(parts['step']):g} steps of {self.step}")
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": moments})

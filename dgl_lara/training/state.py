"""The state of a training run: what a checkpoint needs to continue exactly."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara.blackbox.identity import load_exactly
from dgl_lara.errors import LaraError

if TYPE_CHECKING:
    from dgl_lara.attribution.monte_carlo import Samples
    from dgl_lara.attribution.shared_samples import SampleReservoir
    from dgl_lara.explainer.network import Explainer
    from dgl_lara.training.running_mean_table import AttributionTable


@dataclass(eq=False)
class TrainingState:
    """g, its optimiser and what was measured so far."""

    step: int
    explainer: Explainer
    average: Explainer
    optimiser: torch.optim.Optimizer
    best: float = -math.inf
    best_of_neighbours: float | None = None  # without the targets' own phi, measured after training
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict] = field(default_factory=list)
    table: AttributionTable | None = None
    reservoir: SampleReservoir | None = None  # outputs of f for all targets, if it is evaluated on the full graph
    pool: int = 0  # pairs of coalitions that all steps share, 0 if each has its own
    nodes_asked: int = 0  # nodes of all graphs that f was given, see `Game.caller.nodes_evaluated`
    resumed_at: int | None = None  # the step of the checkpoint
    validated_by: str = ""  # name of the validator
    validation_samples: Samples | None = None

    def best_explainer(self) -> Explainer:
        """Return a copy of g with the best weights so far, for explaining."""
        best = copy.deepcopy(self.average)
        best.load_state_dict(self.best_weights)
        return best.requires_grad_(False).eval()

    def to_dict(self) -> dict:
        """Return the content of a checkpoint."""
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
            "shared": self.reservoir.state_dict() if self.reservoir else None,
        }

    def load_dict(self, content: dict) -> None:
        """Load a checkpoint.

        Args:
            content: What `to_dict` returned.

        Raises:
            LaraError: "checkpoint.invalid" if it is damaged or belongs to another explainer.
        """
        try:
            self.step, self.best, self.history = content["step"], content["best"], content["history"]
            if content["best_weights"]:
                load_exactly(self.average, content["best_weights"])  # raises if they do not fit
            self.best_weights = content["best_weights"]
            self.nodes_asked, self.pool = content["nodes_asked"], content["pool"]
            load_exactly(self.explainer, content["explainer"])
            load_exactly(self.average, content["average"])
            self._load_optimiser(content["optimiser"]["state"])
            if self.table:
                self.table.load_state_dict(content["running_mean"])
            if self.reservoir and content["shared"]:
                self.reservoir.load_state_dict(content["shared"])
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError, LaraError) as error:
            problem = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise LaraError("checkpoint.invalid", problem=problem) from error

    def _load_optimiser(self, moments: dict) -> None:
        """Load Adam's running means. Its settings are those of the config."""
        parameters = list(self.explainer.parameters())
        if sorted(moments) != (list(range(len(parameters))) if self.step else []):
            raise ValueError(f"Adam has means of {len(moments)} weights of {len(parameters)}")
        for index, entries in moments.items():
            for name in ("exp_avg", "exp_avg_sq"):
                mean, weight = entries[name], parameters[index]
                if mean.shape != weight.shape or mean.dtype != weight.dtype or not bool(mean.isfinite().all()):
                    raise ValueError(f"{name} of weight {index} does not fit")
            if not entries["step"].is_floating_point() or not 0 <= float(entries["step"]) <= self.step:
                raise ValueError(f"Adam counts {float(entries['step']):g} steps of {self.step}")
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": moments})

"""Every choice of a training run, checked where it is made; what measured best, and what the paper does."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from dgl_lara._util.registry import one_of
from dgl_lara.constants import EMBEDDINGS, ENCODERS, INPUTS, SCHEDULES, TRAIN_ON
from dgl_lara.errors import InputError
from dgl_lara.explainer.gates import GATES
from dgl_lara.game.game import Game
from dgl_lara.game.task import Task
from dgl_lara.game.tasks import as_task
from dgl_lara.training.objectives import OBJECTIVES

ALL = 0  # batch size: every target at once
SOME_TARGETS, MANY_TARGETS = 1_500, 20_000
WORDS = {"embedding": EMBEDDINGS, "encoder": ENCODERS, "inputs": INPUTS, "schedule": SCHEDULES, "train_on": TRAIN_ON}
LEAST = {
    "dim": 1, "hidden": 1, "masks": 1, "steps": 1, "epochs": 1, "targets": 1, "layers": 0, "batch_size": ALL, "seed": 0,
    "pool": 0, "shared_pairs": 0,
}  # fmt: skip
MOST = {
    "dim": 4096, "hidden": 16_384, "masks": 1_000_000, "steps": 10**9, "epochs": 10**9, "layers": 64, "seed": 2**32 - 1,
    "pool": 1_000_000, "shared_pairs": 1_000_000,
}  # fmt: skip
OPTIONAL = ("epochs", "targets", "layers", "pool", "shared_pairs")


@dataclass(frozen=True)
class TrainingConfig:
    """Every choice of a training run. `default(...)` is what measured best, `paper(...)` what the paper does.

    Args:
        objective: What teaches g: "balanced" (least squares on random masks, no table; the neighbours count as much as
            the target itself), "least-squares" (they do not), "running-mean" (Eq. 10, the paper) or
            "mutual-information" (the paper's ablation).
        gate: How a score knows where the player stands: "none" (the paper), "hop", "walk", "random-walk".
        inputs: What g sees of a node: "features" (the paper) or "rich" (also degree and f's logits).
        embedding: "dual" (separate p and t) or "single".
        encoder: "residual", or "plain" (the paper).
        all_classes: Every logit of f is a game that teaches g (balanced and least squares only).
        train_on: The split to learn from on the command line, "train" or "all".
        targets: Learn from so many of them, drawn at random; None: all.
        batch_size: Targets a step; 0: every target at once, on the whole graph.
        dim: Length of p and t, for each term of the gate.
        hidden: Width of the encoder.
        layers: GraphConv layers of g, 0 is an MLP; None: K.
        masks: Pairs of coalitions drawn a step.
        pool: Pairs of coalitions of the whole graph that f is asked about before the first step and that all steps
            share; None: enough of them where players are few, and elsewhere new ones at every step; 0: always new ones.
        steps: At least so many updates, where `epochs` is not given.
        epochs: Passes over the targets.
        lr: Learning rate of Adam.
        schedule: "cosine" (with warm-up and clipped gradients) or "constant" (the paper).
        shared_pairs: Samples of every target that are kept from training, or drawn after it where training asks f about
            small parts of the graph only; they correct the scores. None: what is affordable; 0: none.
        average: Decay of the running average of g's weights; 0: none.
        seed: Of everything that is drawn.

    Example:
        >>> TrainingConfig(gate="hop", steps=200).gate
        'hop'
    """

    objective: str = "balanced"
    gate: str = "walk"
    inputs: str = "rich"
    embedding: str = "dual"
    encoder: str = "residual"
    all_classes: bool = True
    train_on: str = "train"
    targets: int | None = None
    batch_size: int = ALL
    dim: int = 20
    hidden: int = 64
    layers: int | None = None
    masks: int = 8
    pool: int | None = None
    steps: int = 800
    epochs: int | None = None
    lr: float = 5e-3
    schedule: str = "cosine"
    average: float = 0.99
    shared_pairs: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        OBJECTIVES.check(self.objective)
        GATES.check(self.gate)
        for name, known in WORDS.items():
            one_of(name, getattr(self, name), known)
        for name, low in LEAST.items():
            given = getattr(self, name)
            if given is None and name in OPTIONAL:
                continue
            if not isinstance(given, Integral) or isinstance(given, bool) or given < low:
                raise InputError(f"{name} must be a whole number of at least {low} (got {given!r}).")
            if int(given) > MOST.get(name, 2**63 - 1):
                raise InputError(f"{name} must be at most {MOST.get(name, 2**63 - 1):,}.")
            object.__setattr__(self, name, int(given))  # a NumPy number too, and files hold plain ones
        if self.pool and self.batch_size != ALL:
            raise InputError(
                f"a pool of coalitions is of the whole graph at once (got a batch size of {self.batch_size:,}); leave "
                "out --pool, or the batch size."
            )
        if not isinstance(self.all_classes, bool):
            raise InputError(f"all_classes must be True or False (got {self.all_classes!r}).")
        if not _is_number(self.lr) or not 0 < self.lr < math.inf:
            raise InputError(f"lr must be a number above 0 (got {self.lr!r}).")
        if not _is_number(self.average) or not 0 <= self.average < 1:
            raise InputError(f"average must be in [0, 1) (got {self.average!r}).")


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def default(task: str | Task, num_targets: int, seed: int = 0) -> TrainingConfig:
    """What measured best over the data sets. Where thousands of targets learn from every mask, fewer steps are enough,
    and they can be longer."""
    task = as_task(task)
    config = replace(TrainingConfig(seed=seed), **task.settings)
    if not task.has_distances:
        return config
    if num_targets > MANY_TARGETS:
        return replace(config, steps=300, gate="random-walk", hidden=128, lr=1e-2)
    enough = num_targets > SOME_TARGETS and "steps" not in task.settings
    return replace(config, steps=500) if enough else config


def paper(task: str | Task, seed: int = 0) -> TrainingConfig:
    """Section 5 and appendix: Eq. 6-12 with Adam, 1e-3 (node) or 1e-4 (graph), batches of 64."""
    config = TrainingConfig(
        objective="running-mean",
        gate="none",
        inputs="features",
        encoder="plain",
        all_classes=False,
        batch_size=64,
        hidden=20,
        masks=1,
        pool=0,
        steps=3000,
        lr=1e-3,
        schedule="constant",
        average=0.0,
        shared_pairs=0,
        seed=seed,
    )
    return replace(config, **as_task(task).paper_settings)


# Where the whole graph does not fit: targets a step, targets to learn from (drawn at random), and what small batches
# and little memory ask for.
MINI_BATCHES: dict[str, Any] = {
    "batch_size": 256,
    "targets": 20_000,
    "hidden": TrainingConfig.hidden,
    "lr": TrainingConfig.lr,
}


def full_graph_bytes(game: Game, config: TrainingConfig) -> int:
    """About what one step over the whole graph holds: g's states and their gradients, f's on a masked graph."""
    return step_bytes(config, game.hops, game.features.shape[1], game.num_classes, game.graph.num_nodes())


def step_bytes(config: TrainingConfig, hops: int, columns: int, classes: int, num_nodes: int) -> int:
    """The same on a graph, or a part of one, with so many nodes."""
    layers = hops if config.layers is None else config.layers
    in_dim = columns + 2 * classes
    numbers = 3 * in_dim + 6 * config.hidden * (layers + 1) + 6 * config.dim * (hops + 1)
    return 4 * numbers * num_nodes


def within_memory(config: TrainingConfig, game: Game, given: Container[str] = ()) -> TrainingConfig:
    """The same, or mini-batches where a step over the whole graph would take more than there is. `given`: what was
    asked for by name and stays as it is."""
    if config.batch_size != ALL or "batch_size" in given or full_graph_bytes(game, config) <= game.budget.memory:
        return config
    return replace(config, **{name: value for name, value in MINI_BATCHES.items() if name not in given})

"""The settings of a training run: what measured best, and what the paper does."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from dgl_lara._util.settings import settings
from dgl_lara.constants import Embedding, Encoder, Inputs, LearningRate, TrainOn
from dgl_lara.errors import InputError
from dgl_lara.explainer.gates import GATES
from dgl_lara.game.index import BANZHAF, Index
from dgl_lara.game.tasks import as_task
from dgl_lara.training.objectives import OBJECTIVES

if TYPE_CHECKING:
    from dgl_lara.game.game import Game
    from dgl_lara.game.task import Task

ALL = 0  # batch size: every target at once
SOME_TARGETS, MANY_TARGETS = 1_500, 20_000  # above these, fewer and longer steps are enough
MAX_PAIRS = 1_000_000  # of coalitions: in a step, in the pool, kept
Count = Annotated[int, Field(ge=1, le=10**9)]
OptionalPairs = Annotated[int, Field(ge=0, le=MAX_PAIRS)] | None


@settings
class TrainingConfig:
    """The settings of a training run. `default(...)` returns what measured best, `paper(...)` what the paper does.

    Args:
        objective: What g minimises: "balanced" (least squares on random masks, the neighbours count as much as the
            target itself), "least-squares" (they do not), "running-mean" (Eq. 10, the paper) or "mutual-information"
            (the paper's ablation).
        gate: How a score depends on the player's position: "none" (the paper), "hop", "walk", "random-walk".
        inputs: The input of g: "features" (the paper) or "rich" (also the degree and f's logits).
        embedding: "dual" (separate p and t) or "single".
        encoder: "residual", or "plain" (the paper).
        all_classes: Train g on every logit of f (balanced and least squares only).
        train_on: The split to learn from on the command line, "train" or "all".
        targets: Number of targets to learn from, drawn at random. None means all.
        batch_size: Targets a step. 0 means every target at once, on the full graph.
        dim: Length of p and t, for each term of the gate.
        hidden: Width of the encoder.
        layers: GraphConv layers of g, 0 is an MLP. None means K.
        masks: Pairs of coalitions drawn a step.
        pool: Pairs of coalitions of the full graph that all steps share. f is evaluated under them before the first
            step. 0 means new ones at every step. None means a pool if players are few.
        steps: Updates, rounded up to whole epochs. Ignored if `epochs` is set.
        epochs: Passes over the targets.
        lr: Learning rate of Adam.
        schedule: "cosine" (with warm-up and clipped gradients) or "constant" (the paper).
        shared_pairs: Samples of every target kept from training to correct the scores. If training evaluates f on
            subgraphs only, they are drawn after it. 0 means none. None means what is affordable.
        average: Decay of the running average of g's weights. 0 means no average.
        seed: Seed of every random draw.

    Raises:
        InputError: "settings.invalid" if a value is out of its range, "pool.needs_full_graph" if a pool is combined
            with mini-batches.

    Example:
        >>> TrainingConfig(gate="hop", steps=200).gate
        'hop'
    """

    objective: str = "balanced"
    gate: str = "walk"
    inputs: Inputs = "rich"
    embedding: Embedding = "dual"
    encoder: Encoder = "residual"
    all_classes: bool = True
    train_on: TrainOn = "train"
    targets: Count | None = None
    batch_size: Annotated[int, Field(ge=ALL)] = ALL
    dim: Annotated[int, Field(ge=1, le=4096)] = 20
    hidden: Annotated[int, Field(ge=1, le=16_384)] = 64
    layers: Annotated[int, Field(ge=0, le=64)] | None = None
    masks: Annotated[int, Field(ge=1, le=MAX_PAIRS)] = 8
    pool: OptionalPairs = None
    steps: Count = 800
    epochs: Count | None = None
    lr: Annotated[float, Field(gt=0)] = 5e-3
    schedule: LearningRate = "cosine"
    average: Annotated[float, Field(ge=0, lt=1)] = 0.99
    shared_pairs: OptionalPairs = None
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0

    def __post_init__(self) -> None:
        OBJECTIVES.check(self.objective)
        GATES.check(self.gate)
        if self.pool and self.batch_size != ALL:
            raise InputError("pool.needs_full_graph", batch_size=self.batch_size)


def default(task: str | Task, num_targets: int, seed: int = 0, index: Index = BANZHAF) -> TrainingConfig:
    """Return the settings that measured best over the data sets.

    Args:
        task: The kind of target.
        num_targets: Targets to learn from.
        seed: Seed of every random draw.
        index: The law of coalitions.
    """
    task = as_task(task)
    config = replace(TrainingConfig(seed=seed, objective=index.objective), **task.settings)
    if num_targets > MANY_TARGETS:
        return replace(config, **task.settings_of_many_targets)
    return replace(config, **task.settings_of_some_targets) if num_targets > SOME_TARGETS else config


def paper(task: str | Task, seed: int = 0) -> TrainingConfig:
    """Return the settings of the paper: Eq. 6-12 with Adam, 1e-3 (node) or 1e-4 (graph), batches of 64.

    Args:
        task: The kind of target.
        seed: Seed of every random draw.
    """
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


# If the full graph does not fit: small batches, a random sample of targets, and what measured best with little memory.
MINI_BATCHES: dict[str, Any] = {
    "batch_size": 256,
    "targets": 20_000,
    "hidden": TrainingConfig.hidden,
    "lr": TrainingConfig.lr,
}


def with_mini_batches(config: TrainingConfig, fixed: Container[str] = ()) -> TrainingConfig:
    """Replace training on the full graph by mini-batches. Settings named in `fixed` stay."""
    if config.batch_size != ALL:
        return config
    return replace(config, **{name: value for name, value in MINI_BATCHES.items() if name not in fixed})


def within_memory(config: TrainingConfig, game: Game, fixed: Container[str] = ()) -> TrainingConfig:
    """Use mini-batches if a step over the full graph would need more memory than the game may use.

    Args:
        config: The settings.
        game: The game, with its memory budget.
        fixed: Names of settings that must stay.
    """
    if "batch_size" in fixed or full_graph_bytes(game, config) <= game.budget.memory:
        return config
    return with_mini_batches(config, fixed)


def full_graph_bytes(game: Game, config: TrainingConfig) -> int:
    """Estimate the memory of a step over the full graph: states and gradients of g, and f on a masked graph."""
    return step_bytes(config, game.hops, game.features.shape[1], game.num_classes, game.graph.num_nodes())


def step_bytes(config: TrainingConfig, hops: int, columns: int, classes: int, num_nodes: int) -> int:
    """Estimate the memory of a step on a graph of `num_nodes` nodes."""
    layers = hops if config.layers is None else config.layers
    in_dim = columns + 2 * classes
    floats_per_node = 3 * in_dim + 6 * config.hidden * (layers + 1) + 6 * config.dim * (hops + 1)
    return 4 * floats_per_node * num_nodes


def without_full_graph(config: TrainingConfig) -> TrainingConfig:
    """Return the settings. Raise InputError if they need the full graph in memory."""
    if config.batch_size == ALL:
        raise InputError("partition.batch_size")
    if config.shared_pairs:
        raise InputError("partition.shared_pairs", got=config.shared_pairs)
    if OBJECTIVES[config.objective].keeps_table:
        raise InputError("partition.objective", got=config.objective)
    return config

"""Alg. 1: training the explainer g.

    while not converged                                    train()
        sample a mini-batch of targets (line 6)            sampling.target_batches
        sample their K-hop subgraph (line 7, Eq. 11)       lessons.teach
        estimate the attribution (line 8, Eq. 9, 10)       lessons.teach, RunningMean.update
        sample their 2K-hop subgraph (line 10, Eq. 12)     losses.embed
        update g (line 11, Eq. 8)                          losses.*_loss

A batch of all targets is the full-graph mode: both subgraphs are the whole graph, and one random mask is a coalition
for every target at once. Every random choice depends on (seed, step) only, so a resumed run repeats an unbroken one.
"""

from __future__ import annotations

import copy
import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from dgl_lara.choices import EMBEDDINGS, ENCODERS, GATES, INPUTS, OBJECTIVES
from dgl_lara.errors import InputError, LaraError
from dgl_lara.explainer.inputs import explainer_inputs, fit_normalisation
from dgl_lara.explainer.network import Explainer, ExplainerConfig, Surroundings
from dgl_lara.game.game import Game
from dgl_lara.game.removal import take_graphs
from dgl_lara.training.coalitions import RunningMean, teach
from dgl_lara.training.losses import View, embed, least_squares_loss, predicted_differences, running_mean_loss
from dgl_lara.training.subgraphs import some_targets, target_batches
from dgl_lara.training.validation import make_judge
from dgl_lara.utils.progress import Progress
from dgl_lara.utils.randomness import generator, seeded

ALL = 0  # batch size: every target at once
SOME_TARGETS, MANY_TARGETS = 1_500, 20_000


@dataclass(frozen=True)
class TrainingConfig:
    """Every choice of a training run. `default(task)` is what measured best, `paper(task)` what the paper does."""

    objective: str = "least-squares"
    gate: str = "walk"
    inputs: str = "rich"
    embedding: str = "dual"
    encoder: str = "residual"
    all_classes: bool = True  # every logit of f is a game that teaches g (least squares only)
    train_on: str = "train"
    targets: int | None = None  # learn from so many of them, drawn at random; None: all
    batch_size: int = ALL
    dim: int = 20
    hidden: int = 64
    layers: int | None = None  # None: K
    masks: int = 8  # pairs of coalitions drawn a step
    steps: int = 800  # at least so many updates, where epochs is not given
    epochs: int | None = None
    lr: float = 5e-3
    schedule: str = "cosine"
    average: float = 0.99  # decay of the running average of g's weights; 0: none
    seed: int = 0


def default(task: str, num_targets: int, seed: int = 0) -> TrainingConfig:
    """What measured best over the data sets. Graphs come in batches and want more steps; where thousands of targets
    learn from every mask, fewer masks and steps are enough, and steps can be longer."""
    config = TrainingConfig(seed=seed)
    if task == "graph":
        return replace(config, batch_size=128, steps=1200)
    if num_targets > MANY_TARGETS:
        return replace(config, masks=1, steps=300, gate="random-walk", hidden=128, lr=1e-2)
    return replace(config, masks=2, steps=500) if num_targets > SOME_TARGETS else config


# Where the whole graph does not fit: targets a step, targets to learn from (drawn at random), and what small batches
# and little memory ask for.
MINI_BATCHES = {"batch_size": 256, "targets": 20_000, "hidden": TrainingConfig.hidden, "lr": TrainingConfig.lr}


def full_graph_bytes(game: Game, config: TrainingConfig) -> int:
    """About what one step over the whole graph holds: g's states and their gradients, f's on a masked graph."""
    layers = game.hops if config.layers is None else config.layers
    in_dim = game.features.shape[1] + 2 * game.num_classes
    numbers = 3 * in_dim + 6 * config.hidden * (layers + 1) + 6 * config.dim * (game.hops + 1)
    return 4 * numbers * game.graph.num_nodes()


def paper(task: str, seed: int = 0) -> TrainingConfig:
    """Section 5 and appendix: Eq. 6-12 with Adam, 1e-3 (node) or 1e-4 (graph), batches of 64."""
    return TrainingConfig(
        objective="running-mean",
        gate="none",
        inputs="features",
        encoder="plain",
        all_classes=False,
        batch_size=64,
        hidden=20,
        masks=1,
        steps=3000,
        lr=1e-3 if task == "node" else 1e-4,
        schedule="constant",
        average=0.0,
        seed=seed,
    )


@dataclass(eq=False)
class TrainingState:
    """What a checkpoint holds: enough to continue as if nothing had happened."""

    step: int
    explainer: Explainer
    average: Explainer
    optimiser: torch.optim.Optimizer
    best: float = -math.inf
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    history: list[dict] = field(default_factory=list)
    judged_by: str = ""
    running_mean: RunningMean | None = None

    def to_dict(self) -> dict:
        return {
            "step": self.step,
            "explainer": self.explainer.state_dict(),
            "average": self.average.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "best": self.best,
            "best_weights": self.best_weights,
            "history": self.history,
            "running_mean": vars(self.running_mean) if self.running_mean else None,
        }

    def load_dict(self, content: dict) -> None:
        self.step, self.best, self.history = content["step"], content["best"], content["history"]
        self.best_weights = content["best_weights"]
        self.explainer.load_state_dict(content["explainer"])
        self.average.load_state_dict(content["average"])
        self.optimiser.load_state_dict(content["optimiser"])
        if self.running_mean:
            device = self.running_mean.phi.device
            vars(self.running_mean).update({name: part.to(device) for name, part in content["running_mean"].items()})


# --- the loop -----------------------------------------------------------------------------------------------------


def new_explainer(game: Game, config: TrainingConfig, inputs: Tensor, train_nodes: Tensor) -> Explainer:
    """g with random weights; its input normalisation and its unit come from the training targets."""
    shape = ExplainerConfig(
        task=game.task,
        in_dim=inputs.shape[1],
        num_classes=game.num_classes,
        hops=game.hops,
        layers=game.hops if config.layers is None else config.layers,
        hidden=config.hidden,
        dim=config.dim,
        gate=config.gate if game.task == "node" else "none",
        embedding=config.embedding,
        encoder=config.encoder,
        all_classes=config.all_classes and config.objective == "least-squares",
    )
    with seeded(config.seed):
        explainer = Explainer(shape).to(inputs.device)
    if config.inputs == "rich":
        fit_normalisation(explainer, inputs[train_nodes])
        explainer.unit.copy_((game.full - game.null).square().mean().sqrt().clamp(min=1e-6))
    return explainer


def check(config: TrainingConfig) -> None:
    choices = {"objective": OBJECTIVES, "gate": GATES, "inputs": INPUTS, "embedding": EMBEDDINGS, "encoder": ENCODERS}
    for name, allowed in choices.items():
        if getattr(config, name) not in allowed:
            raise InputError(f"{name} must be one of {', '.join(allowed)} (got '{getattr(config, name)}').")
    least = {"dim": 1, "hidden": 1, "masks": 1, "steps": 1, "epochs": 1, "targets": 1, "layers": 0, "batch_size": ALL}
    for name, low in least.items():
        if getattr(config, name) is not None and getattr(config, name) < low:
            raise InputError(f"{name} must be at least {low} (got {getattr(config, name)}).")


def train(
    game: Game,
    config: TrainingConfig,
    targets: Tensor,
    validation: Tensor,
    resume: dict | None = None,
    checkpoint: Callable[[TrainingState], None] = lambda state: None,
) -> TrainingState:
    """Train g on `targets`; the best weights by agreement on `validation` are kept in the state."""
    check(config)
    targets = some_targets(targets, config.targets or len(targets), config.seed)
    inputs = explainer_inputs(game, config.inputs)
    view = View(Surroundings.of(game.graph), inputs)
    explainer = new_explainer(game, config, inputs, _nodes_of(game, targets))
    optimiser = torch.optim.Adam(explainer.parameters(), lr=config.lr)
    state = TrainingState(0, explainer, copy.deepcopy(explainer).requires_grad_(False), optimiser)
    if config.objective != "least-squares":
        state.running_mean = RunningMean(game, targets)
    if resume:
        state.load_dict(resume)
    judge = make_judge(game, validation, config.seed)
    state.judged_by = judge.name

    everything = config.batch_size == ALL
    size = len(targets) if everything else config.batch_size
    an_epoch = -(-len(targets) // size)
    epochs = config.epochs or -(-config.steps // an_epoch)
    total = epochs * an_epoch
    between = max(1, total // 20)

    bar = Progress(range(state.step, total), "training explainer", done=state.step, unit="step")
    batches: list[Tensor] = []
    with held_back_interrupts() as asked:
        for step in bar:
            epoch, place = divmod(step, an_epoch)
            if not batches or place == 0:
                batches = list(target_batches(targets, size, config.seed, epoch))
            loss = update(state, game, view, config, batches[place], step, total, everything)
            if not math.isfinite(loss):
                raise LaraError(
                    f"the loss became {loss} at step {step}; lower the learning rate (--lr {config.lr / 3:.1g})."
                )
            state.step = step + 1
            if state.step % between == 0 or state.step == total:
                agreement = judge.score(state.average, game, view)
                if agreement > state.best or not state.best_weights:
                    state.best = agreement
                    state.best_weights = copy.deepcopy(state.average.state_dict())
                state.history.append({"step": state.step, "epoch": epoch + 1, "loss": loss, "agreement": agreement})
                checkpoint(state)
            bar.note(loss=loss, agreement=state.history[-1]["agreement"] if state.history else math.nan)
            if asked:
                checkpoint(state)
                raise KeyboardInterrupt
    return state


@contextmanager
def held_back_interrupts() -> Iterator[list]:
    """Ctrl-C waits for the end of the step, so that what is stored is whole; a second one does not wait."""
    asked: list[int] = []

    def note(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def update(
    state: TrainingState,
    game: Game,
    view: View,
    config: TrainingConfig,
    targets: Tensor,
    step: int,
    total: int,
    everything: bool,
) -> float:
    """One turn of Alg. 1, lines 7-11."""
    explainer = state.explainer
    lesson = teach(game, targets, config.masks, generator(config.seed * 1_000_003 + 500_000_000 + step), everything)
    p, t, nodes = embed(explainer, game, view, lesson.targets, everything)
    if state.running_mean is not None:
        loss = running_mean_loss(explainer, game, lesson, state.running_mean, config.objective, (p, t, nodes))
    else:
        predicted = predicted_differences(explainer, game, view, lesson, p, t, nodes)
        loss = least_squares_loss(explainer, game, lesson, predicted)
    for group in state.optimiser.param_groups:
        group["lr"] = learning_rate(config, step, total)
    state.optimiser.zero_grad()
    loss.backward()
    if config.schedule == "cosine":
        torch.nn.utils.clip_grad_norm_(explainer.parameters(), 1.0)
    state.optimiser.step()
    with torch.no_grad():
        decay = min(config.average, (step + 1) / (step + 10))  # short memory at first, when the weights still run
        for slow, fast in zip(state.average.parameters(), explainer.parameters(), strict=True):
            slow.lerp_(fast, 1 - decay)
    return loss.item()


def learning_rate(config: TrainingConfig, step: int, total: int) -> float:
    """Constant (the paper), or a short warm-up followed by half a cosine down to zero."""
    if config.schedule == "constant":
        return config.lr
    return config.lr * min(1, (step + 1) / 30) * 0.5 * (1 + math.cos(math.pi * step / total))


def _nodes_of(game: Game, targets: Tensor) -> Tensor:
    """The nodes whose inputs set the normalisation."""
    return targets if game.task == "node" else take_graphs(game.graph, targets)[1]

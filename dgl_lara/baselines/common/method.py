"""The protocol of all methods in a benchmark: `fit` if the method learns, then `explain(targets)`.

LARA needs f's outputs only. A method that needs more lists it in `needs`, and raises InputError if the model does not
offer it. The shipped models do (`gnns/models.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players

EDGE_WEIGHTS = ("edge_weight", "eweight", "edge_weights")  # names of the argument in models


@dataclass(frozen=True)
class BenchmarkSetting:
    """What a method may choose its settings by in a benchmark.

    Args:
        dataset: Name of the data set. Some authors publish settings for it.
        quick: Spend minutes instead of hours.
        large: The graph is large.
    """

    dataset: str
    quick: bool = False
    large: bool = False


class Method:
    """A way to explain one game. A subclass takes further settings as keywords of its constructor.

    Args:
        game: The explained game.
        seed: Seed of every random draw.
    """

    name: ClassVar[str]  # by default that of the file
    learns: ClassVar[bool] = False  # it has a `fit`, which must be called before `explain`
    needs: ClassVar[tuple[str, ...]] = ()  # beyond outputs: "gradients", "edge weights", "embeddings"
    style: ClassVar[tuple[str, str] | None] = None  # colour and line in plots
    quick_note: ClassVar[str] = ""  # what a quick benchmark shortens. It also identifies stored results

    def __init_subclass__(cls) -> None:
        if "name" not in cls.__dict__:
            cls.name = cls.__module__.rpartition(".")[2].replace("_", "-")
        cls.learns = cls.fit is not Method.fit

    def __init__(self, game: Game, seed: int = 0) -> None:
        self.game, self.seed = game, seed
        if "edge weights" in self.needs and _edge_weight_argument(game.f) is None:
            raise InputError("baseline.needs_edge_weights", method=self.name)
        if "embeddings" in self.needs and not hasattr(game.f, "embed"):
            raise InputError("baseline.needs_embeddings", method=self.name)

    @classmethod
    def for_benchmark(cls, game: Game, seed: int, setting: BenchmarkSetting) -> Method:
        """Build the method with its authors' settings, or shorter ones if the benchmark is quick.

        Args:
            game: The explained game.
            seed: Seed of every random draw.
            setting: The data set and the time there is.
        """
        return cls(game, seed)

    def with_fewer_steps(self) -> Method:
        """Return the method, set to learn as briefly as possible. Its speed does not depend on that."""
        return self

    def fit(self, targets: Tensor) -> None:
        """Learn from targets. Their labels are never used."""

    def explain(self, targets: Tensor) -> Explanations:
        """Score the players of each target."""
        raise NotImplementedError

    def result(self, players: Players, scores: Tensor) -> Explanations:
        """Build explanations of the explained classes."""
        classes = self.game.explained_class[players.targets]
        return Explanations(players, scores, classes, self.game.task, self.label, self.game)

    def call_with_weights(self, graph: Any, features: Tensor, weights: Tensor) -> Tensor:
        """Evaluate f with a weight for every edge. Gradients flow."""
        argument = _edge_weight_argument(self.game.f)
        assert argument is not None
        self.game.caller.record(graph)
        return self.game.f(graph, features, **{argument: weights})

    @property
    def settings(self) -> dict[str, Any] | None:
        """Return the settings that stored results of a benchmark depend on, or None."""
        return None

    @property
    def label(self) -> str:
        """Return the name in a table, with the settings that matter."""
        return self.name


def _edge_weight_argument(f: Callable) -> str | None:
    """Return the name of f's argument for edge weights, or None if it has none."""
    try:
        parameters = inspect.signature(f.forward if isinstance(f, nn.Module) else f).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return None
    return next((name for name in EDGE_WEIGHTS if name in parameters), None)

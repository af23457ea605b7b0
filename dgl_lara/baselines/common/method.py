"""The one protocol of all methods in a comparison: `fit` where the method learns, `explain(targets)`.

LARA asks nothing of f but its outputs. A method that needs more says so in `needs`, and gets it from models that
offer it (ours do: see `gnns/models.py`); with any other model it raises one clear sentence.
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

EDGE_WEIGHTS = ("edge_weight", "eweight", "edge_weights")  # what models call the argument


@dataclass(frozen=True)
class BenchmarkSetting:
    """What a method may choose its settings by, in a comparison."""

    dataset: str  # its name: some authors publish settings for it
    quick: bool = False  # minutes instead of hours
    large: bool = False  # the graph


class Method:
    """A way to explain one game. Settings that a method has beyond these are its constructor's keywords."""

    name: ClassVar[str]  # that of its file, unless it says otherwise
    learns: ClassVar[bool] = False  # it has a `fit`, which must come before `explain`
    needs: ClassVar[tuple[str, ...]] = ()  # beyond a black box: "gradients", "edge weights", "embeddings"
    style: ClassVar[tuple[str, str] | None] = None  # colour and line in figures
    quick_words: ClassVar[str] = ""  # what a quick comparison shortens; it identifies stored figures too

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = cls.__module__.rpartition(".")[2].replace("_", "-")
        cls.learns = cls.fit is not Method.fit

    def __init__(self, game: Game, seed: int = 0) -> None:
        self.game, self.seed = game, seed
        if "edge weights" in self.needs and edge_weight_argument(game.f) is None:
            raise InputError(
                f"{self.name} needs a model that takes a weight for every edge, f(graph, features, edge_weight=...), "
                "and this one has no such argument."
            )
        if "embeddings" in self.needs and not hasattr(game.f, "embed"):
            raise InputError(f"{self.name} needs a model that shows its embeddings, f.embed(graph, features).")

    @classmethod
    def for_comparison(cls, game: Game, seed: int, where: BenchmarkSetting) -> Method:
        """With the settings that its authors would choose there, or shorter ones where it is to be quick."""
        return cls(game, seed)

    def with_fewer_steps(self) -> Method:
        """Itself, set to learn as little as possible: how long it learned makes no difference to its speed."""
        return self

    def fit(self, targets: Tensor) -> None:
        """Learn from these targets; their labels are never used."""

    def explain(self, targets: Tensor) -> Explanations:
        raise NotImplementedError

    def result(self, players: Players, scores: Tensor) -> Explanations:
        classes = self.game.explained_class[players.targets]
        return Explanations(players, scores, classes, self.game.task, self.label, self.game)

    def call_with_weights(self, graph: Any, features: Tensor, weights: Tensor) -> Tensor:
        """f with a weight for every edge of the graph; gradients flow."""
        argument = edge_weight_argument(self.game.f)
        assert argument is not None
        self.game.record_call(graph)
        return self.game.f(graph, features, **{argument: weights})

    @property
    def label(self) -> str:
        """How a table calls it: the name, with the settings that matter."""
        return self.name


def edge_weight_argument(f: Callable) -> str | None:
    """What f calls its edge weights; None where it takes none."""
    try:
        parameters = inspect.signature(f.forward if isinstance(f, nn.Module) else f).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return None
    return next((name for name in EDGE_WEIGHTS if name in parameters), None)

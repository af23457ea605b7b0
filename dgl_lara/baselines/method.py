"""The one protocol of all methods in a comparison: `fit` where the method learns, `explain(targets)`.

LARA asks nothing of f but its outputs. A method that needs more says so in `needs`, and gets it from models that
offer it (ours do: see `targets/models.py`); with any other model it raises one clear sentence.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.players import Neighborhood


class Method:
    """A way to explain one game. Settings that a method has beyond these are its constructor's keywords."""

    name: ClassVar[str]
    learns: ClassVar[bool] = False  # `fit` must come before `explain`
    needs: ClassVar[tuple[str, ...]] = ()  # beyond a black box: "gradients", "edge weights", "embeddings"

    def __init__(self, game: Game, seed: int = 0) -> None:
        self.game, self.seed = game, seed
        if "edge weights" in self.needs and not hasattr(game.f, "states"):
            raise InputError(f"{self.name} needs a model that takes edge weights, f(graph, features, edge_weight).")
        if "embeddings" in self.needs and not hasattr(game.f, "embed"):
            raise InputError(f"{self.name} needs a model that shows its embeddings, f.embed(graph, features).")

    def fit(self, targets: Tensor) -> None:
        """Learn from these targets; their labels are never used."""

    def explain(self, targets: Tensor) -> Explanations:
        raise NotImplementedError

    def result(self, players: Neighborhood, scores: Tensor) -> Explanations:
        classes = self.game.explained_class[players.targets]
        return Explanations(players, scores, classes, self.game.task, self.label, self.game)

    @property
    def label(self) -> str:
        """How a table calls it: the name, with the settings that matter."""
        return self.name

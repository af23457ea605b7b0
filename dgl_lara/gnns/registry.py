"""Which class an architecture belongs to: the shape of a model in plain values, and the model made of it."""

from __future__ import annotations

from typing import Any

from dgl_lara._util.randomness import seeded
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.gnns import HETERO, RECOMMENDERS, Recipe
from dgl_lara.gnns.base import ShippedModel
from dgl_lara.gnns.hetero import HeteroConfig, HeteroGNN
from dgl_lara.gnns.models import GNN, ModelConfig
from dgl_lara.gnns.recommender import Recommender, RecommenderConfig


def family_of(architecture: str) -> tuple[Any, Any]:
    """(configuration, model) classes; a name that nobody knows is refused by the configuration itself."""
    if architecture in HETERO:
        return HeteroConfig, HeteroGNN
    if architecture in RECOMMENDERS:
        return RecommenderConfig, Recommender
    return ModelConfig, GNN


def new_model(dataset: Dataset, recipe: Recipe, seed: int) -> ShippedModel:
    """The untrained model of a recipe, as wide as the data ask for."""
    shape, build = family_of(recipe.architecture)
    asked = {name: getattr(recipe, name) for name in vars(recipe) if name in shape.__dataclass_fields__}
    with seeded(seed):
        return build(shape(**asked, **shape.of_dataset(dataset)))

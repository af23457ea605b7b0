"""The settings and the model class of each architecture."""

from __future__ import annotations

from typing import Any

from dgl_lara._util.randomness import seeded
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.gnns import ALL_ARCHITECTURES, HETERO, RECOMMENDERS, Recipe
from dgl_lara.gnns.base import ShippedModel
from dgl_lara.gnns.hetero import HeteroConfig, HeteroGNN
from dgl_lara.gnns.models import GNN, ModelConfig
from dgl_lara.gnns.recommender import Recommender, RecommenderConfig

FAMILIES: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys(ALL_ARCHITECTURES, (ModelConfig, GNN)),
    **dict.fromkeys(HETERO, (HeteroConfig, HeteroGNN)),
    **dict.fromkeys(RECOMMENDERS, (RecommenderConfig, Recommender)),
}


def new_model(dataset: Dataset, recipe: Recipe, seed: int) -> ShippedModel:
    """Build the untrained model of a recipe for a data set."""
    config, model = FAMILIES[recipe.architecture]
    options = {name: getattr(recipe, name) for name in vars(recipe) if name in config.__dataclass_fields__}
    with seeded(seed):
        return model(config(**options, **config.fields_of(dataset)))

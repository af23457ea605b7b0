"""A recommender f(graph, {type: x}, u, v) -> scores: LightGCN's propagation over ratings, from node features.

Unlike LightGCN's, the first embeddings are computed from features, so removal of ratings and features changes them.
Layers are linear: a weighted sum of neighbours, normalised by the degrees of both ends, with a learned weight for each
number of stars. The last embedding is a learned mix of all layers.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from dgl import ops
from torch import Tensor, nn

from dgl_lara._util.settings import Choice, settings
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import InputError
from dgl_lara.gnns import RECOMMENDERS
from dgl_lara.gnns.base import Layers, Relation, ShippedModel, Size, Width
from dgl_lara.graphs.graph import Graph

STARS = 5


@settings
class RecommenderConfig:
    """The shape of a recommender.

    Args:
        architecture: "lightgcn".
        in_dims: Feature columns of users and of what is recommended, by node type.
        rates: Relation of the ratings, which a pair stands for.
        rated_by: The reverse relation.
        hidden: Width of the embeddings.
        layers: Number of propagation steps.
    """

    architecture: Annotated[str, Choice(RECOMMENDERS)]
    in_dims: dict[str, Size]
    rates: Relation
    rated_by: Relation
    hidden: Width = 64
    layers: Layers = 2

    def __post_init__(self) -> None:
        if [*self.rates[::2], *self.rated_by[::2]] != [*self.in_dims, *reversed(self.in_dims)]:
            raise InputError("gnn.in_dims", expected=", ".join(self.rates[::2]), got=", ".join(self.in_dims))

    @staticmethod
    def fields_of(dataset: Dataset) -> dict[str, Any]:
        """Return the settings that the data set determines."""
        graph, rates = dataset.graph, dataset.relation
        reverse = [other for other in graph.canonical_etypes if rates and other[::2] == rates[2::-2]]
        if dataset.pairs is None or rates is None or rates[0] == rates[2] or not reverse:
            raise InputError("gnn.not_pairs", architectures=" and ".join(RECOMMENDERS), dataset=dataset.name)
        if not _same_ratings(graph, rates, reverse[0]):
            names = {"architectures": " and ".join(RECOMMENDERS), "dataset": dataset.name}
            raise InputError("gnn.no_ratings", **names, stars=STARS, rates=rates, reverse=reverse[0])
        in_dims = {name: dataset.features[name].shape[1] for name in rates[::2]}
        return {"in_dims": in_dims, "rates": rates, "rated_by": reverse[0]}

    @property
    def min_weights(self) -> int:
        """A lower bound on the number of weights."""
        return self.hidden * sum(self.in_dims.values())


def _same_ratings(graph: Graph, rates: Relation, rated_by: Relation) -> bool:
    """Return whether both relations hold equal ratings of 1 to STARS stars, in one order."""
    stars, reverse = (graph.edges[relation].data.get("rating") for relation in (rates, rated_by))
    if stars is None or reverse is None or stars.dim() != 1:
        return False
    ends = zip(graph.edges(etype=rates), reversed(graph.edges(etype=rated_by)), strict=True)
    valid = bool(torch.isin(stars, torch.arange(1, STARS + 1)).all())
    return valid and torch.equal(stars, reverse) and all(torch.equal(one, other) for one, other in ends)


class Recommender(ShippedModel):
    """LightGCN on features and ratings."""

    def __init__(self, config: RecommenderConfig) -> None:
        super().__init__()
        self.config = config
        self.inputs = nn.ModuleList(_small_linear(dim, config.hidden) for dim in config.in_dims.values())
        initial = torch.linspace(-0.5, 1, STARS)
        self.stars = nn.Parameter(initial.repeat(config.layers, 2, 1))  # (layers, direction, stars)
        self.mix = nn.Parameter(torch.ones(2, config.layers + 1))

    def forward(self, graph: Graph, features: dict[str, Tensor], u: Tensor, v: Tensor) -> Tensor:
        users, films = self.embed(graph, features)
        return (users[u] * films[v]).sum(dim=1)

    def embed(self, graph: Graph, features: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return (num_users, hidden) and (num_films, hidden) embeddings. A score is the product of two rows."""
        relations = (self.config.rated_by, self.config.rates)
        h = [linear(features[name]) for name, linear in zip(self.config.in_dims, self.inputs, strict=True)]
        mixed = [weights[0] * rows for weights, rows in zip(self.mix, h, strict=True)]
        for layer, stars in enumerate(self.stars, start=1):
            h = [_propagate(graph, relation, h[1 - end], stars[end]) for end, relation in enumerate(relations)]
            mixed = [rows + self.mix[end, layer] * h[end] for end, rows in enumerate(mixed)]
        return mixed[0], mixed[1]


def _small_linear(in_dim: int, out_dim: int) -> nn.Linear:
    linear = nn.Linear(in_dim, out_dim, bias=False)  # no bias, so that nodes without features have embedding zero
    nn.init.normal_(linear.weight, std=0.1 * in_dim**-0.5)
    return linear


def _propagate(graph: Graph, relation: Relation, h: Tensor, stars: Tensor) -> Tensor:
    """Compute sum_j w(rating of j) h_j / sqrt(n_i n_j)."""
    data = graph.edges[relation].data
    if "rating" not in data:
        raise InputError("recommender.no_rating", relation=relation)
    weight = stars[data["rating"].long() - 1].unsqueeze(1)
    out, into = graph.out_degrees(etype=relation), graph.in_degrees(etype=relation)
    scaled = h * out.clamp(min=1).rsqrt().unsqueeze(1)
    if not graph.num_edges(relation):
        return h.new_zeros(len(into), h.shape[1])
    return ops.u_mul_e_sum(graph[relation], scaled, weight) * into.clamp(min=1).rsqrt().unsqueeze(1)

"""A recommender, f(graph, {type: x}, u, v) -> scores: LightGCN's propagation over ratings, from features.

Unlike LightGCN's, its embeddings are made of features, so that a user is who rated what and a film who it was rated
by, and nobody is known by number. A layer is linear: the sum of what was rated, each rating with a weight that is
learned for its stars, by the root of how many there are. The last embedding is a learned mix of all layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dgl
import torch
from dgl import ops
from torch import Tensor, nn

from dgl_lara._util.schema import Check, validation_error, whole, word
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import InputError
from dgl_lara.game.receptive_field import MOST_HOPS
from dgl_lara.gnns import RECOMMENDERS
from dgl_lara.gnns.base import ShippedModel, dims_by_type, relation

STARS = 5
FIELDS: dict[str, Check] = {
    "architecture": word(*RECOMMENDERS), "in_dims": dims_by_type, "rates": relation, "rated_by": relation,
    "hidden": whole(1, 16_384), "layers": whole(1, MOST_HOPS),
}  # fmt: skip


@dataclass(frozen=True)
class RecommenderConfig:
    """Everything that determines the shape of the model; stored beside its weights."""

    architecture: str
    in_dims: dict[str, int]  # of the type that is recommended to, and of what is recommended
    rates: tuple[str, str, str]  # what a pair stands for
    rated_by: tuple[str, str, str]  # the same the other way round
    hidden: int = 64
    layers: int = 2

    def __post_init__(self) -> None:
        wrong = validation_error(vars(self), FIELDS)
        if wrong is None and [*self.rates[::2], *self.rated_by[::2]] != [*self.in_dims, *reversed(self.in_dims)]:
            wrong = f"in_dims must name the two types that {self.rates} joins (got {', '.join(self.in_dims)})"
        if wrong:
            raise InputError(f"the shape of a target model: {wrong}.")

    @staticmethod
    def of_dataset(dataset: Dataset) -> dict[str, Any]:
        """What the data decide."""
        graph, rates = dataset.graph, dataset.relation
        back = [other for other in graph.canonical_etypes if rates and other[::2] == rates[2::-2]]
        if dataset.pairs is None or rates is None or rates[0] == rates[2] or not back:
            raise InputError(
                f"{' and '.join(RECOMMENDERS)} score pairs of two node types, with relations in both directions; "
                f"{dataset.name} has none."
            )
        if not _rated_alike(graph, rates, back[0]):
            raise InputError(
                f"{' and '.join(RECOMMENDERS)} read 'rating', 1 to {STARS} stars, of every edge of {rates}, and of "
                f"{back[0]} the same; {dataset.name} is not like that: name a model of your own with --model."
            )
        return {
            "in_dims": {kind: dataset.features[kind].shape[1] for kind in rates[::2]},
            "rates": rates,
            "rated_by": back[0],
        }

    @property
    def fewest_weights(self) -> int:
        return self.hidden * sum(self.in_dims.values())


def _rated_alike(graph: dgl.DGLGraph, rates: tuple[str, str, str], back: tuple[str, str, str]) -> bool:
    """Whether both relations are the same ratings, each of some stars."""
    here, there = (graph.edges[relation].data.get("rating") for relation in (rates, back))
    if here is None or there is None or here.dim() != 1 or not torch.isin(here, torch.arange(1, STARS + 1)).all():
        return False
    ends = zip(graph.edges(etype=rates), reversed(graph.edges(etype=back)), strict=True)
    return torch.equal(here, there) and all(torch.equal(one, other) for one, other in ends)


class Recommender(ShippedModel):
    def __init__(self, config: RecommenderConfig) -> None:
        super().__init__()
        self.config = config
        self.inputs = nn.ModuleList(_small_linear(dim, config.hidden) for dim in config.in_dims.values())
        liking = torch.linspace(-0.5, 1, STARS)
        self.stars = nn.Parameter(liking.repeat(config.layers, 2, 1))  # (layers, direction, stars)
        self.mix = nn.Parameter(torch.ones(2, config.layers + 1))

    def forward(self, graph: dgl.DGLGraph, features: dict[str, Tensor], u: Tensor, v: Tensor) -> Tensor:
        users, films = self.embed(graph, features)
        return (users[u] * films[v]).sum(dim=1)

    def embed(self, graph: dgl.DGLGraph, features: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """(num_users, hidden) and (num_films, hidden): a score is the product of two rows."""
        kinds, relations = tuple(self.config.in_dims), (self.config.rated_by, self.config.rates)
        h = [linear(features[kind]) for kind, linear in zip(kinds, self.inputs, strict=True)]
        mixed = [weights[0] * rows for weights, rows in zip(self.mix, h, strict=True)]
        for layer, stars in enumerate(self.stars, start=1):
            h = [passed_on(graph, relation, h[1 - end], stars[end]) for end, relation in enumerate(relations)]
            mixed = [rows + self.mix[end, layer] * h[end] for end, rows in enumerate(mixed)]
        return mixed[0], mixed[1]


def _small_linear(in_dim: int, out_dim: int) -> nn.Linear:
    """Without bias: whoever has no features has the embedding zero."""
    linear = nn.Linear(in_dim, out_dim, bias=False)
    nn.init.normal_(linear.weight, std=0.1 * in_dim**-0.5)
    return linear


def passed_on(graph: dgl.DGLGraph, relation: tuple[str, str, str], h: Tensor, stars: Tensor) -> Tensor:
    """sum_j w(rating of j) h_j / sqrt(n_i n_j)."""
    data = graph.edges[relation].data
    if "rating" not in data:
        raise InputError(f"the recommender reads the edge data 'rating' of {relation}; the graph has none.")
    weight = stars[data["rating"].long() - 1].unsqueeze(1)
    out, into = graph.out_degrees(etype=relation), graph.in_degrees(etype=relation)
    scaled = h * out.clamp(min=1).rsqrt().unsqueeze(1)
    if not graph.num_edges(relation):
        return h.new_zeros(len(into), h.shape[1])
    return ops.u_mul_e_sum(graph[relation], scaled, weight) * into.clamp(min=1).rsqrt().unsqueeze(1)

"""Training a recommender: in each step some ratings are hidden, and what was liked among them is to rank above others.

Hidden, because a rating that the graph shows needs no prediction. The loss is BPR (Rendle et al. 2009). Settings and
the number of steps were chosen on ratings held back from ua.base (`experiments/recommender_settings.py`).
"""

from __future__ import annotations

import dgl
import torch
import torch.nn.functional as F
from torch import Tensor

from dgl_lara._util.progress import Progress
from dgl_lara._util.randomness import generator
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.datasets.movielens import LIKED
from dgl_lara.gnns import Recipe
from dgl_lara.gnns.recommender import Recommender
from dgl_lara.gnns.registry import new_model

HIDDEN = 0.2  # share of the ratings
OTHERS = 4  # films that a liked one is to rank above, drawn anew in each step


def train_recommender(dataset: Dataset, recipe: Recipe, seed: int) -> Recommender:
    model = new_model(dataset, recipe, seed).to(dataset.device)
    assert isinstance(model, Recommender)
    config, graph, draw = model.config, dataset.graph, generator(seed)
    user, film = graph.edges(etype=config.rates)
    liked = graph.edges[config.rates].data["rating"] >= LIKED
    rated = torch.zeros(graph.num_nodes(config.rates[0]), graph.num_nodes(config.rates[2]), dtype=torch.bool)
    rated[user.cpu(), film.cpu()] = True
    rated = rated.to(dataset.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    steps = Progress(range(recipe.epochs), f"training target on {dataset.name}")
    for _ in steps:
        hidden = (torch.rand(len(user), generator=draw) < HIDDEN).to(dataset.device)
        users, films = model.embed(without(graph, model, hidden), dataset.features)
        own, good = (ends[hidden & liked].repeat(OTHERS) for ends in (user, film))
        other = torch.randint(len(films), (len(own),), generator=draw).to(dataset.device)
        margin = (users[own] * (films[good] - films[other])).sum(dim=1)
        loss = -F.logsigmoid(margin)[~rated[own, other]].mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        steps.note(loss=loss.item())
    return model.eval()


def without(graph: dgl.DGLGraph, model: Recommender, hidden: Tensor) -> dgl.DGLGraph:
    """The graph without these ratings, in both directions (which hold them in the same order)."""
    keep = {relation: (~hidden).nonzero().flatten() for relation in (model.config.rates, model.config.rated_by)}
    return dgl.edge_subgraph(graph, keep, relabel_nodes=False, store_ids=False)

"""Training of a recommender: hide some ratings in each step and rank the liked ones above other films.

The loss is BPR (Rendle et al. 2009). Ratings are hidden because a visible rating needs no prediction. The settings were
chosen on ratings held back from ua.base (`experiments/recommender_settings.py`).
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

HIDDEN_SHARE = 0.2  # of the ratings
NEGATIVES = 4  # films drawn for each liked one in each step


def train_recommender(dataset: Dataset, recipe: Recipe, seed: int) -> Recommender:
    """Train with Adam on the BPR loss."""
    model = new_model(dataset, recipe, seed).to(dataset.device)
    assert isinstance(model, Recommender)
    config, graph, draw = model.config, dataset.graph, generator(seed)
    user, film = graph.edges(etype=config.rates)
    liked = graph.edges[config.rates].data["rating"] >= LIKED
    rated = torch.zeros(graph.num_nodes(config.rates[0]), graph.num_nodes(config.rates[2]), dtype=torch.bool)
    rated[user.cpu(), film.cpu()] = True
    rated = rated.to(dataset.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    steps = Progress(range(recipe.epochs), f"training a recommender on {dataset.name}")
    for _ in steps:
        hidden = (torch.rand(len(user), generator=draw) < HIDDEN_SHARE).to(dataset.device)
        users, films = model.embed(_hide_ratings(graph, model, hidden), dataset.features)
        chosen, good = (ends[hidden & liked].repeat(NEGATIVES) for ends in (user, film))
        other = torch.randint(len(films), (len(chosen),), generator=draw).to(dataset.device)
        margin = (users[chosen] * (films[good] - films[other])).sum(dim=1)
        loss = -F.logsigmoid(margin)[~rated[chosen, other]].mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        steps.note(loss=loss.item())
    return model.eval()


def _hide_ratings(graph: dgl.DGLGraph, model: Recommender, hidden: Tensor) -> dgl.DGLGraph:
    """Remove ratings in both directions, which hold them in one order."""
    keep = {relation: (~hidden).nonzero().flatten() for relation in (model.config.rates, model.config.rated_by)}
    return dgl.edge_subgraph(graph, keep, relabel_nodes=False, store_ids=False)

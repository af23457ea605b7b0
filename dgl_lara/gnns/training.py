"""Training of GNNs on the full graph, on mini-batches of graphs or on GraphSAINT subgraphs, with early stopping."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import dgl
import torch
import torch.nn.functional as F
from dgl.dataloading import SAINTSampler
from torch import Tensor, nn

from dgl_lara._util.atomic import short_hash
from dgl_lara._util.notices import notice
from dgl_lara._util.progress import Progress
from dgl_lara._util.randomness import generator, seeded
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.datasets.cache import cache_dir
from dgl_lara.errors import InputError, LaraError
from dgl_lara.game.removal import take_graphs
from dgl_lara.gnns import RECOMMENDERS, Recipe
from dgl_lara.gnns.checkpoint import load_gnn, save_gnn
from dgl_lara.gnns.ranking import in_top, pair_scores
from dgl_lara.gnns.recommender import Recommender
from dgl_lara.gnns.recommender_training import train_recommender
from dgl_lara.gnns.registry import new_model

if TYPE_CHECKING:
    from dgl_lara.datasets.dataset import Dataset
    from dgl_lara.gnns.base import ShippedModel

SMALL_LOSS = 0.01  # validation loss at which a model without mistakes stops training
SPLITS = ("train", "val", "test")
Batch = tuple[dgl.DGLGraph, Tensor, Tensor, Tensor]  # graph, features, labels, rows of the loss


def accuracy(model: nn.Module, dataset: Dataset) -> dict[str, float]:
    """Return the share of correct predictions on each split, for a recommender the pairs among the first 20."""
    if isinstance(model, Recommender) and dataset.pairs is not None:
        correct = in_top(pair_scores(model, dataset), dataset.pairs).float()
    else:
        with eval_mode(model):
            correct = (model(dataset.graph, dataset.features).argmax(dim=1) == dataset.labels).float()
    return {split: correct[dataset.split(split)].mean().item() for split in SPLITS}


def train_gnn(dataset: Dataset, recipe: Recipe, seed: int) -> ShippedModel:
    """Train with Adam on cross-entropy and keep the weights of the best validation accuracy, then loss."""
    if recipe.architecture in RECOMMENDERS:
        return train_recommender(dataset, recipe, seed)
    model = new_model(dataset, recipe, seed).to(dataset.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    best, best_weights, stale_epochs = (-1.0, 0.0), copy.deepcopy(model.state_dict()), 0
    order = generator(seed)
    epochs = Progress(range(recipe.epochs), f"training a model on {dataset.name}")
    with seeded(seed):
        for epoch in epochs:
            model.train()
            if recipe.schedule == "cosine":
                optimiser.param_groups[0]["lr"] = recipe.lr * 0.5 * (1 + math.cos(math.pi * epoch / recipe.epochs))
            for graph, features, labels, rows in batches(dataset, recipe, order):
                loss = F.cross_entropy(model(graph, features)[rows], labels[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            quality = _validation(model, dataset)
            stale_epochs = 0 if quality > best else stale_epochs + 1
            if quality > best:
                best, best_weights = quality, copy.deepcopy(model.state_dict())
            epochs.note(loss=loss.item(), validation=best[0])
            perfect = best[0] == 1 and best[1] > -SMALL_LOSS
            if stale_epochs >= recipe.patience or perfect:
                break
    model.load_state_dict(best_weights)
    return model.eval()


def _validation(model: nn.Module, dataset: Dataset) -> tuple[float, float]:
    """Return the accuracy, and minus the loss to break ties."""
    with eval_mode(model):
        logits = model(dataset.graph, dataset.features)[dataset.val]
    labels = dataset.labels[dataset.val]
    return (logits.argmax(dim=1) == labels).float().mean().item(), -F.cross_entropy(logits, labels).item()


def batches(dataset: Dataset, recipe: Recipe, order: torch.Generator) -> Iterator[Batch]:
    """Yield the batches of one epoch."""
    if recipe.saint_nodes:
        yield from _saint_batches(dataset, recipe.saint_nodes)
    elif recipe.batch_size:
        yield from _graph_batches(dataset, recipe.batch_size, order)
    else:
        yield dataset.graph, dataset.features, dataset.labels, dataset.train


def _graph_batches(dataset: Dataset, size: int, order: torch.Generator) -> Iterator[Batch]:
    shuffled = dataset.train[torch.randperm(len(dataset.train), generator=order).to(dataset.train.device)]
    for chosen in shuffled.split(size):
        graph, nodes = take_graphs(dataset.graph, chosen)
        rows = torch.arange(len(chosen), device=chosen.device)
        yield graph, dataset.features[nodes], dataset.labels[chosen], rows


def _saint_batches(dataset: Dataset, budget: int) -> Iterator[Batch]:
    """Yield subgraphs of nodes drawn in proportion to their degree (GraphSAINT's node sampler)."""
    count, device = dataset.graph.num_nodes(), dataset.graph.device
    sampler = SAINTSampler(mode="node", budget=min(budget, count), cache=False, output_device=device)
    in_train = torch.zeros(count, dtype=torch.bool, device=dataset.train.device)
    in_train[dataset.train] = True
    for _ in range(-(-count // budget)):
        graph = sampler.sample(dataset.graph, 0)
        nodes = graph.ndata[dgl.NID]
        yield graph, dataset.features[nodes], dataset.labels[nodes], in_train[nodes].nonzero().flatten()


def gnn_path(dataset: Dataset, recipe: Recipe, seed: int) -> Path:
    """Return the cache file of a trained model, whose name depends on everything that determines the model."""
    key = short_hash({"data": dataset.key, "recipe": asdict(recipe), "seed": seed})
    return cache_dir() / "targets" / f"{dataset.name}-{recipe.architecture}-seed{seed}-{key}.pt"


class _StoredGNN(NamedTuple):
    """A trained model and its cache file, which is missing if it could not be written."""

    model: ShippedModel
    path: Path
    details: dict  # data set, seed, accuracy on the three splits


def get_gnn(dataset: Dataset, recipe: Recipe, seed: int) -> _StoredGNN:
    """Load the cached model of a data set, recipe and seed, or train and cache it."""
    if not dataset.is_labelled:
        raise InputError("gnn.no_labels", dataset=dataset.name)
    path, data = gnn_path(dataset, recipe, seed), dataset.fingerprint
    if path.exists():
        try:
            model, details = load_gnn(path, dataset)
            if (details.get("seed"), details.get("data")) != (seed, data) or not {*SPLITS} <= {*details}:
                raise LaraError("gnn.changed", path=path)
            return _StoredGNN(model.to(dataset.device), path, details)
        except LaraError as error:
            notice("gnn.trained_again", cause=error)
    model = train_gnn(dataset, recipe, seed)
    details = {"dataset": dataset.name, "source": dataset.source, "seed": seed, "data": data}
    details |= accuracy(model, dataset)
    try:
        save_gnn(model, path, details)
    except LaraError as error:
        notice("gnn.not_cached", cause=error)
    return _StoredGNN(model, path, details)

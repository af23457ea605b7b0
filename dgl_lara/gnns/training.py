"""Training a target model: full graph, mini-batches of graphs, or GraphSAINT subgraphs; early stopping."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import dgl
import torch
import torch.nn.functional as F
from dgl.dataloading import SAINTSampler
from torch import Tensor, nn

from dgl_lara._util.atomic import short_hash
from dgl_lara._util.progress import Progress, log_info
from dgl_lara._util.randomness import generator, seeded
from dgl_lara._util.schema import number, validate, whole, word
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.datasets.cache import cache_dir
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import InputError, LaraError
from dgl_lara.game.removal import take_graphs
from dgl_lara.gnns import RECOMMENDERS, Recipe
from dgl_lara.gnns.base import ShippedModel
from dgl_lara.gnns.checkpoint import load_gnn, save_gnn
from dgl_lara.gnns.ranking import found_pairs, scores_of
from dgl_lara.gnns.recommender import Recommender
from dgl_lara.gnns.recommender_training import train_recommender
from dgl_lara.gnns.registry import new_model

GOOD_ENOUGH = 0.01  # validation loss of a model that makes no mistake: there is nothing left to learn


def accuracy(model: nn.Module, dataset: Dataset) -> dict[str, float]:
    """Share of right predictions on each split; of pairs, the share that a recommender puts among the first 20."""
    if isinstance(model, Recommender) and dataset.pairs is not None:
        right = found_pairs(scores_of(model, dataset), dataset.pairs).float()
        return {part: right[dataset.split(part)].mean().item() for part in ("train", "val", "test")}
    with eval_mode(model):
        right = (model(dataset.graph, dataset.features).argmax(dim=1) == dataset.labels).float()
    return {part: right[dataset.split(part)].mean().item() for part in ("train", "val", "test")}


def train_gnn(dataset: Dataset, recipe: Recipe, seed: int) -> ShippedModel:
    """Adam on cross-entropy; keeps the weights of the best validation accuracy (then loss)."""
    if recipe.architecture in RECOMMENDERS:
        return train_recommender(dataset, recipe, seed)
    model = new_model(dataset, recipe, seed).to(dataset.device)
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    best, best_weights, waited = (-1.0, 0.0), copy.deepcopy(model.state_dict()), 0
    order = generator(seed)
    epochs = Progress(range(recipe.epochs), f"training target on {dataset.name}")
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
            reached = _validation(model, dataset)
            waited = 0 if reached > best else waited + 1
            if reached > best:
                best, best_weights = reached, copy.deepcopy(model.state_dict())
            epochs.note(loss=loss.item(), validation=best[0])
            perfect = best[0] == 1 and best[1] > -GOOD_ENOUGH
            if waited >= recipe.patience or perfect:
                break
    model.load_state_dict(best_weights)
    return model.eval()


def _validation(model: nn.Module, dataset: Dataset) -> tuple[float, float]:
    """Accuracy, and minus the loss to break ties."""
    with eval_mode(model):
        logits = model(dataset.graph, dataset.features)[dataset.val]
    labels = dataset.labels[dataset.val]
    return (logits.argmax(dim=1) == labels).float().mean().item(), -F.cross_entropy(logits, labels).item()


def batches(
    dataset: Dataset, recipe: Recipe, order: torch.Generator
) -> Iterator[tuple[dgl.DGLGraph, Tensor, Tensor, Tensor]]:
    """One epoch of (graph, features, labels, rows of the loss)."""
    if recipe.saint_nodes:
        yield from _saint_batches(dataset, recipe.saint_nodes)
    elif recipe.batch_size:
        yield from _graph_batches(dataset, recipe.batch_size, order)
    else:
        yield dataset.graph, dataset.features, dataset.labels, dataset.train


def _graph_batches(
    dataset: Dataset, size: int, order: torch.Generator
) -> Iterator[tuple[dgl.DGLGraph, Tensor, Tensor, Tensor]]:
    shuffled = dataset.train[torch.randperm(len(dataset.train), generator=order).to(dataset.train.device)]
    for chosen in shuffled.split(size):
        graph, nodes = take_graphs(dataset.graph, chosen)
        yield (
            graph,
            dataset.features[nodes],
            dataset.labels[chosen],
            torch.arange(len(chosen), device=chosen.device),
        )


def _saint_batches(dataset: Dataset, budget: int) -> Iterator[tuple[dgl.DGLGraph, Tensor, Tensor, Tensor]]:
    """GraphSAINT's node sampler: subgraphs of nodes drawn in proportion to their degree."""
    nodes = dataset.graph.num_nodes()
    where = dataset.graph.device
    sampler = SAINTSampler(mode="node", budget=min(budget, nodes), cache=False, output_device=where)
    in_train = torch.zeros(nodes, dtype=torch.bool, device=dataset.train.device)
    in_train[dataset.train] = True
    for _ in range(-(-nodes // budget)):
        graph = sampler.sample(dataset.graph, 0)
        drawn = graph.ndata[dgl.NID]
        yield graph, dataset.features[drawn], dataset.labels[drawn], in_train[drawn].nonzero().flatten()


def gnn_path(dataset: Dataset, recipe: Recipe, seed: int) -> Path:
    """Where a trained target model is kept; the name holds everything that went into it."""
    key = short_hash({"data": dataset.key, "recipe": asdict(recipe), "seed": seed})
    return cache_dir() / "targets" / f"{dataset.name}-{recipe.architecture}-seed{seed}-{key}.pt"


class StoredGNN(NamedTuple):
    model: ShippedModel
    path: Path  # where it is kept, unless that failed
    details: dict  # data set, seed, accuracy on the three splits


def get_gnn(dataset: Dataset, recipe: Recipe, seed: int) -> StoredGNN:
    """The stored model of this data set, recipe and seed, trained first where there is none."""
    if not dataset.is_labelled:
        raise InputError(
            f"{dataset.name} has no labels (y) that a model of dgl-lara's own could learn from; a model of yours needs "
            "none: --model MODULE:FUNCTION."
        )
    path, data = gnn_path(dataset, recipe, seed), dataset.fingerprint
    if path.exists():
        try:
            model, details = load_gnn(path, dataset)
            validate(details, {"seed": whole(seed, seed), "train": number, "val": number, "test": number}, path)
            validate(details, {"data": word(data)}, path, optional=("data",))  # not in files of 0.1.0
            return StoredGNN(model.to(dataset.device), path, details)
        except LaraError as damage:
            log_info(f"{damage} It is trained anew.")
    model = train_gnn(dataset, recipe, seed)
    details = {"dataset": dataset.name, "source": dataset.source, "seed": seed, "data": data}
    details |= accuracy(model, dataset)
    try:
        save_gnn(model, path, details)
    except LaraError as error:
        log_info(f"{error} Going on without it.")
    return StoredGNN(model, path, details)

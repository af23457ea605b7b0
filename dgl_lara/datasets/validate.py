"""Checks that the parts of a data set fit together."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from dgl_lara._util.schema import sums_up
from dgl_lara.datasets.dataset import SPLITS, Dataset
from dgl_lara.errors import InputError
from dgl_lara.game.tasks import as_task


def validate_dataset(dataset: Dataset, file: Path | None = None) -> Dataset:
    """Return the data set. Raise InputError if its parts do not fit together.

    Args:
        dataset: The data set.
        file: The file that it was read from, for errors.
    """
    name = str(file or dataset.name)
    _check_features(dataset, name)
    _check_target_type(dataset, name)
    if dataset.pairs is not None:
        _check_pairs(dataset, dataset.pairs, name)
    expected = _count_targets(dataset)
    if dataset.labels.dim() != 1 or len(dataset.labels) != expected:
        raise InputError(
            "data.labels_count", name=name, expected=expected, task=dataset.task, got=tuple(dataset.labels.shape)
        )
    if dataset.graph.num_edges() == 0:
        raise InputError("data.no_edges", name=name)
    low, high = int(dataset.labels.min()), int(dataset.labels.max())
    if low < -1 or (dataset.is_labelled and high >= dataset.num_classes):
        got = low if low < -1 else high
        raise InputError("data.labels_range", name=name, most=dataset.num_classes - 1, got=got)
    _check_splits(dataset, expected, name)
    return dataset


def _count_targets(dataset: Dataset) -> int:
    if dataset.pairs is not None:
        return len(dataset.pairs)
    if dataset.target_type is not None:
        return dataset.graph.num_nodes(dataset.target_type)
    return as_task(dataset.task).num_targets(dataset.graph)


def _check_features(dataset: Dataset, name: str) -> None:
    graph, features = dataset.graph, dataset.features
    types = ", ".join(graph.ntypes)
    if isinstance(features, dict) == graph.is_homogeneous:
        expected = "a tensor" if graph.is_homogeneous else f"a dict of tensors by node type ({types})"
        raise InputError("data.features_type", name=name, expected=expected, got=type(features).__name__)
    if graph.is_homogeneous:
        _check_rows(name, "", features, graph.num_nodes())
        return
    if {*features} != {*graph.ntypes}:
        raise InputError("data.feature_types", name=name, types=types, got=", ".join(features))
    for node_type in graph.ntypes:
        _check_rows(name, f" of type '{node_type}'", features[node_type], graph.num_nodes(node_type))


def _check_rows(name: str, of: str, features: Tensor, rows: int) -> None:
    if features.dim() != 2 or len(features) != rows or not features.shape[1]:
        raise InputError("data.features_shape", name=name, of=of, rows=rows, got=tuple(features.shape))
    if not sums_up(features):
        bad = (~torch.isfinite(features)).any(dim=1).nonzero().flatten()
        if len(bad):
            raise InputError("data.features_not_finite", name=name, of=of, count=len(bad), first=int(bad[0]))


def _check_target_type(dataset: Dataset, name: str) -> None:
    graph = dataset.graph
    needed = not graph.is_homogeneous and dataset.pairs is None
    if (needed or dataset.target_type is not None) and dataset.target_type not in graph.ntypes:
        raise InputError("data.target_type", name=name, types=", ".join(graph.ntypes), got=dataset.target_type)


def _check_pairs(dataset: Dataset, pairs: Tensor, name: str) -> None:
    graph = dataset.graph
    start, _, end = dataset.relation or (graph.canonical_etypes[0] if graph.is_homogeneous else ("", "", ""))
    if not {start, end} <= {*graph.ntypes}:
        raise InputError("data.relation", name=name, types=", ".join(graph.ntypes), got=dataset.relation)
    if pairs.dim() != 2 or pairs.shape[1] != 2 or not len(pairs):
        raise InputError("data.pairs_shape", name=name, got=tuple(pairs.shape))
    for column, node_type in enumerate((start, end)):
        count = graph.num_nodes(node_type)
        outside = ((pairs[:, column] < 0) | (pairs[:, column] >= count)).nonzero().flatten()
        if len(outside):
            pair, noun = int(outside[0]), "node" if graph.is_homogeneous else node_type
            first = {"pair": pair, "got": pairs[pair].tolist()}
            raise InputError("data.pairs_range", name=name, type=noun, most=count - 1, column=column, **first)


def _check_splits(dataset: Dataset, num_targets: int, name: str) -> None:
    task = dataset.task
    for split in SPLITS:
        if len(dataset.split(split)) == 0:
            raise InputError("data.empty_split", name=name, split=split, task=task)
    targets = torch.cat([dataset.split(split) for split in SPLITS])
    if int(targets.min()) < 0 or int(targets.max()) >= num_targets:
        raise InputError("data.split_range", name=name, task=task, most=num_targets - 1)
    unlabelled = targets[dataset.labels[targets] < 0]
    if dataset.is_labelled and len(unlabelled):
        first = int(unlabelled.min())
        raise InputError("data.unlabelled_targets", name=name, task=task, count=len(unlabelled), first=first)
    repeated = (torch.bincount(targets) > 1).nonzero().flatten()
    if len(repeated):
        first = int(repeated[0])
        raise InputError("data.overlapping_splits", name=name, task=task, count=len(repeated), first=first)

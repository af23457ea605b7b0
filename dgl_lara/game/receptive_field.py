"""The receptive field of a model (Eq. 13), measured on ego graphs of growing radius, many nodes in one call."""

from __future__ import annotations

from numbers import Integral

import torch
from torch import Tensor

from dgl_lara._util.memory_budget import MAX_NODES_PER_CALL, Budget, slices_within_budget
from dgl_lara._util.progress import status
from dgl_lara.blackbox.call import Model, call_model, predict_and_validate
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.blackbox.input_adapter import input_adapter
from dgl_lara.errors import InputError, ModelError
from dgl_lara.game.removal import strip_data
from dgl_lara.game.task import Task
from dgl_lara.graphs.graph import Graph

MAX_TRIED_HOPS = 10
MAX_HOPS = 64  # every walk of that length is followed
NUM_MEASURED_TARGETS = 20
DEFAULT_DEPTH = 3  # layers of g if all nodes of a graph are players and K is unknown


def evenly_spaced(count: int, most: int, device: torch.device) -> Tensor:
    """Return at most `most` of the numbers 0 ... count - 1, evenly spread."""
    # the last of more than 2^24 is rounded up
    return torch.linspace(0, count - 1, min(most, count)).long().clamp(max=count - 1).to(device)


def _on_ego_graphs(
    f: Model, task: Task, graph: Graph, features: Tensor, targets: Tensor, hops: int, nodes_per_call: int
) -> Tensor:
    """Return (len(targets), num_classes) f of each target on its own ego graph, many in one call."""
    logits = []
    for rows in slices_within_budget(task.reach(graph, targets, hops).counts, nodes_per_call):
        batch = task.ego_batch(graph, targets[rows], hops)
        logits.append(f(batch.graph, features[batch.nodes], *task.endpoint_indices(batch))[batch.target_rows])
    return torch.cat(logits)


def fewest_hops(
    f: Model,
    task: Task,
    graph: Graph,
    features: Tensor,
    targets: Tensor,
    full: Tensor,
    tried: range,
    allowed: Tensor,
    nodes_per_call: int,
) -> int | None:
    """Return the first radius whose ego graphs give the predictions of f, or None.

    Degree normalisation needs one hop more than the last layer. It counts unless its effect is within `allowed`.

    Args:
        f: Model that returns logits.
        task: What is a target.
        graph: The full graph.
        features: Features of its nodes.
        targets: Targets that are compared.
        full: (len(targets), num_classes) predictions on the full graph.
        tried: Radii.
        allowed: Largest difference that counts as none.
        nodes_per_call: Nodes of all ego graphs of one call.
    """
    for hops in tried:
        if (_on_ego_graphs(f, task, graph, features, targets, hops, nodes_per_call) - full).abs().max() <= allowed:
            return hops
    return None


def max_hop(
    f: Model,
    task: Task,
    graph: Graph,
    features: Tensor,
    targets: Tensor,
    limit: int = MAX_TRIED_HOPS,
    tolerance: float = 1e-4,
    nodes_per_call: int = MAX_NODES_PER_CALL,
) -> int:
    """Return K of a black box (Eq. 13).

    K is the smallest radius that gives the predictions of f and from which one hop more changes nothing.

    Raises:
        InputError: "hops.unbounded" if K is larger than `limit`.
    """
    full_batch = task.full_batch(graph, targets)
    full = f(graph, features, *task.endpoint_indices(full_batch))[full_batch.target_rows]
    allowed = tolerance * full.abs().max().clamp(min=1e-12)
    found: int | None = -1
    while found is not None:
        tried = range(found + 1, limit + 1)
        found = fewest_hops(f, task, graph, features, targets, full, tried, allowed, nodes_per_call)
        if found is None:
            break
        one_more = range(found + 1, found + 2)
        if fewest_hops(f, task, graph, features, targets, full, one_more, allowed, nodes_per_call) is not None:
            return found
    raise InputError("hops.unbounded", limit=limit)


def checked_hops(hops: object) -> int | str:
    """Return hops: a whole number, "auto" or "measure". Raise an error for anything else."""
    if hops in ("auto", "measure"):
        return str(hops)
    if not isinstance(hops, Integral) or isinstance(hops, bool) or not 0 <= int(hops) <= MAX_HOPS:
        raise InputError("hops.range", most=MAX_HOPS, got=hops)
    return int(hops)


def choose_hops(
    model: Model, graph: Graph, features: Tensor, task: Task, hops: int | str, memory: int | None = None
) -> int:
    """Return K.

    A model that normalises by degree uses one hop more than it has layers, so Eq. 13 returns 4 for three layers.

    Args:
        model: The model.
        graph: Graph on which K is measured.
        features: Features of its nodes.
        task: What is a target.
        hops: K, "auto" for `model.num_hops` and otherwise Eq. 13, or "measure" for Eq. 13.
        memory: Bytes that calls keep to.
    """
    hops = checked_hops(hops)
    if isinstance(hops, int):
        return hops
    declared = getattr(model, "num_hops", None)
    if declared is not None and hops == "auto":
        if not isinstance(declared, Integral) or isinstance(declared, bool) or not 0 <= int(declared) <= MAX_HOPS:
            raise ModelError("hops.declared", most=MAX_HOPS, got=declared)
        return int(declared)
    if task.max_distance(1) == 0:  # all nodes of a graph are players
        return DEFAULT_DEPTH
    graph, targets = strip_data(graph), evenly_spaced(task.num_targets(graph), NUM_MEASURED_TARGETS, features.device)
    # raises an error first if the model cannot be explained at all
    endpoints = task.endpoint_indices(
        task.full_batch(graph, torch.arange(task.num_targets(graph), device=features.device))
    )
    predict_and_validate(model, graph, features, task.num_rows(graph), task.name, *endpoints)

    def f(part: Graph, x: Tensor, *endpoints: Tensor) -> Tensor:
        rows = len(endpoints[0]) if endpoints else task.num_rows(part)
        return call_model(model, part, x, rows, task.name, *endpoints)

    with status("measuring how far the model looks (Eq. 13)"), eval_mode(model):
        columns = input_adapter(model).num_feature_columns(features)
        nodes_per_call = Budget.of(memory, features.device).nodes_per_call(columns)
        return max_hop(f, task, graph, features, targets, tolerance=1e-3, nodes_per_call=nodes_per_call)

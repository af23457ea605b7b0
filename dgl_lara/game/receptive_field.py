"""Eq. 13: how far the model looks, found by asking it about ego graphs of growing radius, many nodes in one call."""

from __future__ import annotations

from numbers import Integral

import dgl
import torch
from torch import Tensor

from dgl_lara._util.memory_budget import NODES_A_CALL, Budget, slices_within_budget
from dgl_lara._util.progress import status
from dgl_lara.blackbox.call import Model, call_model, predict_and_validate
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.blackbox.input_adapter import input_adapter
from dgl_lara.errors import InputError, ModelError
from dgl_lara.game.removal import strip_data
from dgl_lara.game.task import Task

LIMIT = 10  # hops that are tried
MAX_HOPS = 64  # that can be asked for: every walk of that length is followed
SAMPLE = 20  # nodes that are asked about
DEPTH = 3  # of g, where every node of a graph is a player anyway and K is not known


def evenly_spaced(count: int, most: int, device: torch.device) -> Tensor:
    """At most `most` of the numbers 0 ... count - 1, evenly spread."""
    # the last of more than 2^24 is rounded up
    return torch.linspace(0, count - 1, min(most, count)).long().clamp(max=count - 1).to(device)


def on_ego_graphs(
    f: Model, task: Task, graph: dgl.DGLGraph, features: Tensor, targets: Tensor, hops: int, nodes_per_call: int
) -> Tensor:
    """(len(targets), num_classes): what f says of each target on its own ego graph; as many in one call as fit."""
    answers = []
    for rows in slices_within_budget(task.reach(graph, targets, hops).counts, nodes_per_call):
        here = task.ego_batch(graph, targets[rows], hops)
        answers.append(f(here.graph, features[here.nodes], *task.endpoint_indices(here))[here.target_rows])
    return torch.cat(answers)


def fewest_hops(
    f: Model,
    task: Task,
    graph: dgl.DGLGraph,
    features: Tensor,
    targets: Tensor,
    full: Tensor,
    tried: range,
    allowed: Tensor,
    nodes_per_call: int,
) -> int | None:
    """The first radius tried whose ego graphs give f's own predictions `full` of the targets, up to what is `allowed`.

    Degree normalisation reaches one hop beyond the last layer, and this is found too, unless more is allowed than that
    effect. None: no radius is enough.
    """
    for hops in tried:
        if (on_ego_graphs(f, task, graph, features, targets, hops, nodes_per_call) - full).abs().max() <= allowed:
            return hops
    return None


def max_hop(
    f: Model,
    task: Task,
    graph: dgl.DGLGraph,
    features: Tensor,
    targets: Tensor,
    limit: int = LIMIT,
    tolerance: float = 1e-4,
    nodes_per_call: int = NODES_A_CALL,
) -> int:
    """Eq. 13: K of a black box, the smallest radius that gives its own predictions and from which one hop more changes
    nothing (against the largest logit); one sentence where it looks further than `limit`."""
    whole = task.full_batch(graph, targets)
    full = f(graph, features, *task.endpoint_indices(whole))[whole.target_rows]
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
    raise InputError(
        f"the model still changes beyond {limit} hops: it sees the whole graph, or edges that leave a node (as DGL's "
        "GraphConv does, whose normalisation counts them); give the number of hops yourself (hops=..., --hops)."
    )


def checked_hops(hops: object) -> int | str:
    """What may be asked for: a whole number, "auto" or "measure"."""
    if hops in ("auto", "measure"):
        return str(hops)
    if not isinstance(hops, Integral) or isinstance(hops, bool) or not 0 <= int(hops) <= MAX_HOPS:
        raise InputError(f"hops must be a whole number from 0 to {MAX_HOPS}, 'auto' or 'measure' (got {hops!r}).")
    return int(hops)


def choose_hops(
    model: Model, graph: dgl.DGLGraph, features: Tensor, task: Task, hops: int | str, memory: int | None = None
) -> int:
    """K: what was asked for; "auto": what the model says (`num_hops`), else Eq. 13; "measure": Eq. 13 in any case.

    A model that normalises by degree really does look one hop beyond its layers, so Eq. 13 finds 4 for three layers.
    """
    hops = checked_hops(hops)
    if isinstance(hops, int):
        return hops
    declared = getattr(model, "num_hops", None)
    if declared is not None and hops == "auto":
        if not isinstance(declared, Integral) or isinstance(declared, bool) or not 0 <= int(declared) <= MAX_HOPS:
            raise ModelError(
                f"the model's num_hops must be a whole number from 0 to {MAX_HOPS} (got {declared!r}); give the "
                "number of hops yourself (--hops)."
            )
        return int(declared)
    if not task.has_distances:
        return DEPTH
    graph, targets = strip_data(graph), evenly_spaced(task.num_targets(graph), SAMPLE, features.device)
    # a model that cannot be explained at all is told so first
    ends = task.endpoint_indices(task.full_batch(graph, torch.arange(task.num_targets(graph), device=features.device)))
    predict_and_validate(model, graph, features, task.num_rows(graph), task.name, *ends)

    def f(part: dgl.DGLGraph, x: Tensor, *ends: Tensor) -> Tensor:
        rows = len(ends[0]) if ends else task.num_rows(part)
        return call_model(model, part, x, rows, task.name, *ends)

    with status("measuring how far the model looks (Eq. 13)"), eval_mode(model):
        columns = input_adapter(model).num_feature_columns(features)
        nodes_per_call = Budget.of(memory, features.device).nodes_per_call(columns)
        return max_hop(f, task, graph, features, targets, tolerance=1e-3, nodes_per_call=nodes_per_call)

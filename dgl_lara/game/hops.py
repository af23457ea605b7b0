"""Eq. 13: how far the model looks, found by asking it about ego graphs of growing radius, many nodes in one call."""

from __future__ import annotations

import dgl
import torch
from torch import Tensor

from dgl_lara.errors import InputError
from dgl_lara.game.budget import NODES_A_CALL, row_slices
from dgl_lara.game.players import in_neighborhood
from dgl_lara.game.removal import ego_graphs
from dgl_lara.model.blackbox import Model

LIMIT = 10  # hops that are tried
MOST_HOPS = 64  # that can be asked for: every walk of that length is followed
SAMPLE = 20  # nodes that are asked about


def spread_out(count: int, most: int, device: torch.device) -> Tensor:
    """At most `most` of the numbers 0 ... count - 1, evenly spread."""
    return torch.linspace(0, count - 1, min(most, count)).long().to(device)


def on_ego_graphs(
    f: Model, graph: dgl.DGLGraph, features: Tensor, nodes: Tensor, hops: int, nodes_a_call: int
) -> Tensor:
    """(len(nodes), num_classes): what f says of each node on its own ego graph; as many in one call as fit."""
    everyone, answers = in_neighborhood(graph, nodes, hops), []
    for rows in row_slices(everyone.counts, nodes_a_call):
        context = everyone.part(rows)
        own = (context.hop == 0).nonzero().flatten()
        answers.append(f(ego_graphs(graph, context), features[context.player])[own])
    return torch.cat(answers)


def fewest_hops(
    f: Model,
    graph: dgl.DGLGraph,
    features: Tensor,
    nodes: Tensor,
    full: Tensor,
    tried: range,
    allowed: Tensor,
    nodes_a_call: int,
) -> int | None:
    """The first radius tried whose ego graphs give f's own predictions `full` of the nodes, up to what is `allowed`.

    Degree normalisation reaches one hop beyond the last layer, and this is found too, unless more is allowed than that
    effect. None: no radius is enough.
    """
    for hops in tried:
        if (on_ego_graphs(f, graph, features, nodes, hops, nodes_a_call) - full).abs().max() <= allowed:
            return hops
    return None


def max_hop(
    f: Model,
    graph: dgl.DGLGraph,
    features: Tensor,
    nodes: Tensor,
    limit: int = LIMIT,
    tolerance: float = 1e-4,
    nodes_a_call: int = NODES_A_CALL,
) -> int:
    """Eq. 13: K of a black box, the smallest radius that gives its own predictions and from which one hop more changes
    nothing (against the largest logit); one sentence where it looks further than `limit`."""
    full = f(graph, features)[nodes]
    allowed = tolerance * full.abs().max().clamp(min=1e-12)
    found: int | None = -1
    while found is not None:
        tried = range(found + 1, limit + 1)
        found = fewest_hops(f, graph, features, nodes, full, tried, allowed, nodes_a_call)
        if found is None:
            break
        one_more = range(found + 1, found + 2)
        if fewest_hops(f, graph, features, nodes, full, one_more, allowed, nodes_a_call) is not None:
            return found
    raise InputError(f"the model still changes beyond {limit} hops; give the number of hops yourself (--hops).")

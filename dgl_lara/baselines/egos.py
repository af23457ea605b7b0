"""The graphs on which f is run for a batch of targets at once, for methods that look inside f."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import dgl
import torch
from torch import Tensor

from dgl_lara.game.game import NODES_A_CALL, Game, row_slices
from dgl_lara.game.players import Neighborhood, find, in_neighborhood
from dgl_lara.game.removal import ego_graphs, take_graphs


@dataclass(frozen=True, eq=False)
class Egos:
    """One separate graph a target, side by side: its ego graph, or the graph itself for a graph task."""

    graph: dgl.DGLGraph
    features: Tensor  # (num_nodes, in_dim)
    targets: Tensor  # (num_targets,) the row of f's output that is the target
    players: Tensor  # (num_pairs,) the node that is the player of a pair
    row: Tensor  # (num_nodes,) which of the targets a node belongs to


def egos(game: Game, players: Neighborhood, hops: int | None = None) -> Egos:
    """With as many hops as f needs to give its own predictions, unless `hops` says otherwise."""
    if game.task == "graph":
        batch, nodes = take_graphs(game.graph, players.targets)
        everyone = torch.arange(len(nodes), device=nodes.device)
        rows = torch.arange(len(players.targets), device=nodes.device)
        return Egos(batch, game.features[nodes], rows, everyone, players.row)
    context = in_neighborhood(game.graph, players.targets, game.context if hops is None else hops)
    place, _ = find(players.key, context.key)
    own = (context.hop == 0).nonzero().flatten()
    return Egos(ego_graphs(game.graph, context), game.features[context.player], own, place, context.row)


def batches(players: Neighborhood, budget: int = NODES_A_CALL) -> Iterator[Neighborhood]:
    """Parts whose players together stay within the budget, so that the memory of one call of f is bounded."""
    if len(players.targets):
        yield from (players.part(rows) for rows in row_slices(players.counts, budget))

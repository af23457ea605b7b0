"""The graphs on which f is evaluated for a batch of targets, for methods that look inside f."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from dgl_lara._util.memory_budget import slices_within_budget
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.graphs.subgraph import EgoBatch


def ego_graphs(game: Game, players: Players, hops: int | None = None) -> EgoBatch:
    """Extract the ego graph of each target. By default it is large enough for f's own predictions."""
    return game.task.ego_batch(game.graph, players.targets, game.context_hops if hops is None else hops)


def player_nodes(batch: EgoBatch, players: Players) -> Tensor:
    """Return (num_pairs,) the node of the batch that is the player of each pair."""
    return lookup_sorted(players.key, batch.key)[0]


def batches(players: Players, budget: int) -> Iterator[Players]:
    """Split players by target so that each part has at most `budget` players, which bounds the memory of a call."""
    if len(players.targets):
        yield from (players.part(rows) for rows in slices_within_budget(players.counts, budget))

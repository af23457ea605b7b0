"""The graphs on which f is run for a batch of targets at once, for methods that look inside f."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from dgl_lara._util.memory_budget import slices_within_budget
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.graphs.subgraph import EgoBatch


def egos(game: Game, players: Players, hops: int | None = None) -> EgoBatch:
    """With as many hops as f needs to give its own predictions, unless `hops` says otherwise."""
    return game.task.ego_batch(game.graph, players.targets, game.context_hops if hops is None else hops)


def place_of_players(here: EgoBatch, players: Players) -> Tensor:
    """(num_pairs,) the node of `here` that is the player of a pair."""
    return lookup_sorted(players.key, here.key)[0]


def batches(players: Players, budget: int) -> Iterator[Players]:
    """Parts whose players together stay within the budget, so that the memory of one call of f is bounded."""
    if len(players.targets):
        yield from (players.part(rows) for rows in slices_within_budget(players.counts, budget))

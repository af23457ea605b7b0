"""Links on a graph of ratings are recommendations, and sentences about them use who liked what.

A graph holds ratings if the edges between both ends' types carry one number named `rating`. A rating above the average
of its relation is a like.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.blackbox.hetero import HeteroAdapter
from dgl_lara.blackbox.input_adapter import EDGE_ID
from dgl_lara.game.game import Game

RATING = "rating"
USER_CLAUSES = {True: "who liked it", False: "who did not like it", None: "with ratings in common"}
ITEM_CLAUSES = {True: "which they liked", False: "which they did not like", None: "rated by the same users"}


def holds_ratings(game: Game) -> bool:
    """Return whether a target is a pair of a user and an item with ratings between their types."""
    f = game.f
    if not isinstance(f, HeteroAdapter) or len(set(f.target_types)) != 2:
        return False
    between = {f.target_types, f.target_types[::-1]}
    data = [f.data[relation] for relation in f.types.relations if (relation[0], relation[2]) in between]
    return bool(data) and all(RATING in columns and columns[RATING].dim() == 1 for columns in data)


def recommendation_clauses(game: Game, user: int, item: int, players: Tensor) -> list[str]:
    """Return a clause for each player about its rating of the item, or the user's rating of it."""
    assert isinstance(game.f, HeteroAdapter)
    of_user, of_item = _likes(game, user), _likes(game, item)
    types, _ = game.f.types.locate(players)
    return [
        USER_CLAUSES[of_item.get(player)] if name == game.f.target_types[0] else ITEM_CLAUSES[of_user.get(player)]
        for name, player in zip(types, players.tolist(), strict=True)
    ]


def _likes(game: Game, node: int) -> dict[int, bool]:
    """Return for each node with a rating of this one, or by it, whether the rating is a like."""
    f, graph = game.f, game.graph
    assert isinstance(f, HeteroAdapter)
    others, _, edge_ids = graph.in_edges(node, form="all")
    edges = graph.edata[EDGE_ID][edge_ids]
    relation = f.types.relation_of(edges)
    likes: dict[int, bool] = {}
    for index in torch.unique(relation).tolist():
        mask, name = relation == index, f.types.relations[index]
        if RATING in f.data[name]:
            ratings = f.data[name][RATING].float()
            liked = ratings[edges[mask] - f.types.edge_offsets[index]] > ratings.mean()
            likes |= dict(zip(others[mask].tolist(), liked.tolist(), strict=True))
    return likes

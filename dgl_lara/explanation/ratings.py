"""Links on a graph of ratings are recommendations, and can be told as such: who liked what.

A graph holds ratings where edges into either end carry one number under the name `rating`. Liked is what is rated above
the average of the relation.
"""

from __future__ import annotations

import torch

from dgl_lara.blackbox.hetero import HeteroAdapter
from dgl_lara.blackbox.input_adapter import EDGE_ID
from dgl_lara.game.game import Game

RATING = "rating"
OF_GIVERS = {True: "who liked it", False: "who did not like it", None: "who rated what they rated"}
OF_THINGS = {True: "which they liked", False: "which they did not like", None: "which is rated beside it"}


def holds_ratings(game: Game) -> bool:
    """Somebody of one type rates what is of another, and a pair is one of either."""
    f = game.f
    if not isinstance(f, HeteroAdapter) or game.task.num_endpoints != 2 or f.target_types[0] == f.target_types[1]:
        return False
    between = {f.target_types, f.target_types[::-1]}
    data = [f.data[relation] for relation in f.types.relations if (relation[0], relation[2]) in between]
    return bool(data) and all(RATING in columns and columns[RATING].dim() == 1 for columns in data)


def likes_into(game: Game, node: int) -> dict[int, bool]:
    """Whoever has a rating between itself and the node, and whether it is a like."""
    f, graph = game.f, game.graph
    assert isinstance(f, HeteroAdapter)
    others, _, places = graph.in_edges(node, form="all")
    number = graph.edata[EDGE_ID][places]
    relation = f.types.relation_of(number)
    found: dict[int, bool] = {}
    for place in torch.unique(relation).tolist():
        here, name = relation == place, f.types.relations[place]
        if RATING in f.data[name]:
            stars = f.data[name][RATING].float()
            good = stars[number[here] - f.types.edge_offsets[place]] > stars.mean()
            found |= dict(zip(others[here].tolist(), good.tolist(), strict=True))
    return found


def how_they_come_in(game: Game, u: int, v: int, players: torch.Tensor) -> list[str]:
    """Of each player, the end of a sentence on v, which is recommended to u."""
    assert isinstance(game.f, HeteroAdapter)
    theirs, its = likes_into(game, u), likes_into(game, v)
    kinds, _ = game.f.types.locate(players)
    giver = game.f.target_types[0]
    return [
        OF_GIVERS[its.get(player)] if kind == giver else OF_THINGS[theirs.get(player)]
        for kind, player in zip(kinds, players.tolist(), strict=True)
    ]

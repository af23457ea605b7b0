"""Links on a graph of ratings are recommendations, and sentences about them use who liked what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara.blackbox.input_adapter import input_adapter

if TYPE_CHECKING:
    from dgl_lara.game.game import Game

USER_CLAUSES = {True: "who liked it", False: "who did not like it", None: "with ratings in common"}
ITEM_CLAUSES = {True: "which they liked", False: "which they did not like", None: "rated by the same users"}


def recommendation_clauses(game: Game, user: int, item: int, players: Tensor) -> list[str]:
    """Return a clause for each player about its rating of the item, or the user's rating of it."""
    adapter = input_adapter(game.f)
    of_user, of_item = adapter.likes(game.graph, user), adapter.likes(game.graph, item)
    node_types = game.user_ids(torch.cat([players.new_tensor([user]), players]))[0] or []
    return [
        USER_CLAUSES[of_item.get(player)] if node_type == node_types[0] else ITEM_CLAUSES[of_user.get(player)]
        for node_type, player in zip(node_types[1:], players.tolist(), strict=True)
    ]

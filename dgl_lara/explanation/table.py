"""Tables of scores with the numbers by which users know nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

if TYPE_CHECKING:
    from dgl_lara.game.game import Game

COLUMNS = {  # of every table of scores, with their types in files
    "target": "int64",
    "player": "int64",
    "hop": "int8",
    "score": "float32",
    "rank": "int32",
    "explained_class": "int32",
    "kind": "dictionary",
}
SOURCES = ("amortised", "corrected")
_NODE_COLUMNS = (
    "target_u_type",
    "target_u",
    "target_v_type",
    "target_v",
    "player",
    "type",
)  # in this order


@dataclass(frozen=True, eq=False)
class Labels:
    """Names of the user's own for nodes, features and classes, and the ground truth. All are optional."""

    labels: Sequence[str] | None = None  # of each node (an atom's symbol, a person's name)
    columns: Sequence[str] | None = None  # of each feature
    motif: Tensor | None = None  # (num_nodes,) the true motif that a node belongs to, -1 for none
    classes: Sequence[str] | None = None  # of each class

    def of_class(self, number: int) -> str:
        """Return the name of a class, or its number if it has no name."""
        names = self.classes or ()
        return str(names[number]) if number < len(names) else str(number)


def pairs_frame(**columns: Any) -> pd.DataFrame:
    """Return a table with one row for each (target, player) pair and the columns of COLUMNS."""
    kind = pd.Categorical.from_codes(np.zeros(len(columns["player"]), np.int8), pd.Index([columns["kind"]]))
    return pd.DataFrame({**{name: columns[name] for name in COLUMNS}, "kind": kind})


def player_columns(game: Game | None, names: Labels, players: Tensor) -> dict[str, Any]:
    """Return columns that describe players, such as both ends of an edge."""
    if game is None:
        return {}
    ends = {name: end.cpu().numpy() for name, end in zip("uv", game.player_set.endpoints(players), strict=False)}
    own = game.player_set.display_names(names.columns)
    return ends if own is None else {"name": np.array(own, dtype=object)[players.cpu().numpy()]}


def to_user_ids(frame: pd.DataFrame, game: Game | None) -> pd.DataFrame:
    """Return a table with the numbers of the user's graph in place of those of the game's graph.

    Links get columns for both ends. Nodes of a graph with several types get a column for their type.
    """
    if game is None:
        return frame
    columns: dict[str, Any] = {str(name): values for name, values in frame.items()}
    targets, players = (torch.tensor(frame[name].to_numpy(), device=game.device) for name in ("target", "player"))
    nodes = {name: ids for name, ids in game.player_set.node_columns(players).items() if name in columns}
    for name, ids in {**game.task.node_columns(targets), **nodes}.items():
        node_types, own = game.user_ids(ids)
        columns[name] = own.cpu().numpy()
        if node_types is not None:
            columns["type" if name == "player" else f"{name}_type"] = pd.Categorical(node_types, game.type_names)
    order = [name for name in ("target", *_NODE_COLUMNS) if name in columns]
    order += [name for name in columns if name not in order]
    return pd.DataFrame({name: columns[name] for name in order}, index=frame.index)

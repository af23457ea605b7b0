"""Player sets by name with their options: `LARA(players="edges")` or `LARA(players=Edges(directed=True))`."""

from __future__ import annotations

import operator
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import Field

from dgl_lara._util.registry import one_of
from dgl_lara._util.settings import Choice, from_dict, settings, to_dict
from dgl_lara.blackbox.hetero_index import HeteroIndex
from dgl_lara.constants import BASELINES, FEATURES_OF, PLAYERS
from dgl_lara.errors import InputError
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.feature_players import FeaturePlayers
from dgl_lara.game.player_set import GameContext, NodePlayers, PlayerSet

__all__ = ["Edges", "Features", "Nodes", "PlayerSpec", "as_players", "from_dict", "to_dict"]


@settings
class Nodes:
    """Nodes within reach of the target. This is the default."""

    name: Literal["nodes"] = field(default="nodes", kw_only=True)

    def build(self, context: GameContext) -> PlayerSet:
        return NodePlayers(context)


@settings
class Edges:
    """Edges within reach of the target.

    Args:
        directed: Each direction of a pair of edges is a player. Otherwise both directions are one player.
    """

    directed: bool = False
    name: Literal["edges"] = field(default="edges", kw_only=True)

    def build(self, context: GameContext) -> PlayerSet:
        return EdgePlayers(context, self.directed)


@settings
class Features:
    """Columns of the features.

    Args:
        of: "field" masks a column in everything that reaches the target, "target" in the target alone.
        baseline: Replacement of a masked value: "zero", the "mean" of the column, or "rows" of the data, over which
            the outputs are averaged.
        groups: Columns that are one player, by name, such as {"age": [0], "job": [1, 2, 3]}. Other columns are never
            masked.
    """

    of: Annotated[str, Choice(FEATURES_OF)] = "field"
    baseline: Annotated[str, Choice(BASELINES)] = "zero"
    groups: Any = None
    name: Literal["features"] = field(default="features", kw_only=True)

    def __post_init__(self) -> None:
        if self.groups is None:
            return
        try:
            groups = tuple((str(name), tuple(map(_column, columns))) for name, columns in dict(self.groups).items())
        except (TypeError, ValueError) as error:
            raise InputError("groups.type", got=self.groups) from error
        columns = [column for _, group in groups for column in group]
        is_partition = columns and min(columns) >= 0 and len(set(columns)) == len(columns)
        if not is_partition or not all(name and group for name, group in groups):
            raise InputError("groups.columns", got=dict(groups))
        object.__setattr__(self, "groups", groups)

    @property
    def group_names(self) -> list[str] | None:
        return None if self.groups is None else [name for name, _ in self.groups]

    def build(self, context: GameContext) -> PlayerSet:
        groups = None if self.groups is None else tuple(columns for _, columns in self.groups)
        num_columns = context.features.shape[1]
        if groups and max(map(max, groups)) >= num_columns:
            raise InputError("groups.range", most=num_columns - 1)
        return FeaturePlayers(context, self.of, self.baseline, groups, self.group_names)


PlayerSpec = Nodes | Edges | Features
StoredPlayers = Annotated[PlayerSpec, Field(discriminator="name")]
BY_NAME: dict[str, type[PlayerSpec]] = {"nodes": Nodes, "edges": Edges, "features": Features}


def as_players(value: str | PlayerSpec) -> PlayerSpec:
    """Return the player set of that name with its default options, or the argument itself.

    Raises:
        InputError: If there is no player set of that name.
    """
    return value if isinstance(value, PlayerSpec) else BY_NAME[one_of("players", value, PLAYERS)]()


def players_for(value: str | PlayerSpec, types: HeteroIndex | None) -> PlayerSpec:
    """Return the player set of that name.

    Args:
        value: A name, or the player set itself.
        types: Node types of the graph, if it is heterogeneous.

    Raises:
        InputError: If there is no player set of that name, or none for such a graph.
    """
    players = as_players(value)
    if types is not None and isinstance(players, Features):
        raise InputError("players.features_of_types")
    return players


def _column(value: Any) -> int:
    """Convert to a column number. `int` would also take 0.5, True and "1"."""
    if isinstance(value, bool):
        raise TypeError("a column must be a whole number")
    return operator.index(value)

"""The kinds of players by name, and what can be chosen of each: `LARA(players="edges")`, `Edges(directed=True)`."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from dgl_lara._util.registry import one_of
from dgl_lara.constants import BASELINES, FEATURES_OF, PLAYERS
from dgl_lara.errors import InputError
from dgl_lara.game.context import GameContext
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.feature_players import FeaturePlayers
from dgl_lara.game.player_set import NodePlayers, PlayerSet


@dataclass(frozen=True)
class Nodes:
    """Nodes within reach of the target; the default."""

    name: ClassVar[str] = "nodes"

    def build(self, field: GameContext) -> PlayerSet:
        return NodePlayers(field)


@dataclass(frozen=True)
class Edges:
    """Edges within reach of the target.

    Args:
        directed: Each direction of a pair is a player of its own; otherwise both go together.
    """

    name: ClassVar[str] = "edges"
    directed: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.directed, bool):
            raise InputError(f"directed must be True or False (got {self.directed!r}).")

    def build(self, field: GameContext) -> PlayerSet:
        return EdgePlayers(field, self.directed)


def _column(value: Any) -> int:
    """int() would also take 0.5, True and "1"."""
    if isinstance(value, bool):
        raise TypeError("a truth value is no column")
    return operator.index(value)


@dataclass(frozen=True)
class Features:
    """Columns of the features.

    Args:
        of: "field": a column is removed in everything that reaches the target; "target": in the target alone.
        baseline: What takes its place: "zero", its "mean", or "rows" of the data, over which f is averaged.
        groups: Columns that play together, by name: {"age": [0], "job": [1, 2, 3]}; columns in none of them stay.
    """

    name: ClassVar[str] = "features"
    of: str = "field"
    baseline: str = "zero"
    groups: tuple[tuple[str, tuple[int, ...]], ...] | Mapping[str, Sequence[int]] | None = None

    def __post_init__(self) -> None:
        one_of("of", self.of, FEATURES_OF)
        one_of("baseline", self.baseline, BASELINES)
        if self.groups is None:
            return
        try:
            given = dict(self.groups)
            plain = tuple((str(name), tuple(map(_column, columns))) for name, columns in given.items())
        except (TypeError, ValueError) as error:
            raise InputError(
                f"groups must name lists of columns, {{'job': [1, 2, 3]}} (got {self.groups!r})."
            ) from error
        every = [column for _, columns in plain for column in columns]
        if not every or min(every) < 0 or len(set(every)) < len(every) or not all(map(all, zip(*plain, strict=True))):
            raise InputError(
                "groups must each have a name and a column or more, numbered from 0, and share none of them."
            )
        object.__setattr__(self, "groups", plain)

    @property
    def group_names(self) -> list[str] | None:
        return None if self.groups is None else [name for name, _ in self._plain]

    @property
    def _plain(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        assert isinstance(self.groups, tuple)
        return self.groups

    def build(self, field: GameContext) -> PlayerSet:
        groups = None if self.groups is None else tuple(columns for _, columns in self._plain)
        width = field.features.shape[1]
        if groups and max(max(columns) for columns in groups) >= width:
            raise InputError(f"groups must name columns 0..{width - 1} of the features.")
        return FeaturePlayers(field, self.of, self.baseline, groups, self.group_names)


PlayerSpec = Nodes | Edges | Features
KINDS: dict[str, type[PlayerSpec]] = {kind.name: kind for kind in (Nodes, Edges, Features)}
assert tuple(KINDS) == PLAYERS


def as_players(given: str | PlayerSpec) -> PlayerSpec:
    """The kind of that name as it is by default; a choice is itself."""
    if isinstance(given, PlayerSpec):
        return given
    return KINDS[one_of("players", given, PLAYERS)]()


def to_dict(choice: PlayerSpec) -> dict[str, Any]:
    """Plain values, for a file."""
    content = {"kind": choice.name, **asdict(choice)}
    if isinstance(choice, Features) and choice.groups is not None:
        content["groups"] = [[name, list(columns)] for name, columns in choice._plain]
    return content


def from_dict(content: Mapping[str, Any]) -> PlayerSpec:
    """What `to_dict` gave; InputError where it is damaged."""
    fields = {name: value for name, value in content.items() if name != "kind"}
    try:
        return KINDS[one_of("players", content.get("kind"), PLAYERS)](**fields)
    except TypeError as error:
        raise InputError(f"what is said of the players cannot be understood ({error}).") from error

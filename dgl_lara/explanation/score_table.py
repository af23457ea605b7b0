"""`Scored`: scores of the players of a batch of targets, as numbers and a table; the choice of the important ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dgl_lara.errors import InputError
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.game import Game
from dgl_lara.game.link_task import LinkTask
from dgl_lara.game.player_index import Players
from dgl_lara.game.player_specs import Features
from dgl_lara.game.task import Task

COLUMNS = {  # of every table of scores, with the types that files hold them in
    "target": "int64",
    "player": "int64",
    "hop": "int8",
    "score": "float32",
    "rank": "int32",
    "explained_class": "int32",
    "kind": "dictionary",
}
SOURCES = ("amortised", "corrected")


@dataclass(frozen=True, eq=False)
class Labels:
    """What is known of a graph beyond its numbers; all of it optional."""

    labels: Sequence[str] | None = None  # of each node (an atom's symbol, a person's name)
    columns: Sequence[str] | None = None  # of each feature
    motif: Tensor | None = None  # (num_nodes,) ground truth: which motif instance a node belongs to, -1 for none
    classes: Sequence[str] | None = None  # of each class

    def of_class(self, number: int) -> str:
        names = self.classes or ()
        return str(names[number]) if number < len(names) else str(number)


def pairs_frame(**columns: Any) -> pd.DataFrame:
    """One row a (target, player) pair, with exactly the columns of COLUMNS."""
    kind = pd.Categorical.from_codes(np.zeros(len(columns["player"]), np.int8), pd.Index([columns["kind"]]))
    return pd.DataFrame({**{name: columns[name] for name in COLUMNS}, "kind": kind})


def about_players(game: Game, names: Labels, players: Tensor) -> dict[str, Any]:
    """Of each player, beyond its number: both ends of an edge, the name of a feature."""
    if isinstance(game.player_set, EdgePlayers):
        return dict(zip(("u", "v"), (end.cpu().numpy() for end in game.player_set.endpoints(players)), strict=True))
    called = feature_names(game, names)
    return {} if called is None else {"name": np.array(called, dtype=object)[players.cpu().numpy()]}


def in_own_numbers(frame: pd.DataFrame, game: Game | None) -> pd.DataFrame:
    """The frame as users know their nodes: by type and number, where there are several types; links by their ends;
    nodes of a part by their numbers in the whole graph."""
    if game is None:
        return frame
    columns: dict[str, Any] = {str(name): values for name, values in frame.items()}
    if game.parent is not None:
        numbers = game.parent.node_ids.cpu().numpy()
        columns |= {name: numbers[frame[name].to_numpy()] for name in ("target", "player")}
    if isinstance(game.task, LinkTask):
        pairs = game.task.pairs.cpu().numpy()[frame.target.to_numpy()]
        columns |= {"target_u": pairs[:, 0], "target_v": pairs[:, 1]}
    if game.types is not None:
        ends = ["u", "v", "target_u", "target_v", *(["player"] if game.player_set.name == "nodes" else [])]
        for name in filter(columns.__contains__, ends):
            kinds, own = game.types.locate(torch.tensor(np.asarray(columns[name]), device=game.graph.device))
            columns[name] = own.cpu().numpy()
            columns["type" if name == "player" else f"{name}_type"] = pd.Categorical(kinds, game.types.node_types)
    first = ["target", "target_u_type", "target_u", "target_v_type", "target_v", "player", "type"]
    order = [name for name in first if name in columns] + [name for name in columns if name not in first]
    return pd.DataFrame({name: columns[name] for name in order}, index=frame.index)


def feature_names(game: Game, names: Labels) -> Sequence[str] | None:
    """Of each player that is a column or a group of columns; None where players are others, or have no names."""
    if not isinstance(game.player_spec, Features):
        return None
    return names.columns if game.player_spec.group_names is None else game.player_spec.group_names


@dataclass(frozen=True, eq=False, repr=False)
class ScoreTable:
    """How much each player contributed to the explained class of each target.

    Attributes:
        players: Who plays for whom: `players.targets`, and the (target, player) pairs that the scores belong to.
        scores: One a pair. A score is the player's removal-based attribution: the mean of the explained value over
            random coalitions with the player, less the mean over those without it. Scores do not add up to the value.
        explained_class: One a target.
        method: Who made them.
        variance: One a pair: the expected squared error of the score; None where nobody knows.
        corrected: One a target: whether model calls corrected its scores, or they are g's own (amortised); None where
            another method made them.
        rather_than: One a target: the class that the explained one is set against; None: none.
        novelty: One a target: how far what is around it is from what g has learned from, where it lies on another
            graph: about 1 is familiar, 2 is far; None: it was not asked.
    """

    players: Players
    scores: Tensor  # (num_pairs,)
    explained_class: Tensor  # (num_targets,)
    task: Task
    method: str
    game: Game | None = None  # what was explained; pictures and words need it
    names: Labels = Labels()
    variance: Tensor | None = None  # (num_pairs,)
    corrected: Tensor | None = None  # (num_targets,) bool
    rather_than: Tensor | None = None  # (num_targets,)
    novelty: Tensor | None = None  # (num_targets,)

    def __len__(self) -> int:
        return len(self.players.targets)

    def rank(self, include_target: bool = True) -> Tensor:
        """(num_pairs,) 0 for the highest score of each target; the target itself ranks last if not included."""
        players, scores = self.players, self.scores
        if not include_target:
            scores = scores.masked_fill(self.is_target, -torch.inf)
        order = torch.argsort(scores, descending=True, stable=True)
        order = order[torch.argsort(players.row[order], stable=True)]
        rank = torch.empty_like(order)
        start = torch.repeat_interleave(players.indptr[:-1], players.counts)
        rank[order] = torch.arange(len(order), device=order.device) - start
        return rank

    @property
    def query(self) -> ClassQuery:
        """Return the class explained for each target, and the class it is contrasted with."""
        return ClassQuery(self.explained_class, self.rather_than)

    @property
    def includes_target(self) -> bool:
        """A target is a player of its own."""
        return self.task.has_distances and self.players.player_type == "nodes"

    @property
    def is_target(self) -> Tensor:
        """(num_pairs,) bool: the player is the target itself (never for a graph task)."""
        return self.task.is_target(self.players)

    @property
    def confidence(self) -> Tensor | None:
        """(num_targets,) how much of the true attribution of the neighbours (of a graph: of all nodes) the scores are
        expected to explain: 1 - squared error / square of phi. NaN where there are none; None where nobody knows."""
        if self.variance is None:
            return None
        others, nothing = ~self.is_target, torch.zeros(len(self), device=self.scores.device)
        row = self.players.row[others]
        squares = nothing.index_add(0, row, self.scores[others].square())
        errors = nothing.index_add(0, row, self.variance[others])
        alone = torch.bincount(row, minlength=len(self)) == 0
        return (squares / (squares + errors).clamp(min=1e-30)).masked_fill(alone, torch.nan)

    @property
    def source(self) -> list[str]:
        """Of each target: "amortised" (g's own scores, no model call), "corrected" (by model calls), or the method."""
        if self.corrected is None:
            return [self.method] * len(self)
        return [SOURCES[int(known)] for known in self.corrected]

    def trust(self) -> dict[str, Any]:
        """Of each target, as columns: source and confidence, where they are known."""
        known: dict[str, Any] = {}
        if self.corrected is not None:
            codes = self.corrected.cpu().numpy().astype(np.int8)
            known["source"] = pd.Categorical.from_codes(codes, pd.Index(SOURCES))
        if (confidence := self.confidence) is not None:
            known["confidence"] = confidence.cpu().numpy()
        return known

    def in_motif(self, motif: Tensor) -> Tensor:
        """(num_pairs,) bool: the player is in the target's own motif (graph task: in any motif of the graph); an edge
        with both its ends."""
        if self.players.player_type == "nodes":
            return self.task.in_motif(self.players, motif)
        assert self.game is not None and isinstance(self.game.player_set, EdgePlayers)
        one, other = (replace(self.players, player=end) for end in self.game.player_set.endpoints(self.players.player))
        return self.task.in_motif(one, motif) & self.task.in_motif(other, motif)

    def important(self, sparsity: float, include_target: bool = True) -> Tensor:
        """Which players count as important.

        Args:
            sparsity: The share of players that do not, in [0, 1).
            include_target: Whether the target itself may be one of them.

        Returns:
            (num_pairs,) bool: the top (1 - sparsity) of each target's players, at least one.
        """
        if not 0 <= sparsity < 1:
            raise InputError(f"sparsity must be in [0, 1) (got {sparsity}).")
        left_out = int(self.includes_target and not include_target)
        kept = torch.round((1 - sparsity) * (self.players.counts - left_out)).clamp(min=1)
        return self.rank(include_target) < torch.repeat_interleave(kept, self.players.counts)

    def to_frame(self) -> pd.DataFrame:
        """One row a (target, player) pair: target, player, hop, score, rank (1 is the highest), explained_class, kind;
        of a contrast also rather_than, the class that the explained one is set against; of edges also u and v, both
        ends, of features also their names, where they have any. On graphs of several types nodes have the numbers of
        their types, which stand beside them. Of links the ends are there too."""
        return in_own_numbers(self.numbered_frame(), self.game)

    def numbered_frame(self) -> pd.DataFrame:
        """The same with nodes numbered through, whatever their types."""
        players = self.players
        frame = pairs_frame(
            target=players.targets[players.row].cpu().numpy(),
            player=players.player.cpu().numpy(),
            hop=players.hop.cpu().numpy(),
            score=self.scores.cpu().numpy(),
            rank=self.rank().cpu().numpy() + 1,
            explained_class=self.explained_class[players.row].cpu().numpy(),
            kind=players.player_type,
        )
        rival = {} if self.rather_than is None else {"rather_than": self.rather_than[players.row].cpu().numpy()}
        return frame.assign(**rival, **self.about_players())

    def about_players(self) -> dict[str, Any]:
        """Of each pair, beyond its number: both ends of an edge, the name of a feature."""
        return {} if self.game is None else about_players(self.game, self.names, self.players.player)

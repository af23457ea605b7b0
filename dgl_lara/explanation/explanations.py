"""`Explanations` are the scores of a batch of targets. `explanations[3]` is the `Explanation` of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dgl_lara._util.atomic import atomic_write
from dgl_lara.errors import InputError, message
from dgl_lara.explanation.explanation import Explanation
from dgl_lara.explanation.table import SOURCES, Labels, pairs_frame, player_columns, to_user_ids
from dgl_lara.game.values import ClassQuery

if TYPE_CHECKING:
    from dgl_lara.explanation.summary import Summary
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players
    from dgl_lara.game.task import Task

ENDINGS = (".csv", ".parquet")


@dataclass(frozen=True, eq=False, repr=False)
class Explanations:
    """Scores of the players of a batch of targets.

    A score is a player's removal-based attribution, the mean of the explained value over random coalitions with the
    player, minus the mean over those without it. Scores do not add up to the value.

    Attributes:
        players: Players of each target, as (target, player) pairs.
        scores: (num_pairs,) score of each pair.
        explained_class: (num_targets,) class that is explained.
        task: What a target is.
        method: Name of the method that made the scores.
        game: What was explained. Pictures and sentences need it.
        names: Names for pictures and sentences.
        variance: (num_pairs,) expected squared error of each score, or None if it is unknown.
        corrected: (num_targets,) whether model calls corrected the scores. None for methods other than LARA.
        rather_than: (num_targets,) class against which the explained one is set, or None.
        novelty: (num_targets,) distance of a target's surroundings from the training data. About 1 is familiar, 2 is
            far. None on the graph of the training.

    Examples:
        >>> explanations = lara.explain([512, 640])
        >>> explanations.to_frame().head()
        >>> explanations[0].in_words()
    """

    players: Players
    scores: Tensor
    explained_class: Tensor
    task: Task
    method: str
    game: Game | None = None
    names: Labels = Labels()
    variance: Tensor | None = None
    corrected: Tensor | None = None
    rather_than: Tensor | None = None
    novelty: Tensor | None = None

    def __len__(self) -> int:
        return len(self.players.targets)

    def __repr__(self) -> str:
        targets = f"{len(self)} {self.task}{'s' * (len(self) != 1)}"
        return f"Explanations of {targets} by {self.method}: {len(self.scores)} scores (see to_frame())"

    def __getitem__(self, index: int) -> Explanation:
        """Return the explanation at this position (not of the node with this number)."""
        if not isinstance(index, Integral) or isinstance(index, bool):
            raise TypeError(message("explanations.index_type", got=index))
        if not -len(self) <= index < len(self):
            raise IndexError(message("explanations.index", got=index, count=len(self)))
        row = index % len(self)
        return Explanation(self.select(slice(row, row + 1)))

    def __iter__(self) -> Iterator[Explanation]:
        return (self[row] for row in range(len(self)))

    def select(self, rows: slice | Tensor) -> Explanations:
        """Return the explanations of some targets.

        Args:
            rows: A slice of the targets, or (num_targets,) bool.
        """
        pairs: slice | Tensor
        if isinstance(rows, slice):
            indptr, players = self.players.indptr, self.players.part(rows)
            pairs = slice(int(indptr[rows.start]), int(indptr[rows.stop]))
        else:
            pairs, players = rows[self.players.row], self.players.only(rows)

        def of_targets(values: Tensor | None) -> Tensor | None:
            if values is None:
                return None
            return values[rows if isinstance(rows, slice) else rows.to(values.device)]

        return replace(
            self,
            players=players,
            scores=self.scores[pairs],
            explained_class=self.explained_class[rows],
            variance=None if self.variance is None else self.variance[pairs],
            corrected=of_targets(self.corrected),
            rather_than=of_targets(self.rather_than),
            novelty=of_targets(self.novelty),
        )

    def named(
        self,
        labels: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        columns: Sequence[str] | None = None,
        motif: Tensor | None = None,
        classes: Sequence[str] | None = None,
    ) -> Explanations:
        """Return a copy with names for pictures and sentences.

        Args:
            labels: Name of each node. On a graph of several types {type: names}, for some types or all.
            columns: Name of each feature.
            motif: (num_nodes,) true motif that a node belongs to, -1 for none.
            classes: Name of each class.

        Raises:
            InputError: If the number of names is wrong, or a type is unknown.
        """
        if isinstance(labels, Mapping):
            if self.game is None:
                raise InputError("explanations.no_game")
            labels = self.game.labels_of_types(labels)
        if self.game is not None:
            nodes, width = self.game.features.shape
            _check_count("labels", labels, "node", nodes)
            _check_count("columns", columns, "feature", width)
            _check_count("classes", classes, "class", self.game.num_classes)
        return replace(self, names=Labels(labels, columns, motif, classes))

    # --- scores

    def rank(self, include_target: bool = True) -> Tensor:
        """Return the rank of each player of a target.

        Args:
            include_target: Rank the target itself by its score. Otherwise it is last.

        Returns:
            (num_pairs,) 0 for the highest score of each target.
        """
        players, scores = self.players, self.scores
        if not include_target:
            scores = scores.masked_fill(self.is_target, -torch.inf)
        return players.rank(scores)

    @property
    def query(self) -> ClassQuery:
        """Explained class of each target, and the class against which it is set."""
        return ClassQuery(self.explained_class, self.rather_than)

    @property
    def includes_target(self) -> bool:
        """Each target is one of its own players."""
        return bool(self.is_target.any())

    @property
    def is_target(self) -> Tensor:
        """(num_pairs,) whether the player is the target itself."""
        return self.task.is_target(self.players)

    @property
    def confidence(self) -> Tensor | None:
        """(num_targets,) share of the true attribution of all players but the target that the scores should explain.

        It is 1 - squared error / square of phi, NaN without such players, and None if errors are unknown.
        """
        if self.variance is None:
            return None
        others, zeros = ~self.is_target, torch.zeros(len(self), device=self.scores.device)
        row = self.players.row[others]
        squares = zeros.index_add(0, row, self.scores[others].square())
        errors = zeros.index_add(0, row, self.variance[others])
        alone = torch.bincount(row, minlength=len(self)) == 0
        return (squares / (squares + errors).clamp(min=1e-30)).masked_fill(alone, torch.nan)

    @property
    def source(self) -> list[str]:
        """One of "amortised" (no model call) and "corrected" (by model calls) for each target, or the method."""
        if self.corrected is None:
            return [self.method] * len(self)
        return [SOURCES[int(is_corrected)] for is_corrected in self.corrected]

    def trust(self) -> dict[str, Any]:
        """Return columns with source and confidence of each target, if they are known."""
        columns: dict[str, Any] = {}
        if self.corrected is not None:
            codes = self.corrected.cpu().numpy().astype(np.int8)
            columns["source"] = pd.Categorical.from_codes(codes, pd.Index(SOURCES))
        if (confidence := self.confidence) is not None:
            columns["confidence"] = confidence.cpu().numpy()
        return columns

    def in_motif(self, motif: Tensor) -> Tensor:
        """Return which players lie in the true motif.

        Args:
            motif: (num_nodes,) motif that each node belongs to, -1 for none.

        Returns:
            (num_pairs,) whether the player is in the target's own motif (or in any, for graphs). An edge is in a motif
            if both ends are.
        """
        players = self.players
        ends = () if self.game is None else self.game.player_set.endpoints(players.player)
        found = [self.task.in_motif(replace(players, player=end), motif) for end in ends or (players.player,)]
        return torch.stack(found).all(dim=0)

    def important(self, sparsity: float, include_target: bool = True) -> Tensor:
        """Return the important players.

        Args:
            sparsity: Share of players that are not important, in [0, 1).
            include_target: Whether the target itself may be important.

        Returns:
            (num_pairs,) whether the player is in the top (1 - sparsity) of each target's players, at least one.

        Raises:
            InputError: If the sparsity is out of range.
        """
        if not 0 <= sparsity < 1:
            raise InputError("sparsity.range", got=sparsity)
        counts = self.players.counts
        if not include_target:
            counts = counts - torch.bincount(self.players.row[self.is_target], minlength=len(counts))
        counts = torch.round((1 - sparsity) * counts).clamp(min=1)
        return self.rank(include_target) < torch.repeat_interleave(counts, self.players.counts)

    # --- tables, files, summary

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row for each (target, player) pair.

        Returns:
            Columns target, player, hop, score, rank (1 is the highest), explained_class, kind. A contrast adds
            rather_than, edges add u and v, features their names, links both ends, several node types their names.
        """
        return to_user_ids(self.internal_frame(), self.game)

    def internal_frame(self) -> pd.DataFrame:
        """Return the table of `to_frame` with the node numbers of the game's graph."""
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
        return frame.assign(**rival, **player_columns(self.game, self.names, players.player))

    def summary(self, explained_class: int | None = None) -> Summary:
        """Return what matters in general, by groups of players, and typical explanations.

        Args:
            explained_class: Use only the targets that are explained as this class.

        Raises:
            InputError: If no target is explained as that class, or the game is unknown.
        """
        from dgl_lara.explanation.summary import summarise

        if self.game is None:
            raise InputError("explanations.no_game")
        if explained_class is None:
            return summarise(self, self.game)
        mask = self.explained_class == explained_class
        if not mask.any():
            classes = ", ".join(map(str, self.explained_class.unique().tolist()))
            raise InputError("summary.no_such_class", got=explained_class, classes=classes)
        return summarise(self.select(mask), self.game)

    def save(self, path: Path | str) -> None:
        """Write the table of `to_frame` to a file.

        Args:
            path: A file that ends in .csv or .parquet.

        Raises:
            InputError: If it ends otherwise.
        """
        path = Path(path)
        if path.suffix not in ENDINGS:
            raise InputError("explanation.file_ending", endings=", ".join(ENDINGS), got=path.name)
        with atomic_write(path) as temporary:
            frame = self.to_frame()
            frame.to_csv(temporary, index=False) if path.suffix == ".csv" else frame.to_parquet(temporary, index=False)


def _check_count(name: str, values: Sequence[str] | None, each: str, count: int) -> None:
    if values is not None and len(values) != count:
        raise InputError("names.count", name=name, each=each, count=count, got=len(values))

"""`Explanations`: those of a batch of targets; `explanations[3]` is one of them, an `Explanation`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path

from torch import Tensor

from dgl_lara._util.atomic import atomic_write
from dgl_lara.errors import InputError
from dgl_lara.explanation.score_table import Labels, ScoreTable
from dgl_lara.explanation.single import Explanation
from dgl_lara.explanation.summary import Summary, summarise


@dataclass(frozen=True, eq=False, repr=False)
class Explanations(ScoreTable):
    """How much each player contributed to the explained class of each target; what it holds: `Scored`.

    Examples:
        >>> explanations = lara.explain([512, 640])
        >>> explanations.to_frame().head()
        >>> explanations[0].in_words()
    """

    def __repr__(self) -> str:
        whom = f"{len(self)} {self.task}{'s' * (len(self) != 1)}"
        return f"Explanations of {whom} by {self.method}: {len(self.scores)} scores (see to_frame())"

    def __getitem__(self, place: int) -> Explanation:
        """The explanation of the target at this place (not: of the node with this number)."""
        if not isinstance(place, Integral) or isinstance(place, bool):
            raise TypeError(f"explanations are numbered from 0, one at a time (asked for place {place!r}).")
        if not -len(self) <= place < len(self):
            raise IndexError(f"there are {len(self)} explanations (asked for place {place}).")
        rows = slice(place % len(self), place % len(self) + 1)
        indptr = self.players.indptr
        one = replace(
            self,
            players=self.players.part(rows),
            scores=self.scores[indptr[rows.start] : indptr[rows.stop]],
            explained_class=self.explained_class[rows],
            variance=None if self.variance is None else self.variance[indptr[rows.start] : indptr[rows.stop]],
            corrected=None if self.corrected is None else self.corrected[rows],
            rather_than=None if self.rather_than is None else self.rather_than[rows],
            novelty=None if self.novelty is None else self.novelty[rows],
        )
        return Explanation(one)

    def __iter__(self) -> Iterator[Explanation]:
        return (self[place] for place in range(len(self)))

    def named(
        self,
        labels: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        columns: Sequence[str] | None = None,
        motif: Tensor | None = None,
        classes: Sequence[str] | None = None,
    ) -> Explanations:
        """The same, with names for pictures and words.

        Args:
            labels: Of each node of the graph; on a graph of several types {type: names}, of some types or all.
            columns: Of each feature.
            motif: (num_nodes,) which true motif a node belongs to, -1 for none.
            classes: Of each class.
        """
        if isinstance(labels, Mapping):
            labels = self._by_type(labels)
        if self.game is not None:
            nodes, width = self.game.features.shape
            each = [("labels", labels, "node", nodes), ("columns", columns, "feature", width)]
            each.append(("classes", classes, "class", self.game.num_classes))
            for what, given, of, count in each:
                if given is not None and len(given) != count:
                    raise InputError(f"{what} must name each {of}, {count} of them (got {len(given)}).")
        return replace(self, names=Labels(labels, columns, motif, classes))

    def _by_type(self, labels: Mapping[str, Sequence[str]]) -> list[str]:
        types = None if self.game is None else self.game.types
        if types is None:
            raise InputError("labels by type are for a graph of several types; this one has a single list of nodes.")
        for kind, names in labels.items():
            if kind not in types.node_types:
                raise InputError(
                    f"labels name the type '{kind}', which the graph has not ({', '.join(types.node_types)})."
                )
            if len(names) != types.num_nodes(kind):
                raise InputError(f"labels must name each {kind}, {types.num_nodes(kind)} of them (got {len(names)}).")
        return types.node_names(labels)

    def only(self, mask: Tensor) -> Explanations:
        """Those of some targets: (num_targets,) bool."""
        pairs = mask[self.players.row]
        return replace(
            self,
            players=self.players.only(mask),
            scores=self.scores[pairs],
            explained_class=self.explained_class[mask],
            variance=None if self.variance is None else self.variance[pairs],
            corrected=None if self.corrected is None else self.corrected[mask.cpu()],
            rather_than=None if self.rather_than is None else self.rather_than[mask],
            novelty=None if self.novelty is None else self.novelty[mask],
        )

    def summary(self, explained_class: int | None = None) -> Summary:
        """What matters in general: which features, how much from which hop and from whom, and typical explanations.

        Args:
            explained_class: Only of the targets that are explained as this class.
        """
        if self.game is None:
            raise InputError("these explanations do not know their game; make them with LARA.explain, or name game=.")
        if explained_class is None:
            return summarise(self, self.game)
        mask = self.explained_class == explained_class
        if not mask.any():
            held = ", ".join(map(str, self.explained_class.unique().tolist()))
            raise InputError(f"no target is explained as class {explained_class} (there are {held}).")
        return summarise(self.only(mask), self.game)

    def save(self, path: Path | str) -> None:
        """As .csv or .parquet; other kinds of file are made of single explanations, and by `dgl-lara explain`."""
        path = Path(path)
        if path.suffix not in (".csv", ".parquet"):
            raise InputError(f"the file must end in .csv or .parquet (got '{path.name}').")
        with atomic_write(path) as temporary:
            frame = self.to_frame()
            frame.to_csv(temporary, index=False) if path.suffix == ".csv" else frame.to_parquet(temporary, index=False)

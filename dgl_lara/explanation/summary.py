"""`Summary` is what matters in general over all targets of `Explanations`, and which of them are typical.

Players form groups by hop, by the class that the model predicts for them (or for both ends of an edge), by label in
graphs (atoms), by node type or relation. Features are one group each. The scores of a group are summed for each target
and averaged over all targets, also those without a player in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dgl_lara._util.atomic import atomic_write
from dgl_lara.constants import SUMMARIES
from dgl_lara.errors import InputError
from dgl_lara.game.player_set import Grouping
from dgl_lara.graphs.indexing import lookup_sorted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dgl_lara.explanation.explanations import Explanations
    from dgl_lara.game.game import Game

COLUMNS = ("kind", "by", "item", "for", "against", "share", "players")
NUM_TYPICAL = 3  # explanations
MAX_COMPARED = 400  # explanations among which typical ones are chosen
MAX_SWARMS = 12  # features with a row of points
MAX_POINTS = 400  # of a row
MAX_LABEL_TYPES = 30  # different labels up to which they are types of nodes, not names
NUM_EXTREMES = 5  # highest and lowest scores by which explanations are compared


@dataclass(frozen=True, eq=False)
class Swarm:
    """The scores of one feature, one point for each target."""

    name: str
    score: np.ndarray  # (points,)
    value: np.ndarray | None  # (points,) what the targets have in that column. None for a group of columns


@dataclass(frozen=True, eq=False)
class Summary:
    """What matters in general.

    Attributes:
        player_set: Name of the player set.
        noun: Noun for one player besides the target. Only the table by hop counts targets.
        task: Name of the task.
        targets: Number of targets.
        value: Name of the explained value.
        explained_class: Name of the class if all targets share it.
        groups: One table for each way to group players. Columns are by, item, for and against (mean sums of positive
            and negative scores), share (of all sums in the table) and players (mean number per target).
        swarm: Scores of the strongest features, if features are players.
        typical: Few explanations that represent the others, with columns row, target, share.
    """

    player_set: str
    noun: str
    task: str
    targets: int
    value: str
    explained_class: str | None
    groups: list[pd.DataFrame]
    swarm: list[Swarm]
    typical: pd.DataFrame

    def __repr__(self) -> str:
        return f"Summary of {self.targets} {self.task}s by {self.player_set} (see to_frame(), plot())"

    @property
    def title(self) -> str:
        """One line with targets, class and value."""
        classes = f", class {self.explained_class}" if self.explained_class else ", each for its predicted class"
        if self.value == "output":
            classes = ""
        return f"{self.targets:,} {self.task}{'s' * (self.targets != 1)}{classes} ({self.value})"

    def heading(self, table: pd.DataFrame) -> str:
        """Return the heading of one of the groups: "nodes by hop", "neighbours by predicted class"."""
        by = table["by"].iloc[0]
        if by == "feature":
            return self.player_set
        return f"{self.player_set if by == 'hop' else f'{self.noun}s'} by {by}"

    def to_frame(self) -> pd.DataFrame:
        """Return everything in one table. Typical explanations are last."""
        typical = self.typical.rename(columns={"target": "item"}).assign(by="typical").drop(columns="row")
        tables = [*self.groups, typical.astype({"item": str})]
        return pd.concat(tables, ignore_index=True).assign(kind=self.player_set)[list(COLUMNS)]

    def plot(self) -> Figure:
        """Draw bars for every group. Features also get one point for every target (a beeswarm)."""
        from dgl_lara.explanation.plot.summary import draw_summaries

        return draw_summaries([self])

    def _repr_html_(self) -> str:
        from dgl_lara.explanation.plot.figure import inline

        table = self.to_frame().to_html(index=False, border=0, float_format="{:.3g}".format)
        return inline(self.plot(), self.title) + table

    def save(self, path: Path | str) -> None:
        """Write the summary to a file.

        Args:
            path: A table (.csv) or a picture (.png, .svg, .pdf).

        Raises:
            InputError: If the file ends otherwise.
        """
        save_summaries([self], Path(path))


def save_summaries(summaries: Sequence[Summary], path: Path) -> None:
    """Write summaries of several player sets to one file, as in `Summary.save`."""
    if path.suffix not in SUMMARIES:
        raise InputError("explanation.file_ending", endings=", ".join(SUMMARIES), got=path.name)
    with atomic_write(path) as temporary:
        if path.suffix == ".csv":
            pd.concat([summary.to_frame() for summary in summaries]).to_csv(temporary, index=False)
        else:
            from dgl_lara.explanation.plot.figure import write
            from dgl_lara.explanation.plot.summary import draw_summaries

            write(draw_summaries(summaries), temporary, path.suffix)


def summarise(explanations: Explanations, game: Game) -> Summary:
    """Return the summary of some explanations, or raise InputError if there are none."""
    if not len(explanations):
        raise InputError("summary.empty")
    own_names = game.player_set.display_names(explanations.names.columns)
    own = game.player_set.own_groups(explanations.players, own_names)
    groupings = _groupings(explanations, game) if own is None else [own]
    tables = [_table(explanations, grouping) for grouping in groupings]
    classes = explanations.explained_class.unique()
    return Summary(
        player_set=explanations.players.player_type,
        noun=game.player_set.noun_in(molecule=False),
        task=explanations.task.name,
        targets=len(explanations),
        value=game.value,
        explained_class=explanations.names.of_class(int(classes)) if len(classes) == 1 else None,
        groups=tables,
        swarm=[] if own is None else _swarm(explanations, game, tables[0], own.names),
        typical=_typical(explanations, groupings),
    )


# --- groups


def _groupings(explanations: Explanations, game: Game) -> list[Grouping]:
    """Return the ways to group players, without those that do not apply."""
    players, player_set, classes = explanations.players, game.player_set, game.node_classes
    hop_names, by_type = explanations.task.hop_names(game.hops), game.groups_by_type(players)
    found = [Grouping("hop", players.hop, hop_names) if hop_names else None]
    if by_type is not None:
        found.append(by_type)
    elif classes is not None:
        if len(explanations.explained_class.unique()) > 1:
            found.append(player_set.groups_by_agreement(players, classes, explanations.explained_class))
        names = [explanations.names.of_class(number) for number in range(int(classes.max()) + 1)]
        found.append(player_set.groups_by_node(players, "predicted class", classes, names))
    elif not hop_names:
        found.append(_by_label(explanations, game))
    if not any(found):
        found.append(Grouping(player_set.noun, torch.zeros_like(players.player), [f"all {player_set.noun}s"]))
    return [grouping for grouping in found if grouping is not None]


def _by_label(explanations: Explanations, game: Game) -> Grouping | None:
    """Return players of graphs grouped by the labels of nodes, if there are few different ones."""
    own = explanations.names.labels or ()
    labels = sorted(set(own))
    if not labels or len(labels) > MAX_LABEL_TYPES:
        return None
    code_of = {label: code for code, label in enumerate(labels)}
    codes = torch.tensor([code_of[label] for label in own], device=explanations.scores.device)
    return game.player_set.groups_by_node(explanations.players, "label", codes, labels)


def _table(explanations: Explanations, grouping: Grouping) -> pd.DataFrame:
    is_grouped, num_targets = grouping.codes >= 0, len(explanations)
    scores, codes = explanations.scores.double()[is_grouped], grouping.codes[is_grouped]
    zeros = scores.new_zeros(len(grouping.names))
    sums = {
        "for": zeros.index_add(0, codes, scores.clamp(min=0)) / num_targets,
        "against": zeros.index_add(0, codes, -scores.clamp(max=0)) / num_targets,
    }
    total = sums["for"] + sums["against"]
    table = pd.DataFrame({name: values.cpu().numpy() for name, values in sums.items()})
    table["share"] = (total / total.sum().clamp(min=1e-30)).cpu().numpy()
    table["players"] = (torch.bincount(codes, minlength=len(grouping.names)) / num_targets).cpu().numpy()
    table.insert(0, "item", grouping.names)
    table.insert(0, "by", grouping.by)
    table = table[table.players > 0]
    return table if grouping.by == "hop" else table.sort_values("share", ascending=False, kind="stable")


# --- points of features


def _swarm(explanations: Explanations, game: Game, table: pd.DataFrame, names: list[str]) -> list[Swarm]:
    players, swarms = explanations.players, []
    rows = _evenly(len(explanations), MAX_POINTS).to(explanations.scores.device)
    own = explanations.task.reach(game.graph, players.targets[rows], 0)  # a node itself, all nodes of a graph
    for player in table.index[:MAX_SWARMS].tolist():  # the index is the code of the group
        pair, is_player = lookup_sorted(rows * players.num_ids + player, players.key)
        column, value = game.player_set.column_of(player), None
        if column is not None:
            x = game.features[own.player, column].float()
            value = (x.new_zeros(len(rows)).index_add(0, own.row, x) / own.counts)[is_player].cpu().numpy()
        swarms.append(Swarm(names[player], explanations.scores[pair[is_player]].cpu().numpy(), value))
    return swarms


def _evenly(count: int, max_count: int) -> Tensor:
    return torch.linspace(0, count - 1, min(count, max_count)).round().long()


# --- typical explanations


def _typical(explanations: Explanations, groupings: list[Grouping]) -> pd.DataFrame:
    """Return the medoids, few explanations that are near to all others by their profiles."""
    rows = _evenly(len(explanations), MAX_COMPARED).to(explanations.scores.device)
    profile = _profiles(explanations, rows, groupings)
    medoid, share = medoids(np.clip(1 - profile @ profile.T, 0, None), NUM_TYPICAL)
    index = rows.cpu().numpy()[medoid]
    indptr, scores = explanations.players.indptr.tolist(), explanations.scores.cpu().numpy()
    own = [scores[indptr[row] : indptr[row + 1]] for row in index]
    return pd.DataFrame(
        {
            "row": index,
            "target": explanations.players.targets.cpu().numpy()[index],
            "for": [float(one.clip(min=0).sum()) for one in own],
            "against": [float(-one.clip(max=0).sum()) for one in own],
            "share": share,
            "players": [float(len(one)) for one in own],
        }
    )


def _profiles(explanations: Explanations, rows: Tensor, groupings: list[Grouping]) -> np.ndarray:
    """(rows, ...) sums of the groups, highest and lowest scores of each explanation, with norm 1."""
    players, scores, blocks = explanations.players, explanations.scores, []
    row_of = torch.full((len(explanations),), -1, device=rows.device)
    row_of[rows] = torch.arange(len(rows), device=rows.device)
    row = row_of[players.row]
    for _, codes, names in groupings:
        is_used = (row >= 0) & (codes >= 0)
        sums = torch.zeros(len(rows) * len(names), device=rows.device)
        sums.index_add_(0, row[is_used] * len(names) + codes[is_used], scores[is_used])
        blocks.append(sums.view(len(rows), -1))
    if groupings[0].by != "feature":  # features are already one group each
        rank, counts = explanations.rank(), torch.repeat_interleave(players.counts, players.counts)
        for order in (rank, counts - 1 - rank):
            is_used = (row >= 0) & (order < NUM_EXTREMES)
            extremes = torch.zeros(len(rows), NUM_EXTREMES, device=rows.device)
            extremes[row[is_used], order[is_used]] = scores[is_used]
            blocks.append(extremes)
    profile = torch.cat(blocks, dim=1).cpu().numpy()
    return profile / np.maximum(np.linalg.norm(profile, axis=1, keepdims=True), 1e-12)


def medoids(distance: np.ndarray, max_count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of medoids and the share that each represents, from (n, n) distances."""
    chosen: list[int] = []
    nearest = np.full(len(distance), np.inf)
    while len(chosen) < min(max_count, len(distance)):
        best = int(np.minimum(nearest[:, None], distance).sum(0).argmin())
        if best in chosen:
            break  # all others equal a medoid
        chosen.append(best)
        nearest = np.minimum(nearest, distance[:, best])
    for _ in range(10):
        owner = distance[:, chosen].argmin(1)
        groups = [np.flatnonzero(owner == number) for number in range(len(chosen))]
        moved = [int(group[distance[np.ix_(group, group)].sum(0).argmin()]) for group in groups if len(group)]
        if moved == chosen:
            break
        chosen = moved
    share = np.bincount(distance[:, chosen].argmin(1), minlength=len(chosen)) / len(distance)
    order = np.argsort(-share, kind="stable")
    return np.array(chosen)[order], share[order]

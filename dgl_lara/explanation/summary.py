"""`Summary`: what matters in general, over all targets of `Explanations`: where it comes from, and who is typical.

Players are sorted into groups: by hop, by the class that f predicts for them (of edges: for their two ends), in graphs
by what their nodes are called (atoms); on graphs of several types nodes by their type and edges by their relation;
features are a group each. (The relation of a node's last step to the target is no way of sorting: beyond one hop there
are several.) Of a group: what its players say for the explained
class and against it, summed for each target, then averaged over all of them, those without such a player included.
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
from dgl_lara.blackbox.hetero_index import HeteroIndex
from dgl_lara.blackbox.input_adapter import EDGE_ID
from dgl_lara.constants import SUMMARIES
from dgl_lara.errors import InputError
from dgl_lara.explanation.score_table import ScoreTable, feature_names
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.feature_players import FeaturePlayers
from dgl_lara.game.game import Game
from dgl_lara.game.inputs import types_of
from dgl_lara.graphs.indexing import lookup_sorted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("kind", "by", "item", "for", "against", "share", "players")
TYPICAL = 3  # explanations that stand for all
COMPARED = 400  # explanations among which they are looked for, evenly taken
SWARM = 12  # features with a row of points
POINTS = 400  # of a row
TYPES = 30  # labels up to which they name types of nodes, not single ones
ENDS = 5  # highest and lowest scores by which explanations are compared


@dataclass(frozen=True, eq=False)
class Swarm:
    """The scores of one feature: a point a target."""

    name: str
    score: np.ndarray  # (points,)
    value: np.ndarray | None  # (points,) what the targets have in that column; None: a group of columns


@dataclass(frozen=True, eq=False)
class Summary:
    """What matters in general.

    Attributes:
        groups: A table for each way of sorting players, the first way first: by, item, for, against (means over the
            targets of what the group's players say for the explained class and against it), share (of all that is
            said in this table; by hop the target itself is counted, elsewhere its neighbours alone), players (of a
            target, on average). Features: the strongest first.
        swarm: Where features play: the scores of the strongest of them.
        typical: The few explanations that stand for the others: place (among the explanations), target, share.
    """

    kind: str  # nodes, edges, features
    noun: str  # of a player
    task: str
    targets: int
    value: str
    explained_class: str | None  # its name, where it is the same for all
    groups: list[pd.DataFrame]
    swarm: list[Swarm]
    typical: pd.DataFrame

    def __repr__(self) -> str:
        return f"Summary of {self.targets} {self.task}s by {self.kind} (see to_frame(), plot())"

    @property
    def title(self) -> str:
        about = (
            ", each by the class that the model gives it"
            if self.explained_class is None
            else f", class {self.explained_class}"
        )
        about = "" if self.value == "output" else about  # a number, no class
        return f"{self.targets:,} {self.task}{'s' * (self.targets != 1)}{about} ({self.value})"

    def heading(self, table: pd.DataFrame) -> str:
        """'nodes by hop', 'neighbours by predicted class': whose whole the shares of one of its groups are parts of."""
        by, local = table["by"].iloc[0], self.groups[0]["by"].iloc[0] == "hop"
        if self.kind == "features":
            return "features"
        return f"{'neighbours' if local and self.kind == 'nodes' and by != 'hop' else self.kind} by {by}"

    def to_frame(self) -> pd.DataFrame:
        """Everything in one table; the typical explanations come last, by target."""
        typical = self.typical.rename(columns={"target": "item"}).assign(by="typical").drop(columns="place")
        parts = [*self.groups, typical.astype({"item": str})]
        return pd.concat(parts, ignore_index=True).assign(kind=self.kind)[list(COLUMNS)]

    def plot(self) -> Figure:
        """Bars of every group; where features play also a point for every target (a beeswarm)."""
        from dgl_lara.explanation.plot.summary import draw_summaries

        return draw_summaries([self])

    def _repr_html_(self) -> str:
        from dgl_lara.explanation.plot.figure import inline

        table = self.to_frame().to_html(index=False, border=0, float_format="{:.3g}".format)
        return inline(self.plot(), self.title) + table

    def save(self, path: Path | str) -> None:
        """Its ending says what it becomes: a table (.csv) or a picture (.png, .svg, .pdf)."""
        save_summaries([self], Path(path))


def save_summaries(summaries: Sequence[Summary], path: Path) -> None:
    """Several kinds of players in one file."""
    if path.suffix not in SUMMARIES:
        raise InputError(f"the file must end in {', '.join(SUMMARIES)} (got '{path.name}').")
    with atomic_write(path) as temporary:
        if path.suffix == ".csv":
            pd.concat([summary.to_frame() for summary in summaries]).to_csv(temporary, index=False)
        else:
            from dgl_lara.explanation.plot.figure import write
            from dgl_lara.explanation.plot.summary import draw_summaries

            write(draw_summaries(summaries), temporary, path.suffix)


def summarise(of: ScoreTable, game: Game) -> Summary:
    if not len(of):
        raise InputError("there is no explanation to sum up.")
    ways = _ways(of, game)
    first = ways[0] if of.players.player_type == "features" else None
    groups = [_table(of, *way) for way in ways]
    same = of.explained_class.unique()
    return Summary(
        kind=of.players.player_type,
        noun="node" if of.players.player_type == "nodes" else game.player_set.noun,
        task=of.task.name,
        targets=len(of),
        value=game.value,
        explained_class=of.names.of_class(int(same)) if len(same) == 1 else None,
        groups=groups,
        swarm=[] if first is None else _swarm(of, game, groups[0], first[2]),
        typical=_typical(of, ways),
    )


# --- groups: (by, code of each pair or -1, name of each code)

Way = tuple[str, Tensor, list[str]]


def _ways(of: ScoreTable, game: Game) -> list[Way]:
    kind, players = game.player_set, of.players
    if isinstance(kind, FeaturePlayers):
        called = feature_names(game, of.names)
        return [("feature", players.player, list(map(str, called or [f"x{number}" for number in range(kind.count)])))]
    ways: list[Way] = []
    if of.task.has_distances:
        itself = "itself" if of.task.num_endpoints == 1 else "both ends"
        names = [itself, "1 hop", *(f"{hop} hops" for hop in range(2, game.hops + 1))]
        ways.append(("hop", players.hop, names))
    elif not _types(of):
        ways.append((kind.noun, torch.zeros_like(players.player), [f"all {kind.noun}s"]))
    if types := types_of(game.f):
        return [*ways, _by_relation(of, game, types) if isinstance(kind, EdgePlayers) else _by_type(of, types)]
    code, names = _class_of_nodes(of, game)
    if not names:
        return ways
    if isinstance(kind, EdgePlayers):
        one, other = (code[end] for end in kind.endpoints(players.player))
        if not kind.directed:
            one, other = torch.minimum(one, other), torch.maximum(one, other)
        between = "→" if kind.directed else "–"
        pairs = [f"{first}{between}{second}" for first in names for second in names]
        return [*ways, (f"{_noun(of)} of both ends", one * len(names) + other, pairs)]
    mine = torch.where(of.is_target, -1, code[players.player])
    if of.task.has_distances and len(of.explained_class.unique()) > 1:
        agrees = (mine == of.explained_class[players.row]).long()
        ways.append(
            ("class, the same or not", torch.where(mine < 0, -1, agrees), ["another class", "the explained class"])
        )
    return [*ways, (_noun(of), mine, names)]


def _by_type(of: ScoreTable, types: HeteroIndex) -> Way:
    kind = types.type_of(of.players.player)
    return "type", torch.where(of.is_target, -1, kind), list(types.node_types)


def _by_relation(of: ScoreTable, game: Game, types: HeteroIndex) -> Way:
    """An edge may stand for several relations: both directions of a pair of nodes are one player."""
    kind, graph = game.player_set, game.graph
    assert isinstance(kind, EdgePlayers)
    player = kind.player_of_edges(*graph.edges())
    plays = player >= 0
    belongs = torch.zeros(kind.count, len(types.relations), dtype=torch.bool, device=player.device)
    belongs[player[plays], types.relation_of(graph.edata[EDGE_ID])[plays]] = True
    asked, place = torch.unique(of.players.player, return_inverse=True)
    sets, code = torch.unique(belongs[asked], dim=0, return_inverse=True)
    short = types.relation_names
    names = [" + ".join(short[one] for one in row.nonzero().flatten().tolist()) for row in sets]
    return "relation", code[place], names


def _noun(of: ScoreTable) -> str:
    return "predicted class" if of.task.has_distances else "label"


def _class_of_nodes(of: ScoreTable, game: Game) -> tuple[Tensor, list[str]]:
    """(num_nodes,) the class that f predicts for each, or in graphs its label; and what these are called."""
    if of.task.has_distances:
        if game.value == "output" or of.task.num_endpoints > 1:  # no class is said of single nodes
            return torch.zeros(0), []
        count = int(game.explained_class.max()) + 1
        return game.explained_class, [of.names.of_class(number) for number in range(count)]
    types = _types(of)
    place = {name: number for number, name in enumerate(types)}
    code = [place[label] for label in of.names.labels or ()] if types else []
    return torch.tensor(code, dtype=torch.long, device=of.scores.device), types


def _types(of: ScoreTable) -> list[str]:
    found = sorted(set(of.names.labels or ()))
    return found if len(found) <= TYPES else []


def _table(of: ScoreTable, by: str, code: Tensor, names: list[str]) -> pd.DataFrame:
    scores, plays = of.scores.double(), code >= 0
    scores, code = scores[plays], code[plays]
    nothing = torch.zeros(len(names), dtype=scores.dtype, device=scores.device)
    speaks = {
        "for": nothing.index_add(0, code, scores.clamp(min=0)) / len(of),
        "against": nothing.index_add(0, code, -scores.clamp(max=0)) / len(of),
    }
    total = speaks["for"] + speaks["against"]
    table = pd.DataFrame({name: values.cpu().numpy() for name, values in speaks.items()})
    table["share"] = (total / total.sum().clamp(min=1e-30)).cpu().numpy()
    table["players"] = (torch.bincount(code, minlength=len(names)) / len(of)).cpu().numpy()
    table.insert(0, "item", names)
    table.insert(0, "by", by)
    table = table[table.players > 0]
    return table if by == "hop" else table.sort_values("share", ascending=False, kind="stable")


# --- features: a point a target


def _swarm(of: ScoreTable, game: Game, table: pd.DataFrame, names: list[str]) -> list[Swarm]:
    kind = game.player_set
    assert isinstance(kind, FeaturePlayers)
    rows, found = _evenly(len(of), POINTS).to(of.scores.device), []
    own = of.task.reach(game.graph, of.players.targets[rows], 0)  # a node itself, all nodes of a graph
    for player in table.index[:SWARM].tolist():  # the index is the code of the group
        place, plays = lookup_sorted(rows * of.players.num_ids + player, of.players.key)
        _, columns = kind.columns_of(torch.tensor([player], device=rows.device))
        value = None
        if len(columns) == 1:
            x = game.features[own.player, columns].float()
            value = (x.new_zeros(len(rows)).index_add(0, own.row, x) / own.counts)[plays].cpu().numpy()
        found.append(Swarm(names[player], of.scores[place[plays]].cpu().numpy(), value))
    return found


def _evenly(count: int, most: int) -> Tensor:
    return torch.linspace(0, count - 1, min(count, most)).round().long()


# --- typical explanations


def _typical(of: ScoreTable, ways: list[Way]) -> pd.DataFrame:
    """Medoids: few explanations that are as near as can be to all others, by what they say (`_profiles`)."""
    rows = _evenly(len(of), COMPARED).to(of.scores.device)
    profile = _profiles(of, rows, ways)
    medoid, share = medoids(np.clip(1 - profile @ profile.T, 0, None), TYPICAL)
    place = rows.cpu().numpy()[medoid]
    indptr, scores = of.players.indptr.tolist(), of.scores.cpu().numpy()
    said = [scores[indptr[row] : indptr[row + 1]] for row in place]
    return pd.DataFrame(
        {
            "place": place,
            "target": of.players.targets.cpu().numpy()[place],
            "for": [float(mine.clip(min=0).sum()) for mine in said],
            "against": [float(-mine.clip(max=0).sum()) for mine in said],
            "share": share,
            "players": [float(len(mine)) for mine in said],
        }
    )


def _profiles(of: ScoreTable, rows: Tensor, ways: list[Way]) -> np.ndarray:
    """(rows, ...) of length 1: what the groups say, and the highest and lowest scores of all."""
    players, parts = of.players, []
    place = torch.full((len(of),), -1, device=rows.device)
    place[rows] = torch.arange(len(rows), device=rows.device)
    mine = place[players.row]
    for _, code, names in ways:
        plays = (mine >= 0) & (code >= 0)
        sums = torch.zeros(len(rows) * len(names), device=rows.device)
        parts.append(sums.index_add(0, mine[plays] * len(names) + code[plays], of.scores[plays]).view(len(rows), -1))
    if players.player_type != "features":
        rank, counts = of.rank(), torch.repeat_interleave(players.counts, players.counts)
        for order in (rank, counts - 1 - rank):
            plays = (mine >= 0) & (order < ENDS)
            ends = torch.zeros(len(rows), ENDS, device=rows.device)
            ends[mine[plays], order[plays]] = of.scores[plays]
            parts.append(ends)
    profile = torch.cat(parts, dim=1).cpu().numpy()
    return profile / np.maximum(np.linalg.norm(profile, axis=1, keepdims=True), 1e-12)


def medoids(distance: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """(their places, the share that each stands for): one after the other where it helps most, then each moved to the
    middle of those that it stands for."""
    chosen: list[int] = []
    nearest = np.full(len(distance), np.inf)
    while len(chosen) < min(most, len(distance)):
        best = int(np.minimum(nearest[:, None], distance).sum(0).argmin())
        if best in chosen:
            break  # nobody differs from those who stand for them
        chosen.append(best)
        nearest = np.minimum(nearest, distance[:, best])
    for _ in range(10):
        of = distance[:, chosen].argmin(1)
        groups = [np.flatnonzero(of == place) for place in range(len(chosen))]
        moved = [int(mine[distance[np.ix_(mine, mine)].sum(0).argmin()]) for mine in groups if len(mine)]
        if moved == chosen:
            break
        chosen = moved
    share = np.bincount(distance[:, chosen].argmin(1), minlength=len(chosen)) / len(distance)
    order = np.argsort(-share, kind="stable")
    return np.array(chosen)[order], share[order]

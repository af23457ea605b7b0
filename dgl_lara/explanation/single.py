"""`Explanation`: why one target is what f says; here as a picture, a page, a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.atomic import atomic_write
from dgl_lara.constants import PICTURES, TABLES
from dgl_lara.errors import InputError
from dgl_lara.explanation.plot.scene import Bars, Scene, compose, compose_bars
from dgl_lara.explanation.sentence import NOT_ADDITIVE
from dgl_lara.explanation.text import InWords
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.feature_players import FeaturePlayers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dgl_lara.explanation.plot.html import View

STEPS = 40  # of the slider in an interactive page
BARS = 25  # of a picture
SHOWN = 10  # rows of a table in a notebook
FILES = (*TABLES, *PICTURES)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(InWords):
    """Why one node, or one graph, is what f says: a view of `Explanations` with a single target.

    Examples:
        >>> explanation = lara.explain([512])[0]
        >>> print(explanation.in_words())
        >>> explanation.top(5)
        >>> explanation.save("node512.html")
    """

    def __repr__(self) -> str:
        return f"Explanation({self.task} {self.target}, class {self.explained_class}, {len(self)} players)"

    def scene(self, most: int) -> Scene:
        """At most so many nodes with their places, for whoever draws them; not where features play."""
        names, near, edges_play = self.batch.names, self.subgraph(), self.batch.players.player_type == "edges"
        src, dst = near.edges()
        nodes, classes = self.nodes, self._classes_of(self.nodes)
        return compose(
            names=self.node_names(nodes),
            labels=self._marks(nodes),
            score=(self.scores if edges_play else self.scores[self._player_of_nodes]).cpu().numpy(),
            hop=self._near.hop.cpu().numpy() if self.task.has_distances else None,
            truth=None if names.motif is None else self.task.in_motif(self._near, names.motif).cpu().numpy(),
            edges=torch.stack([src, dst], dim=1).cpu().numpy(),
            most=most,
            told=self._told_nodes,
            other_class=None if classes is None else np.array(classes) != self.explained_class,
            edge_player=self._player_of_edges(near).cpu().numpy() if edges_play else None,
            kinds=None if self.game.types is None else self.game.types.locate(nodes)[0],
            other_than=names.of_class(self.explained_class),
        )

    def _marks(self, nodes: Tensor) -> list[str] | None:
        """What is written on nodes: their own names; of a type that has none, its numbers."""
        labels, types = self.batch.names.labels, self.game.types
        own = None if labels is None else [labels[node] for node in nodes.tolist()]
        if types is None:
            return own
        numbers = map(str, types.local_ids(nodes).tolist())
        return (
            list(numbers) if own is None else [mark or str(number) for mark, number in zip(own, numbers, strict=True)]
        )

    def bars(self, most: int) -> Bars:
        """At most so many players one below the other, for whoever draws them."""
        about = [self._value_of(place) for place in range(len(self))]
        return compose_bars(self.player_names(), about, self.scores.cpu().numpy(), most)

    def plot(self, most: int = 40, words: bool = True) -> Figure:
        """A picture.

        Args:
            most: How many are drawn, the strongest for or against: nodes; where features play, at most 25 of them.
            words: With the sentence on top of it.

        Returns:
            A matplotlib figure: nodes around the target, coloured by score; where edges play, edges by colour and
            width; where features play, a bar for each.
        """
        from dgl_lara.explanation.plot.bars import draw_bars
        from dgl_lara.explanation.plot.figure import draw

        title = f"{self.in_words()} {self.how_sure()}".rstrip() if words else ""
        if self.batch.players.player_type == "features":
            return draw_bars(self.bars(min(most, BARS)), title, self.class_name, self.value_name)
        removed = _as_sentence(self.removed_in_words) if words else ""
        return draw(self.scene(most), title, self.class_name, self.value_name, removed)

    def to_html(self, most: int = 120, beside: Sequence[Explanation] = ()) -> str:
        """A page of its own to explore: pan, zoom, hover, and a slider that removes players.

        Args:
            most: How many nodes are drawn; features at most 25.
            beside: Explanations of the same target by other kinds of players; the page can be switched to them.
        """
        from dgl_lara.explanation.plot.html import page

        for other in beside:
            if (other.task, other.target) != (self.task, self.target):
                raise InputError(
                    f"one page shows one target, {self.task} {self.target} (got {other.task} {other.target} beside it)."
                )
        return page([one.view(most) for one in (self, *beside)])

    def view(self, most: int, steps: int = STEPS) -> View:
        """What a page shows of it. `steps`: of its slider, for each of which the model is asked twice."""
        from dgl_lara.explanation.plot.html import ViewData, drawn_players

        game, rank = self.game, self.batch.rank()
        picture = self.bars(min(most, BARS)) if self.batch.players.player_type == "features" else self.scene(most)
        drawn, names = drawn_players(picture), self.player_names()
        if self.batch.players.player_type == "nodes":  # both ends of a link are drawn, and one player
            nodes, drawn = self.nodes[drawn], self._player_of_nodes.cpu().numpy()[drawn]
            called = self.node_names(nodes)
        else:
            called = [names[place] for place in drawn]
        removable = len(self) - int(self.batch.is_target.sum())
        counts = torch.linspace(removable, 0, min(removable, steps) + 1).round().int().tolist()
        keep, remove = self.curves(counts)
        story = ViewData(
            title=self.in_words(),
            about=f"Scores by {self.batch.method}; explained is the {self.value_name}"
            + (f" of class {self.class_name}" if self.class_name else "")
            + f"; players are {game.player_set.description}; {NOT_ADDITIVE.format(self.value_name)}. The curves are "
            "the model's own outputs, evaluated for every step of the slider"
            + ("; the target itself always stays." if self.batch.includes_target else ".")
            + f" {self.how_sure()}".rstrip()
            + f" {_as_sentence(self.removed_in_words)}".rstrip(),
            explained_class=self.class_name,
            value=self.value_name,
            output=self.output,
            kind=self.kind,
            names=called,
            players=len(self),
            removable=removable,
            counts=counts,
            keep=keep,
            remove=remove,
            rank=(rank[drawn] + 1).tolist(),
            place=self.batch.rank(include_target=False)[drawn].tolist(),
            features=[self._details(place) for place in drawn.tolist()],
            classes=self._class_names(drawn),
            told=np.isin(drawn, [*self._told.named, *self._told.removed]).tolist(),
        )
        return picture, story

    def _class_names(self, drawn: np.ndarray) -> list[str] | None:
        """What the model says of each drawn player: of a node, or of both ends of an edge."""
        kind, of_class = self.game.player_set, self.batch.names.of_class
        if isinstance(kind, EdgePlayers):
            ends = [self._classes_of(end) for end in kind.endpoints(self.players[drawn])]
            if ends[0] is None or ends[1] is None:
                return None
            return [f"{of_class(one)} and {of_class(other)}" for one, other in zip(*ends, strict=True)]
        classes = self.player_classes()
        return None if classes is None else [of_class(classes[place]) for place in drawn]

    def _details(self, place: int) -> list[str]:
        """What a page tells of a player besides."""
        if self.batch.players.player_type == "nodes":
            return self._main_features(place)
        return list(filter(None, [self._value_of(place)]))

    def _value_of(self, place: int) -> str:
        """Of a single column: what the target has in it (a graph: on average)."""
        kind = self.game.player_set
        if not isinstance(kind, FeaturePlayers):
            return ""
        _, columns = kind.columns_of(self.players[place : place + 1])
        if len(columns) > 1:
            return f"{len(columns)} columns"
        own = self.task.target_nodes(self.game.graph, self.batch.players.targets)
        return f"{float(self.game.features[own][:, columns].float().mean()):.3g}"

    def _repr_html_(self) -> str:
        """For notebooks: the picture and the strongest players."""
        from dgl_lara.explanation.plot.figure import inline

        called = dict(zip(self.players.tolist(), self.player_names(), strict=True))
        table = self.numbered_frame().assign(strength=self.numbered_frame().score.abs())
        table = table.nlargest(SHOWN, "strength").sort_values("rank").drop(columns="strength")
        table["player"] = [called[player] for player in table.player]
        picture = inline(self.plot(), self.in_words())
        return picture + table.to_html(index=False, border=0, float_format="{:.3g}".format)

    def _main_features(self, place: int, most: int = 5) -> list[str]:
        """The largest features of a player that are not zero: 'x3 = 0.52', or by the names of the columns."""
        row, names = self.game.node_features(int(self.players[place])), self.batch.names.columns
        largest = torch.argsort(row.abs(), descending=True, stable=True)[:most].tolist()
        return [f"{names[column] if names else f'x{column}'} = {row[column]:.3g}" for column in largest if row[column]]

    def save(self, path: Path | str, beside: Sequence[Explanation] = ()) -> None:
        """Write it to a file.

        Args:
            path: Its ending says what it becomes: .csv, .json, .graphml, a picture (.png, .svg, .pdf) or an interactive
                .html page.
            beside: For an .html page, as in `to_html`.
        """
        path = Path(path)
        if path.suffix not in FILES:
            raise InputError(f"the file must end in {', '.join(FILES)} (got '{path.name}').")
        if path.suffix == ".graphml" and self.batch.players.player_type == "features":
            raise InputError("features have no place in a graph: save their scores as .csv or .json.")
        with atomic_write(path) as temporary:
            if path.suffix == ".csv":
                self.rows().to_csv(temporary, index=False)
            elif path.suffix == ".json":
                temporary.write_text(self.to_json() + "\n")
            elif path.suffix == ".graphml":
                import networkx as nx

                nx.write_graphml_xml(self.to_networkx(), temporary)
            elif path.suffix == ".html":
                temporary.write_text(self.to_html(beside=beside))
            else:
                from dgl_lara.explanation.plot.figure import write

                write(self.plot(), temporary, path.suffix)


def _as_sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}." if line else ""

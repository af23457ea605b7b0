"""`Explanation`: why one target is what f says, in words, as a table, a graph, a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dgl
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dgl_lara.choices import PICTURES, TABLES
from dgl_lara.drawing.scene import Bars, Scene, compose, compose_bars, is_molecule
from dgl_lara.drawing.words import NOT_ADDITIVE, Facts, Telling, how_far, how_sure, tell
from dgl_lara.errors import InputError
from dgl_lara.explanation.ratings import holds_ratings, how_they_come_in
from dgl_lara.explanation.scored import Scored, feature_names, in_own_numbers
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.feature_players import FeaturePlayers
from dgl_lara.game.game import Game
from dgl_lara.game.players import Players, find, in_neighborhood
from dgl_lara.game.task import Task
from dgl_lara.game.value import of_classes
from dgl_lara.model.whole import EDGE
from dgl_lara.utils.files import written_whole

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.figure import Figure

    from dgl_lara.drawing.interactive import View

STEPS = 40  # of the slider in an interactive page
BARS = 25  # of a picture
SHOWN = 10  # rows of a table in a notebook
FILES = (*TABLES, *PICTURES)


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why one node, or one graph, is what f says: a view of `Explanations` with a single target.

    Examples:
        >>> explanation = lara.explain([512])[0]
        >>> print(explanation.in_words())
        >>> explanation.top(5)
        >>> explanation.save("node512.html")
    """

    batch: Scored

    @property
    def target(self) -> int:
        return int(self.batch.players.targets)

    @property
    def explained_class(self) -> int:
        return int(self.batch.explained_class)

    @property
    def task(self) -> Task:
        return self.batch.task

    @property
    def scores(self) -> Tensor:
        """(num_players,) in the order of `players`."""
        return self.batch.scores

    @property
    def players(self) -> Tensor:
        """(num_players,) node numbers, rising; the target itself is one of them."""
        return self.batch.players.player

    @property
    def game(self) -> Game:
        if self.batch.game is None:
            raise InputError("this explanation does not know its game; make it with LARA.explain, or name game=.")
        return self.batch.game

    def __len__(self) -> int:
        return len(self.players)

    def __repr__(self) -> str:
        return f"Explanation({self.task} {self.target}, class {self.explained_class}, {len(self)} players)"

    # --- the model's answers

    @property
    def predicted_class(self) -> int:
        return int(self.game.explained_class[self.target])

    @property
    def output(self) -> float:
        """The explained value on the untouched graph."""
        return float(self.game.value_of(self.batch.players.targets, self.batch.asked))

    def outputs(self, keep: Tensor) -> Tensor:
        """The model's own answers when only some players remain.

        Args:
            keep: (num_coalitions, num_players) bool, in the order of `players`.

        Returns:
            (num_coalitions,) the explained value.
        """
        return self.game.coalitions(self.batch.players, keep, self.batch.asked).flatten()

    def curves(self, counts: Sequence[int]) -> tuple[list[float], list[float]]:
        """The value with only the best `count` players, and with them removed, for each count; the target stays."""
        rank, always = self.batch.rank(include_target=False), self.batch.is_target
        best = torch.stack([rank < count for count in counts])
        return self.outputs(best | always).tolist(), self.outputs(~best | always).tolist()

    # --- as a table, a graph, a text

    def to_frame(self) -> pd.DataFrame:
        """One row a player, best first; of edges also both ends, of features also their names."""
        frame = self.numbered_frame()
        own = in_own_numbers(frame.assign(target=self.target), self.batch.game)
        return own[[name for name in own if not str(name).startswith("target")]]

    def numbered_frame(self) -> pd.DataFrame:
        """The same with nodes numbered through, as in `players`."""
        about = list(self.batch.about_players())
        columns = ["player", *about, "hop", "score", "rank"]
        frame = self.batch.numbered_frame()[columns].sort_values("rank", ignore_index=True)
        labels = self.batch.names.labels
        if labels is not None and self.batch.players.kind == "nodes":
            frame.insert(1, "label", [labels[player] for player in frame.player])
        return frame

    def top(self, k: int = 10) -> pd.DataFrame:
        """The k players that speak most for the explained class."""
        return self.to_frame().head(k)

    def subgraph(self) -> dgl.DGLGraph:
        """The graph among those who can reach the target; ndata: `hop`, `target` (bool), and dgl.NID, the original
        numbers; where nodes play `score`, where edges play edata `score` (NaN: the edge does not play)."""
        near = self._near
        graph = dgl.node_subgraph(self.game.graph, near.player)
        if EDGE in graph.edata:
            graph.edata.pop(EDGE)
        graph.ndata["hop"], graph.ndata["target"] = near.hop, self.task.is_target(near)
        if self.batch.players.kind == "edges":
            place = self._player_of_edges(graph)
            scores = torch.cat([self.scores, self.scores.new_full((1,), torch.nan)])
            graph.edata["score"] = scores[place]  # the last one stands at -1
        elif self.batch.players.kind == "nodes":
            graph.ndata["score"] = self.scores[self._player_of_nodes]
        return graph

    @cached_property
    def _player_of_nodes(self) -> Tensor:
        """Where nodes play, the place among `players` of each node of `nodes`; both ends of a link are one player."""
        node = self.task.plays_as(self.batch.players.targets.expand(len(self.nodes)), self.nodes)
        return find(node, self.players)[0]

    @cached_property
    def _near(self) -> Players:
        """The nodes that can reach the target."""
        if self.batch.players.kind == "nodes" and self.task.sides == 1:
            return self.batch.players
        return self.task.reach(self.game.graph, self.batch.players.targets, self.game.hops)

    def _player_of_edges(self, near: dgl.DGLGraph) -> Tensor:
        """The place among `players` of each edge of `subgraph`; -1: it does not play."""
        kind, (src, dst) = self.game.kind, near.edges()
        if not isinstance(kind, EdgePlayers) or not len(self):
            return torch.full_like(src, -1)
        place, plays = find(kind.of_edges(self.nodes[src], self.nodes[dst]), self.players)
        return torch.where(plays, place, -1)

    def to_networkx(self) -> nx.DiGraph:
        """The same for networkx: nodes under their original numbers, with hop and target; score and rank where they
        belong, on nodes or on edges (features have no place in a graph)."""
        import networkx as nx

        graph = nx.DiGraph(task=self.task.name, target=self.target, explained_class=self.explained_class)
        near, nodes = self.subgraph(), self.nodes
        if self.batch.players.kind == "nodes":
            frame = self.numbered_frame().set_index("player").loc[self.players[self._player_of_nodes].tolist()]
            frame.index, frame["target"] = nodes.tolist(), near.ndata["target"].cpu().numpy()
            graph.add_nodes_from(frame.sort_values("rank", kind="stable").to_dict("index").items())
        else:
            for node, hop in zip(nodes.tolist(), near.ndata["hop"].tolist(), strict=True):
                graph.add_node(node, hop=hop, target=self.task.local and hop == 0)
        src, dst = near.edges()
        graph.add_edges_from(zip(nodes[src].tolist(), nodes[dst].tolist(), strict=True))
        if self.batch.players.kind == "edges":
            rank = self.batch.rank() + 1
            of_edges = zip(nodes[src].tolist(), nodes[dst].tolist(), self._player_of_edges(near).tolist(), strict=True)
            for one, other, place in of_edges:
                if place >= 0:
                    graph.add_edge(one, other, score=float(self.scores[place]), rank=int(rank[place]))
        return graph

    def to_dict(self) -> dict[str, Any]:
        """Everything, in plain values."""
        graph, nodes_play = self.to_networkx(), self.batch.players.kind == "nodes"
        rows = self.to_frame().to_dict("records")
        return {
            **graph.graph,
            "predicted_class": self.predicted_class,
            "value": self.game.value,
            "output": self.output,
            "method": self.batch.method,
            "kind": self.batch.players.kind,
            "players": [{"node": node, **values} for node, values in graph.nodes(data=True)] if nodes_play else rows,
            "edges": [list(edge) for edge in graph.edges],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1)

    def in_words(self) -> str:
        """One sentence: who decided it, and what happens without them (evaluated, not estimated)."""
        return self._told.text

    @cached_property
    def _told(self) -> Telling:
        """The sentence, and the places (among `players`) of those it names."""
        rank, names = self.batch.rank(include_target=False), self.player_names()
        others = torch.argsort(rank)[: len(self) - int(self.batch.is_target.sum())]  # places, best first

        def without(places: Sequence[int]) -> float:
            keep = torch.ones(1, len(self), dtype=torch.bool, device=self.scores.device)
            keep[0, others[list(places)]] = False
            return float(self.outputs(keep))

        telling = tell(
            Facts(
                task=self.task.name,
                target=self.target_name,
                subject=self.subject,
                whose=self._whose(others),
                who_are=self._who_are(others),
                recommended_to=self._recommended_to,
                scored=self.game.value == "output",
                named_by_hop=self.batch.includes_target,
                explained_class=self.batch.names.of_class(self.explained_class),
                predicted_class=self.batch.names.of_class(self.predicted_class),
                rather_than=self.rival_name,
                value=self.value_name,
                output=self.output,
                null=self.nothing,
                hops=self.game.hops,
                kind=self.kind,
                names=[names[place] for place in others.tolist()],
                hop=self.batch.players.hop[others].tolist(),
                score=self.scores[others].tolist(),
                own=float(self.scores[self.batch.is_target].sum()),
                without=without,
            )
        )
        return replace(telling, named=others[list(telling.named)].tolist())

    @property
    def subject(self) -> str:
        """What is explained, at the beginning of a sentence."""
        if self.task.sides > 1:
            u, v = self.node_names(self.task.nodes_of_one(self.target))
            return v[0].upper() + v[1:] if self._recommended_to else f"The link from {u} to {v}"
        if self.game.types is not None:
            return self.target_name[0].upper() + self.target_name[1:]
        return f"{self.task.name.capitalize()} {self.target_name}"

    def _whose(self, places: Tensor) -> list[str]:
        """Of players near a link: which end they are nearer to. Of others nothing."""
        if self.task.sides == 1 or self.batch.players.kind != "nodes":
            return []
        ends = self.task.nodes_of_one(self.target).to(self.players.device)
        near = in_neighborhood(self.game.graph, ends, self.game.hops)
        hop = torch.full((2, self.game.graph.num_nodes()), self.game.hops + 1, device=ends.device)
        hop[near.row, near.player] = near.hop
        first = hop[0, self.players[places]] <= hop[1, self.players[places]]
        names = self.node_names(ends)
        return [names[0] if nearer else names[1] for nearer in first.tolist()]

    @property
    def _recommended_to(self) -> str:
        """Whom the second end of a pair is recommended to; nobody where the graph holds no ratings."""
        return self.node_names(self.task.nodes_of_one(self.target))[0] if holds_ratings(self.game) else ""

    def _who_are(self, places: Tensor) -> list[str]:
        """Of players near a recommendation: how they come in."""
        if not self._recommended_to or self.batch.players.kind != "nodes":
            return []
        u, v = self.task.nodes_of_one(self.target).tolist()
        return how_they_come_in(self.game, u, v, self.players[places])

    @property
    def _told_nodes(self) -> list[int]:
        """The places of those whom the sentence names: among the nodes where nodes play, else among the players."""
        if self.batch.players.kind != "nodes" or self.task.sides == 1:
            return list(self._told.named)
        return find(self.players[list(self._told.named)], self.nodes)[0].tolist()

    @property
    def class_name(self) -> str:
        """Of the explained class: its own name, or its number; with the class that it is set against. A single output
        is no class."""
        if self.game.value == "output" and self.game.num_classes == 1:
            return ""
        name, rival = self.batch.names.of_class(self.explained_class), self.rival_name
        return name if rival is None else f"{name} rather than {rival}"

    @property
    def rival_name(self) -> str | None:
        """Of the class that the explained one is set against."""
        rival = self.batch.rather_than
        return None if rival is None else self.batch.names.of_class(int(rival))

    @property
    def value_name(self) -> str:
        """What the explained number is."""
        if self.task.sides > 1 and self.game.value == "output":
            return "score"
        return self.game.value if self.batch.rather_than is None else f"{self.game.value} difference"

    @property
    def nothing(self) -> float:
        """The explained value without any player."""
        if self.batch.players.kind == "nodes":
            return float(of_classes(self.game.null.view(1, 1, -1), self.batch.asked))
        return float(self.outputs(torch.zeros(1, len(self), dtype=torch.bool, device=self.scores.device)))

    @property
    def target_name(self) -> str:
        """Its number; a node that has a name of its own: name and number."""
        if not self.task.local:
            return str(self.target)
        return " and ".join(self.node_names(self.task.nodes_of_one(self.target)))

    def player_classes(self) -> list[int] | None:
        """The class that the model predicts for each player; None where players are no targets of their own."""
        return self._classes_of(self.players) if self.batch.includes_target else None

    def _classes_of(self, nodes: Tensor) -> list[int] | None:
        """The class that the model predicts for each node; None where nodes are no targets, or have no class."""
        if not self.task.local or self.task.sides > 1 or self.game.types is not None or self.game.value == "output":
            return None
        return self.game.explained_class[nodes].tolist()

    def how_sure(self) -> str:
        """Where the scores come from and how far they can be trusted, in a sentence; empty where nobody knows."""
        if self.batch.corrected is None:
            return ""
        known, novelty = self.batch.confidence, self.batch.novelty
        confidence = None if known is None else float(known)
        said = how_sure(bool(self.batch.corrected), confidence, self.kind, self.task.local)
        return said if novelty is None else f"{said} {how_far(float(novelty))}"

    def player_names(self) -> list[str]:
        """What the players are called: nodes by their numbers, in a graph by their places, after their atoms: N12;
        edges by their two ends; features by their names, or x3."""
        kind = self.game.kind
        if isinstance(kind, EdgePlayers):
            between = "→" if kind.directed else "–"
            return [between.join(pair) for pair in zip(*map(self.node_names, kind.ends(self.players)), strict=True)]
        if isinstance(kind, FeaturePlayers):
            called = feature_names(self.game, self.batch.names)
            return [f"x{player}" if called is None else str(called[player]) for player in self.players.tolist()]
        names = self.node_names(self.players)
        if self.task.sides == 1:
            return names
        return ["both ends" if own else name for own, name in zip(self.batch.is_target.tolist(), names, strict=True)]

    def node_names(self, nodes: Tensor) -> list[str]:
        """What nodes are called."""
        labels = self.batch.names.labels
        if self.game.types is not None:
            return self.game.types.in_words(nodes, labels)
        known = nodes if self.game.cut_from is None else self.game.cut_from.numbers[nodes]
        numbers = self.task.node_numbers(self.game.graph, self.batch.players.targets, known)
        if labels is None:
            return list(map(str, numbers))
        form = "{}{}" if self._is_molecule else "{} ({})"
        return [form.format(labels[node], number) for node, number in zip(nodes.tolist(), numbers, strict=True)]

    @property
    def nodes(self) -> Tensor:
        """(num_nodes,) everybody who can reach the target, rising: the players, where nodes play."""
        return self._near.player

    @property
    def kind(self) -> str:
        """What a player is called in words."""
        if self.batch.players.kind == "nodes":
            return self.task.player_noun(self._is_molecule)
        return "bond" if self._is_molecule and self.batch.players.kind == "edges" else self.game.kind.noun

    @property
    def _is_molecule(self) -> bool:
        labels = self.batch.names.labels
        return not self.task.local and labels is not None and is_molecule(labels[node] for node in self.nodes.tolist())

    # --- as a picture

    def scene(self, most: int) -> Scene:
        """At most so many nodes with their places, for whoever draws them; not where features play."""
        names, near, edges_play = self.batch.names, self.subgraph(), self.batch.players.kind == "edges"
        src, dst = near.edges()
        nodes, classes = self.nodes, self._classes_of(self.nodes)
        return compose(
            names=self.node_names(nodes),
            labels=self._marks(nodes),
            score=(self.scores if edges_play else self.scores[self._player_of_nodes]).cpu().numpy(),
            hop=self._near.hop.cpu().numpy() if self.task.local else None,
            truth=None if names.motif is None else self.task.in_motif(self._near, names.motif).cpu().numpy(),
            edges=torch.stack([src, dst], dim=1).cpu().numpy(),
            most=most,
            told=self._told_nodes,
            other_class=None if classes is None else np.array(classes) != self.explained_class,
            edge_player=self._player_of_edges(near).cpu().numpy() if edges_play else None,
            kinds=None if self.game.types is None else self.game.types.split(nodes)[0],
            other_than=names.of_class(self.explained_class),
        )

    def _marks(self, nodes: Tensor) -> list[str] | None:
        """What is written on nodes: their own names; of a type that has none, its numbers."""
        labels, types = self.batch.names.labels, self.game.types
        own = None if labels is None else [labels[node] for node in nodes.tolist()]
        if types is None:
            return own
        numbers = map(str, types.own_number(nodes).tolist())
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
        from dgl_lara.drawing.bars import draw_bars
        from dgl_lara.drawing.pictures import draw

        title = f"{self.in_words()} {self.how_sure()}".rstrip() if words else ""
        if self.batch.players.kind == "features":
            return draw_bars(self.bars(min(most, BARS)), title, self.class_name, self.value_name)
        return draw(self.scene(most), title, self.class_name, self.value_name)

    def to_html(self, most: int = 120, beside: Sequence[Explanation] = ()) -> str:
        """A page of its own to explore: pan, zoom, hover, and a slider that removes players.

        Args:
            most: How many nodes are drawn; features at most 25.
            beside: Explanations of the same target by other kinds of players; the page can be switched to them.
        """
        from dgl_lara.drawing.interactive import page

        for other in beside:
            if (other.task, other.target) != (self.task, self.target):
                raise InputError(
                    f"one page shows one target, {self.task} {self.target} (got {other.task} {other.target} beside it)."
                )
        return page([one.view(most) for one in (self, *beside)])

    def view(self, most: int, steps: int = STEPS) -> View:
        """What a page shows of it. `steps`: of its slider, for each of which the model is asked twice."""
        from dgl_lara.drawing.interactive import Story, drawn_players

        game, rank = self.game, self.batch.rank()
        picture = self.bars(min(most, BARS)) if self.batch.players.kind == "features" else self.scene(most)
        drawn, names = drawn_players(picture), self.player_names()
        if self.batch.players.kind == "nodes":  # both ends of a link are drawn, and one player
            nodes, drawn = self.nodes[drawn], self._player_of_nodes.cpu().numpy()[drawn]
            called = self.node_names(nodes)
        else:
            called = [names[place] for place in drawn]
        removable = len(self) - int(self.batch.is_target.sum())
        counts = torch.linspace(removable, 0, min(removable, steps) + 1).round().int().tolist()
        keep, remove = self.curves(counts)
        story = Story(
            title=self.in_words(),
            about=f"Scores by {self.batch.method}; explained is the {self.value_name}"
            + (f" of class {self.class_name}" if self.class_name else "")
            + f"; players are {game.kind.in_words}; {NOT_ADDITIVE.format(game.value)}. The curves are "
            "the model's own outputs, evaluated for every step of the slider"
            + ("; the target itself always stays." if self.batch.includes_target else ".")
            + f" {self.how_sure()}".rstrip(),
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
        )
        return picture, story

    def _class_names(self, drawn: np.ndarray) -> list[str] | None:
        """What the model says of each drawn player: of a node, or of both ends of an edge."""
        kind, of_class = self.game.kind, self.batch.names.of_class
        if isinstance(kind, EdgePlayers):
            ends = [self._classes_of(end) for end in kind.ends(self.players[drawn])]
            if ends[0] is None or ends[1] is None:
                return None
            return [f"{of_class(one)} and {of_class(other)}" for one, other in zip(*ends, strict=True)]
        classes = self.player_classes()
        return None if classes is None else [of_class(classes[place]) for place in drawn]

    def _details(self, place: int) -> list[str]:
        """What a page tells of a player besides."""
        if self.batch.players.kind == "nodes":
            return self._main_features(place)
        return list(filter(None, [self._value_of(place)]))

    def _value_of(self, place: int) -> str:
        """Of a single column: what the target has in it (a graph: on average)."""
        kind = self.game.kind
        if not isinstance(kind, FeaturePlayers):
            return ""
        _, columns = kind.columns_of(self.players[place : place + 1])
        if len(columns) > 1:
            return f"{len(columns)} columns"
        own = self.task.nodes_of(self.game.graph, self.batch.players.targets)
        return f"{float(self.game.features[own][:, columns].float().mean()):.3g}"

    def _repr_html_(self) -> str:
        """For notebooks: the picture and the strongest players."""
        from dgl_lara.drawing.pictures import inline

        called = dict(zip(self.players.tolist(), self.player_names(), strict=True))
        table = self.numbered_frame().assign(strength=self.numbered_frame().score.abs())
        table = table.nlargest(SHOWN, "strength").sort_values("rank").drop(columns="strength")
        table["player"] = [called[player] for player in table.player]
        picture = inline(self.plot(), self.in_words())
        return picture + table.to_html(index=False, border=0, float_format="{:.3g}".format)

    def _main_features(self, place: int, most: int = 5) -> list[str]:
        """The largest features of a player that are not zero: 'x3 = 0.52', or by the names of the columns."""
        row, names = self.game.features_of(int(self.players[place])), self.batch.names.columns
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
        if path.suffix == ".graphml" and self.batch.players.kind == "features":
            raise InputError("features have no place in a graph: save their scores as .csv or .json.")
        with written_whole(path) as temporary:
            if path.suffix == ".csv":
                self.to_frame().to_csv(temporary, index=False)
            elif path.suffix == ".json":
                temporary.write_text(self.to_json() + "\n")
            elif path.suffix == ".graphml":
                import networkx as nx

                nx.write_graphml_xml(self.to_networkx(), temporary)
            elif path.suffix == ".html":
                temporary.write_text(self.to_html(beside=beside))
            else:
                from dgl_lara.drawing.pictures import write

                write(self.plot(), temporary, path.suffix)

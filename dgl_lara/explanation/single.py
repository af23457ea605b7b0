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
from dgl_lara.drawing.scene import Scene, compose, is_molecule
from dgl_lara.drawing.words import NOT_ADDITIVE, Facts, Telling, how_sure, tell
from dgl_lara.errors import InputError
from dgl_lara.explanation.scored import Scored, feature_names
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.feature_players import FeaturePlayers
from dgl_lara.game.game import Game
from dgl_lara.game.players import find
from dgl_lara.game.task import Task
from dgl_lara.game.value import of_classes
from dgl_lara.utils.files import written_whole

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.figure import Figure

STEPS = 40  # of the slider in an interactive page
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
        """One row a player, best first."""
        frame = self.batch.to_frame()[["player", "hop", "score", "rank"]].sort_values("rank", ignore_index=True)
        if self.batch.names.labels is not None:
            frame.insert(1, "label", [self.batch.names.labels[player] for player in frame.player])
        return frame

    def top(self, k: int = 10) -> pd.DataFrame:
        """The k players that speak most for the explained class."""
        return self.to_frame().head(k)

    def subgraph(self) -> dgl.DGLGraph:
        """The graph among those who can reach the target; ndata: `hop`, `target` (bool), and dgl.NID, the original
        numbers; where nodes play `score`, where edges play edata `score` (NaN: the edge does not play)."""
        near = self.task.reach(self.game.graph, self.batch.players.targets, self.game.hops)
        graph = dgl.node_subgraph(self.game.graph, near.player)
        graph.ndata["hop"], graph.ndata["target"] = near.hop, self.task.is_target(near)
        kind = self.game.kind
        if isinstance(kind, EdgePlayers):
            src, dst = graph.edges()
            place, plays = find(kind.of_edges(near.player[src], near.player[dst]), self.players)
            graph.edata["score"] = torch.where(plays, self.scores[place], torch.nan)
        elif self.batch.players.kind == "nodes":
            graph.ndata["score"] = self.scores
        return graph

    def to_networkx(self) -> nx.DiGraph:
        """The same for networkx: nodes under their original numbers, with score, hop, rank and target."""
        import networkx as nx

        graph = nx.DiGraph(task=self.task.name, target=self.target, explained_class=self.explained_class)
        frame = self.to_frame()
        columns = {name: frame[name].tolist() for name in frame.columns.drop("player")}
        columns["target"] = (self.task.local & (frame.player == self.target)).tolist()
        for place, player in enumerate(frame.player.tolist()):
            graph.add_node(player, **{name: values[place] for name, values in columns.items()})
        src, dst = self.subgraph().edges()
        graph.add_edges_from(zip(self.players[src].tolist(), self.players[dst].tolist(), strict=True))
        return graph

    def to_dict(self) -> dict[str, Any]:
        """Everything, in plain values."""
        graph = self.to_networkx()
        return {
            **graph.graph,
            "predicted_class": self.predicted_class,
            "value": self.game.value,
            "output": self.output,
            "method": self.batch.method,
            "players": [{"node": node, **values} for node, values in graph.nodes(data=True)],
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
                named_by_hop=self.batch.includes_target,
                target=self.target_name,
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
    def class_name(self) -> str:
        """Of the explained class: its own name, or its number; with the class that it is set against."""
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
        labels = self.batch.names.labels
        return str(self.target) if not self.task.local or labels is None else f"{labels[self.target]} ({self.target})"

    def player_classes(self) -> list[int] | None:
        """The class that the model predicts for each player; None where players are no targets of their own."""
        if not self.batch.includes_target or self.game.value == "output":
            return None
        return self.game.explained_class[self.players].tolist()

    def how_sure(self) -> str:
        """Where the scores come from and how far they can be trusted, in a sentence; empty where nobody knows."""
        if self.batch.corrected is None:
            return ""
        known = self.batch.confidence
        confidence = None if known is None else float(known)
        return how_sure(bool(self.batch.corrected), confidence, self.kind, self.task.local)

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
        return self.node_names(self.players)

    def node_names(self, nodes: Tensor) -> list[str]:
        """What nodes are called."""
        labels = self.batch.names.labels
        numbers = self.task.node_numbers(self.game.graph, self.batch.players.targets, nodes)
        if labels is None:
            return list(map(str, numbers))
        form = "{}{}" if self._is_molecule else "{} ({})"
        return [form.format(labels[node], number) for node, number in zip(nodes.tolist(), numbers, strict=True)]

    @property
    def nodes(self) -> Tensor:
        """(num_nodes,) everybody who can reach the target, rising: the players, where nodes play."""
        if self.batch.players.kind == "nodes":
            return self.players
        return self.task.reach(self.game.graph, self.batch.players.targets, self.game.hops).player

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
        """At most so many players with their places, for whoever draws them."""
        names, hop = self.batch.names, self.batch.players.hop
        src, dst = self.subgraph().edges()
        labels = [names.labels[player] for player in self.players.tolist()] if names.labels is not None else None
        classes = self.player_classes()
        return compose(
            names=self.player_names(),
            labels=labels,
            score=self.scores.cpu().numpy(),
            hop=hop.cpu().numpy() if self.task.local else None,
            truth=None if names.motif is None else self.batch.in_motif(names.motif).cpu().numpy(),
            edges=torch.stack([src, dst], dim=1).cpu().numpy(),
            most=most,
            told=self._told.named,
            other_class=None if classes is None else np.array(classes) != self.explained_class,
        )

    def plot(self, most: int = 40) -> Figure:
        """A picture.

        Args:
            most: How many players are drawn, the strongest for or against.

        Returns:
            A matplotlib figure: the players around the target, coloured by score.
        """
        from dgl_lara.drawing.pictures import draw

        title = f"{self.in_words()} {self.how_sure()}".rstrip()
        return draw(self.scene(most), title, self.class_name, self.game.value)

    def to_html(self, most: int = 120) -> str:
        """A page of its own to explore: pan, zoom, hover, and a slider that removes players."""
        from dgl_lara.drawing.interactive import Story, page

        scene, game, rank = self.scene(most), self.game, self.batch.rank()
        removable = len(self) - int(self.batch.is_target.sum())
        counts = torch.linspace(removable, 0, min(removable, STEPS) + 1).round().int().tolist()
        keep, remove = self.curves(counts)
        classes = self.player_classes()
        story = Story(
            title=self.in_words(),
            about=f"Scores by {self.batch.method}; explained is the {game.value} of class {self.class_name}; "
            f"players are {self.task.players_in_words(game.hops)}; {NOT_ADDITIVE.format(game.value)}. The curves are "
            "the model's own outputs, evaluated for every step of the slider"
            + ("; the target itself always stays." if self.task.local else ".")
            + f" {self.how_sure()}".rstrip(),
            explained_class=self.class_name,
            value=game.value,
            output=self.output,
            kind=self.kind,
            players=len(self),
            removable=removable,
            counts=counts,
            keep=keep,
            remove=remove,
            rank=(rank[scene.place] + 1).tolist(),
            place=self.batch.rank(include_target=False)[scene.place].tolist(),
            features=[self._main_features(place) for place in scene.place.tolist()],
            classes=None if classes is None else [self.batch.names.of_class(classes[place]) for place in scene.place],
        )
        return page(scene, story)

    def _main_features(self, place: int, most: int = 5) -> list[str]:
        """The largest features of a player that are not zero: 'x3 = 0.52', or by the names of the columns."""
        row, names = self.game.features[self.players[place]], self.batch.names.columns
        largest = torch.argsort(row.abs(), descending=True, stable=True)[:most].tolist()
        return [f"{names[column] if names else f'x{column}'} = {row[column]:.3g}" for column in largest if row[column]]

    def save(self, path: Path | str) -> None:
        """Write it to a file.

        Args:
            path: Its ending says what it becomes: .csv, .json, .graphml, a picture (.png, .svg, .pdf) or an interactive
                .html page.
        """
        path = Path(path)
        if path.suffix not in FILES:
            raise InputError(f"the file must end in {', '.join(FILES)} (got '{path.name}').")
        with written_whole(path) as temporary:
            if path.suffix == ".csv":
                self.to_frame().to_csv(temporary, index=False)
            elif path.suffix == ".json":
                temporary.write_text(self.to_json() + "\n")
            elif path.suffix == ".graphml":
                import networkx as nx

                nx.write_graphml_xml(self.to_networkx(), temporary)
            elif path.suffix == ".html":
                temporary.write_text(self.to_html())
            else:
                from dgl_lara.drawing.pictures import write

                write(self.plot(), temporary, path.suffix)

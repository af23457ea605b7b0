"""`Explanation` is why the model returns its prediction for one target, as numbers, a sentence, a picture or a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dgl
import pandas as pd
import torch
from torch import Tensor

from dgl_lara._util.atomic import atomic_write
from dgl_lara._util.tables import shortened
from dgl_lara.blackbox.input_adapter import EDGE_ID, input_adapter
from dgl_lara.constants import PICTURES, TABLES
from dgl_lara.errors import InputError, message
from dgl_lara.explanation.recommendation import recommendation_clauses
from dgl_lara.explanation.sentence import Sentence, SentenceInput, build_sentence
from dgl_lara.explanation.table import to_user_ids
from dgl_lara.explanation.trust import how_far, how_sure
from dgl_lara.graphs.indexing import lookup_sorted

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.figure import Figure

    from dgl_lara.explanation.explanations import Explanations
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players
    from dgl_lara.game.task import Task

MAX_NAME_LETTERS = 40  # of a name of the user's own in a sentence
NOTEBOOK_ROWS = 10
ENDINGS = (*TABLES, *PICTURES)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Scores of the players of one target, a view of `Explanations` with a single target.

    Attributes:
        batch: The explanations of this target alone.

    Examples:
        >>> explanation = lara.explain([512])[0]
        >>> print(explanation.in_words())
        >>> explanation.top(5)
        >>> explanation.save("node512.html")
    """

    batch: Explanations

    def __len__(self) -> int:
        return len(self.players)

    def __repr__(self) -> str:
        return f"Explanation({self.task} {self.target}, class {self.explained_class}, {len(self)} players)"

    @property
    def target(self) -> int:
        """Number of the target."""
        return int(self.batch.players.targets)

    @property
    def explained_class(self) -> int:
        """Class whose value is explained."""
        return int(self.batch.explained_class)

    @property
    def task(self) -> Task:
        """Kind of target."""
        return self.batch.task

    @property
    def scores(self) -> Tensor:
        """(num_players,) scores in the order of `players`."""
        return self.batch.scores

    @property
    def players(self) -> Tensor:
        """(num_players,) numbers of the players, rising."""
        return self.batch.players.player

    @property
    def game(self) -> Game:
        """What was explained.

        Raises:
            InputError: If the explanation was made without a game.
        """
        if self.batch.game is None:
            raise InputError("explanations.no_game")
        return self.batch.game

    # --- outputs of the model

    @property
    def predicted_class(self) -> int:
        """Class that the model predicts on the whole graph."""
        return int(self.game.explained_class[self.target])

    @property
    def output(self) -> float:
        """Explained value on the whole graph."""
        return float(self.game.full_value_of(self.batch.players.targets, self.batch.query))

    def outputs(self, keep: Tensor) -> Tensor:
        """Evaluate the model with only some of the players.

        Args:
            keep: (num_coalitions, num_players) bool, in the order of `players`.

        Returns:
            (num_coalitions,) explained value.
        """
        return self.game.values_per_target(self.batch.players, keep, self.batch.query).flatten()

    def curves(self, counts: Sequence[int]) -> tuple[list[float], list[float]]:
        """Evaluate the model with only the best players, and without them. The target always stays.

        Args:
            counts: Numbers of best players.

        Returns:
            The value for each count with only the best players, and without them.
        """
        rank, always = self.batch.rank(include_target=False), self.batch.is_target
        best = torch.stack([rank < count for count in counts])
        return self.outputs(best | always).tolist(), self.outputs(~best | always).tolist()

    def player_classes(self) -> list[int] | None:
        """Return the class that the model predicts for each player, or None if players are no targets."""
        nodes = self.game.player_set.nodes_of(self.players)
        return self.classes_of(*nodes) if len(nodes) == 1 else None

    def classes_of(self, nodes: Tensor) -> list[int] | None:
        """Return the class that the model predicts for each node, or None if it predicts none."""
        classes = self.game.node_classes
        return None if classes is None else classes[nodes].tolist()

    # --- names

    @property
    def noun(self) -> str:
        """Noun for one player, such as "neighbour"."""
        return self.game.player_set.noun_in(self.is_molecule)

    @property
    def class_name(self) -> str:
        """Name or number of the explained class, with the class against which it is set. A single output has none."""
        if self.game.value == "output" and self.game.num_classes == 1:
            return ""
        name, rival = self.batch.names.of_class(self.explained_class), self._rival_name
        return name if rival is None else f"{name} rather than {rival}"

    @property
    def value_name(self) -> str:
        """Name of the explained value, such as "logit"."""
        name = self.task.value_name(self.game.value)
        return name if self.batch.rather_than is None else f"{name} difference"

    @property
    def meaning(self) -> str:
        """Return a sentence on what a score is."""
        code = "scores.adds_up" if self.game.index.adds_up else "scores.not_additive"
        text = message(code, value=self.value_name, over=self.game.index.words)
        return f"{text[0].upper()}{text[1:]}."

    def player_names(self, max_letters: int | None = None) -> list[str]:
        """Return the names of players: "12", "Ann (12)", "N3" for an atom, "3–7" for an edge, "age" for a feature.

        Args:
            max_letters: Shorten names of the user's own to this length.
        """
        own = self.game.player_set.display_names(self.batch.names.columns)
        if own is not None and max_letters is not None:
            own = [shortened(str(name), max_letters) for name in own]
        return self.game.player_set.names(self.batch.players, lambda nodes: self.node_names(nodes, max_letters), own)

    def node_names(self, nodes: Tensor, max_letters: int | None = None) -> list[str]:
        """Return the names of nodes.

        Args:
            nodes: Nodes of the game's graph.
            max_letters: Shorten names of the user's own to this length.
        """
        node_types, ids = self.game.user_ids(nodes)
        names = list(map(str, self.task.node_ids(self.game.graph, self.batch.players.targets, ids)))
        if node_types is not None:
            names = [f"{node_type} {name}" for node_type, name in zip(node_types, names, strict=True)]
        labels = self.batch.names.labels
        if labels is None:
            return names
        own = [str(labels[node]) for node in nodes.tolist()]
        if max_letters is not None:
            own = [shortened(label, max_letters) for label in own]
        if self.is_molecule:
            return [label + name for label, name in zip(own, names, strict=True)]
        if node_types is not None:
            return [f"{name} ({label})" if label else name for label, name in zip(own, names, strict=True)]
        return [f"{label} ({name})" for label, name in zip(own, names, strict=True)]

    @property
    def _rival_name(self) -> str | None:
        rival = self.batch.rather_than
        return None if rival is None else self.batch.names.of_class(int(rival))

    @cached_property
    def is_molecule(self) -> bool:
        """Nodes are atoms."""
        labels = self.batch.names.labels
        return labels is not None and self.task.is_molecule(labels[node] for node in self.nodes.tolist())

    # --- in words

    def in_words(self) -> str:
        """Return which players carry the prediction, and what the model returns without them (evaluated)."""
        return self.sentence.text

    def how_sure(self) -> str:
        """Return how the scores were made and how far they can be trusted, or "" if that is unknown."""
        if self.batch.corrected is None:
            return ""
        confidence, novelty = self.batch.confidence, self.batch.novelty
        text = how_sure(bool(self.batch.corrected), None if confidence is None else float(confidence), self.noun)
        return text if novelty is None else f"{text} {how_far(float(novelty))}"

    @property
    def removed(self) -> list[str]:
        """Names of the players that the sentence removes without naming them, best first."""
        names = self.player_names()
        return [names[player] for player in self.sentence.removed]

    @property
    def removed_in_words(self) -> str:
        """One line with the names of `removed`, or ""."""
        return f"removed together, to check the scores: {', '.join(self.removed)}" if self.removed else ""

    @cached_property
    def sentence(self) -> Sentence:
        """The sentence with its outcome, and the positions (among `players`) of those it names and removes."""
        batch, game = self.batch, self.game
        rank, names = batch.rank(include_target=False), self.player_names(MAX_NAME_LETTERS)
        target_names = self.task.target_names(self.target, lambda nodes: self.node_names(nodes, MAX_NAME_LETTERS))
        others = torch.argsort(rank)[: len(self) - int(batch.is_target.sum())]  # best first
        noun = self.noun
        roles = game.player_set.roles(batch.players, noun, target_names)
        recommended_to, clauses, subject = "", list[str](), self.task.subject(target_names)
        if input_adapter(game.f).holds_ratings():
            recommended_to, item = target_names
            subject = item[0].upper() + item[1:]
            nodes = game.player_set.nodes_of(self.players[others])
            if len(nodes) == 1:
                user, rated = self.task.endpoints_of(self.target).tolist()
                clauses = recommendation_clauses(game, user, rated, *nodes)

        def without(positions: Sequence[int]) -> float:
            keep = torch.ones(1, len(self), dtype=torch.bool, device=self.scores.device)
            keep[0, others[list(positions)]] = False
            return float(self.outputs(keep))

        sentence = build_sentence(
            SentenceInput(
                subject=subject,
                explained_class=batch.names.of_class(self.explained_class),
                predicted_class=batch.names.of_class(self.predicted_class),
                rather_than=self._rival_name,
                has_classes=game.value != "output",
                recommended_to=recommended_to,
                value=self.value_name,
                output=self.output,
                null=game.null_value(batch.players, batch.query),
                noun=noun,
                within=game.player_set.within(),
                names=[names[player] for player in others.tolist()],
                roles=[roles[player] for player in others.tolist()],
                clauses=clauses,
                score=self.scores[others].tolist(),
                own=float(self.scores[batch.is_target].sum()),
                without=without,
            )
        )
        named, removed = (others[list(positions)].tolist() for positions in (sentence.named, sentence.removed))
        return Sentence(sentence.outcome, sentence.text, named, removed)

    # --- as a table

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row for each player, best first."""
        frame = to_user_ids(self.internal_frame().assign(target=self.target), self.batch.game)
        return frame[[name for name in frame if not str(name).startswith("target")]]

    def internal_frame(self) -> pd.DataFrame:
        """Return the table of `to_frame` with the node numbers of the game's graph."""
        frame = self.batch.internal_frame().drop(columns=["target", "explained_class", "rather_than"], errors="ignore")
        first = ["player", *(name for name in ("u", "v", "name") if name in frame), "hop", "score", "rank"]
        frame = frame[first].sort_values("rank", ignore_index=True)
        if self.batch.game is None:
            return frame
        own = self.game.player_set.table_labels(self.batch.players, self.batch.names.labels, self.player_names)
        if own is not None:
            label = dict(zip(self.players.tolist(), own, strict=True))
            frame.insert(1, "label", [label[player] for player in frame.player])
        return frame

    def top(self, k: int = 10) -> pd.DataFrame:
        """Return the k rows of `to_frame` with the highest scores."""
        return self.to_frame().head(k)

    def _file_frame(self) -> pd.DataFrame:
        """Return the table with the target, the explained class and how far the scores can be trusted in each row."""
        trust = {name: values.repeat(len(self)) for name, values in self.batch.trust().items()}
        return to_user_ids(self.internal_frame().assign(target=self.target, **self._classes, **trust), self.batch.game)

    @property
    def _classes(self) -> dict[str, int]:
        rival = self.batch.rather_than
        return {"explained_class": self.explained_class, **({} if rival is None else {"rather_than": int(rival)})}

    # --- as a graph

    @cached_property
    def near(self) -> Players:
        """Nodes that can reach the target, with their hops."""
        return self.task.reach(self.game.graph, self.batch.players.targets, self.game.hops)

    @property
    def nodes(self) -> Tensor:
        """(num_nodes,) nodes that can reach the target, rising."""
        return self.near.player

    @cached_property
    def player_of_nodes(self) -> Tensor | None:
        """(num_nodes,) position among `players` of each of `nodes`, or None if nodes are not players."""
        targets = self.batch.players.targets.expand(len(self.nodes))
        return self._positions(self.game.player_set.player_of_nodes(targets, self.nodes))

    def player_of_edges(self, graph: dgl.DGLGraph) -> Tensor | None:
        """Return the position among `players` of each edge (-1 for none), or None if edges are not players."""
        src, dst = graph.edges()
        return self._positions(self.game.player_set.player_of_edges(self.nodes[src], self.nodes[dst]))

    @property
    def has_positions(self) -> bool:
        """Players are nodes or edges, so a graph can show their scores."""
        return self.player_of_nodes is not None or self.player_of_edges(self.subgraph()) is not None

    def _positions(self, ids: Tensor | None) -> Tensor | None:
        if ids is None or not len(self):
            return None if ids is None else torch.full_like(ids, -1)
        position, is_player = lookup_sorted(ids, self.players)
        return torch.where(is_player, position, -1)

    def subgraph(self) -> dgl.DGLGraph:
        """Return the graph among the nodes that can reach the target.

        Returns:
            A graph with ndata `hop`, `target` (bool) and dgl.NID (numbers in the game's graph), and `score` on nodes or
            on edges (NaN for edges that are not players).
        """
        graph = dgl.node_subgraph(self.game.graph, self.nodes)
        if EDGE_ID in graph.edata:
            graph.edata.pop(EDGE_ID)
        graph.ndata["hop"], graph.ndata["target"] = self.near.hop, self.task.is_target(self.near)
        scores = torch.cat([self.scores, self.scores.new_full((1,), torch.nan)])  # the last one is that of -1
        of_nodes, of_edges = self.player_of_nodes, self.player_of_edges(graph)
        if of_nodes is not None:
            graph.ndata["score"] = scores[of_nodes]
        if of_edges is not None:
            graph.edata["score"] = scores[of_edges]
        return graph

    def to_networkx(self) -> nx.DiGraph:
        """Return `subgraph` for networkx, with score and rank on nodes or edges, and source and confidence."""
        import networkx as nx

        trust = {name: values[0] for name, values in self.batch.trust().items()}
        facts = {"task": self.task.name, "target": self.target, **self._classes}
        facts |= {name: value.item() if hasattr(value, "item") else value for name, value in trust.items()}
        graph = nx.DiGraph(**{name: value for name, value in facts.items() if value == value})  # no NaN
        near, nodes = self.subgraph(), self.nodes
        hops, is_target = near.ndata["hop"].tolist(), near.ndata["target"].tolist()
        if self.player_of_nodes is None:
            for node, hop, own in zip(nodes.tolist(), hops, is_target, strict=True):
                graph.add_node(node, hop=hop, target=own)
        else:
            frame = self.internal_frame().set_index("player").loc[self.players[self.player_of_nodes].tolist()]
            frame.index, frame["target"] = nodes.tolist(), is_target
            graph.add_nodes_from(frame.sort_values("rank", kind="stable").to_dict("index").items())
        ends = [nodes[end].tolist() for end in near.edges()]
        graph.add_edges_from(zip(*ends, strict=True))
        positions = self.player_of_edges(near)
        if positions is not None:
            rank = self.batch.rank() + 1
            for u, v, player in zip(*ends, positions.tolist(), strict=True):
                if player >= 0:
                    graph.add_edge(u, v, score=float(self.scores[player]), rank=int(rank[player]))
        return graph

    def to_dict(self) -> dict[str, Any]:
        """Return everything in plain values, with the names of classes and the sentence."""
        graph, of_class = self.to_networkx(), self.batch.names.of_class
        players = self.to_frame().to_dict("records")
        if self.player_of_nodes is not None:
            players = [{"node": node, **values} for node, values in graph.nodes(data=True)]
        content = {
            **graph.graph,
            "predicted_class": self.predicted_class,
            "value": self.value_name,
            "output": self.output,
            "method": self.batch.method,
            "kind": self.batch.players.player_type,
            "players": players,
            "edges": [list(edge) for edge in graph.edges],
        }
        if self.batch.names.classes:
            classes = [name for name in ("explained_class", "rather_than", "predicted_class") if name in content]
            content |= {f"{name}_name": of_class(content[name]) for name in classes}
        return {**content, "sentence": self.in_words()}

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=1)

    # --- as a picture, a page, a file

    def plot(self, max_players: int = 40, words: bool = True) -> Figure:
        """Draw a picture.

        Args:
            max_players: Largest number of nodes to draw, the strongest first. Features have at most 25 bars.
            words: Write the sentence above it.

        Returns:
            A matplotlib figure with nodes around the target, coloured by score. Edge players are edges with colour and
            width, feature players are bars.
        """
        from dgl_lara.explanation.view import draw_explanation

        return draw_explanation(self, max_players, words)

    def to_html(self, max_players: int = 120, others: Sequence[Explanation] = ()) -> str:
        """Return a page to explore, with zoom, details and a slider that removes players.

        Args:
            max_players: Largest number of nodes to draw.
            others: Explanations of this target by other players. The page can be switched to them.

        Raises:
            InputError: If one of the others has another target.
        """
        from dgl_lara.explanation.plot.html import page
        from dgl_lara.explanation.view import view_of

        for other in others:
            if (other.task, other.target) != (self.task, self.target):
                own, got = (f"{one.task} {one.target}" for one in (self, other))
                raise InputError("explanation.other_target", target=own, got=got)
        return page([view_of(one, max_players)[1] for one in (self, *others)])

    def _repr_html_(self) -> str:
        from dgl_lara.explanation.plot.figure import inline

        names = dict(zip(self.players.tolist(), self.player_names(), strict=True))
        frame = self.internal_frame()
        table = frame.loc[frame.score.abs().nlargest(NOTEBOOK_ROWS).index].sort_values("rank")
        table["player"] = [names[player] for player in table.player]
        picture = inline(self.plot(), self.in_words())
        return picture + table.to_html(index=False, border=0, float_format="{:.3g}".format)

    def save(self, path: Path | str, others: Sequence[Explanation] = ()) -> None:
        """Write the explanation to a file.

        Args:
            path: A table (.csv, .json), a graph (.graphml), a picture (.png, .svg, .pdf) or a page (.html).
            others: For an .html page, as in `to_html`.

        Raises:
            InputError: If the file ends otherwise, or players have no place in a graph.
        """
        path = Path(path)
        if path.suffix not in ENDINGS:
            raise InputError("explanation.file_ending", endings=", ".join(ENDINGS), got=path.name)
        if path.suffix == ".graphml" and not self.has_positions:
            raise InputError("explanation.not_in_graph", players=self.game.player_set.name)
        with atomic_write(path) as temporary:
            if path.suffix == ".csv":
                self._file_frame().to_csv(temporary, index=False)
            elif path.suffix == ".json":
                temporary.write_text(self.to_json() + "\n")
            elif path.suffix == ".graphml":
                import networkx as nx

                nx.write_graphml_xml(self.to_networkx(), temporary)
            elif path.suffix == ".html":
                temporary.write_text(self.to_html(others=others))
            else:
                from dgl_lara.explanation.plot.figure import write

                write(self.plot(), temporary, path.suffix)

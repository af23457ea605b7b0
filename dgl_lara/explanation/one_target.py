"""`OneTarget`: the scores of one target as numbers: what f says without some players, a table, a graph."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import dgl
import pandas as pd
import torch
from torch import Tensor

from dgl_lara.blackbox.input_adapter import EDGE_ID
from dgl_lara.errors import InputError
from dgl_lara.explanation.score_table import ScoreTable, in_own_numbers
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players
from dgl_lara.game.task import Task
from dgl_lara.graphs.indexing import lookup_sorted

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, eq=False, repr=False)
class OneTarget:
    """How much each player contributed to the explained class of one target."""

    batch: ScoreTable

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

    # --- the model's answers

    @property
    def predicted_class(self) -> int:
        return int(self.game.explained_class[self.target])

    @property
    def output(self) -> float:
        """The explained value on the untouched graph."""
        return float(self.game.full_value_of(self.batch.players.targets, self.batch.query))

    def outputs(self, keep: Tensor) -> Tensor:
        """The model's own answers when only some players remain.

        Args:
            keep: (num_coalitions, num_players) bool, in the order of `players`.

        Returns:
            (num_coalitions,) the explained value.
        """
        return self.game.values_per_target(self.batch.players, keep, self.batch.query).flatten()

    def curves(self, counts: Sequence[int]) -> tuple[list[float], list[float]]:
        """The value with only the best `count` players, and with them removed, for each count; the target stays."""
        rank, always = self.batch.rank(include_target=False), self.batch.is_target
        best = torch.stack([rank < count for count in counts])
        return self.outputs(best | always).tolist(), self.outputs(~best | always).tolist()

    def player_classes(self) -> list[int] | None:
        """The class that the model predicts for each player; None where players are no targets of their own."""
        return self._classes_of(self.players) if self.batch.includes_target else None

    def _classes_of(self, nodes: Tensor) -> list[int] | None:
        """The class that the model predicts for each node; None where nodes are no targets, or have no class."""
        if (
            not self.task.has_distances
            or self.task.num_endpoints > 1
            or self.game.types is not None
            or self.game.value == "output"
        ):
            return None
        return self.game.explained_class[nodes].tolist()

    @property
    def nothing(self) -> float:
        """The explained value without any player."""
        if self.batch.players.player_type == "nodes":
            return float(self.batch.query.select(self.game.null_values.view(1, 1, -1)))
        return float(self.outputs(torch.zeros(1, len(self), dtype=torch.bool, device=self.scores.device)))

    # --- as a table, a graph

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
        if labels is not None and self.batch.players.player_type == "nodes":
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
        if EDGE_ID in graph.edata:
            graph.edata.pop(EDGE_ID)
        graph.ndata["hop"], graph.ndata["target"] = near.hop, self.task.is_target(near)
        if self.batch.players.player_type == "edges":
            place = self._player_of_edges(graph)
            scores = torch.cat([self.scores, self.scores.new_full((1,), torch.nan)])
            graph.edata["score"] = scores[place]  # the last one stands at -1
        elif self.batch.players.player_type == "nodes":
            graph.ndata["score"] = self.scores[self._player_of_nodes]
        return graph

    @cached_property
    def _player_of_nodes(self) -> Tensor:
        """Where nodes play, the place among `players` of each node of `nodes`; both ends of a link are one player."""
        node = self.task.player_id(self.batch.players.targets.expand(len(self.nodes)), self.nodes)
        return lookup_sorted(node, self.players)[0]

    @cached_property
    def _near(self) -> Players:
        """The nodes that can reach the target."""
        if self.batch.players.player_type == "nodes" and self.task.num_endpoints == 1:
            return self.batch.players
        return self.task.reach(self.game.graph, self.batch.players.targets, self.game.hops)

    def _player_of_edges(self, near: dgl.DGLGraph) -> Tensor:
        """The place among `players` of each edge of `subgraph`; -1: it does not play."""
        kind, (src, dst) = self.game.player_set, near.edges()
        if not isinstance(kind, EdgePlayers) or not len(self):
            return torch.full_like(src, -1)
        place, plays = lookup_sorted(kind.player_of_edges(self.nodes[src], self.nodes[dst]), self.players)
        return torch.where(plays, place, -1)

    @property
    def _asked(self) -> dict[str, int]:
        """The explained class, and the one that it is set against."""
        rival = self.batch.rather_than
        return {"explained_class": self.explained_class, **({} if rival is None else {"rather_than": int(rival)})}

    def rows(self) -> pd.DataFrame:
        """As `to_frame`, with what every row has in common: the target, what was asked of it, and how far the scores
        can be trusted."""
        known = {name: values.repeat(len(self)) for name, values in self.batch.trust().items()}
        return in_own_numbers(self.numbered_frame().assign(target=self.target, **self._asked, **known), self.batch.game)

    def to_networkx(self) -> nx.DiGraph:
        """The same for networkx: nodes under their original numbers, with hop and target; score and rank where they
        belong, on nodes or on edges (features have no place); of the graph source and confidence, if known."""
        import networkx as nx

        about = {"task": self.task.name, "target": self.target, **self._asked}
        known = {name: values.tolist()[0] for name, values in self.batch.trust().items()}
        graph = nx.DiGraph(**about, **{name: value for name, value in known.items() if value == value})  # no NaN
        near, nodes = self.subgraph(), self.nodes
        if self.batch.players.player_type == "nodes":
            frame = self.numbered_frame().set_index("player").loc[self.players[self._player_of_nodes].tolist()]
            frame.index, frame["target"] = nodes.tolist(), near.ndata["target"].cpu().numpy()
            graph.add_nodes_from(frame.sort_values("rank", kind="stable").to_dict("index").items())
        else:
            for node, hop in zip(nodes.tolist(), near.ndata["hop"].tolist(), strict=True):
                graph.add_node(node, hop=hop, target=self.task.has_distances and hop == 0)
        src, dst = near.edges()
        graph.add_edges_from(zip(nodes[src].tolist(), nodes[dst].tolist(), strict=True))
        if self.batch.players.player_type == "edges":
            rank = self.batch.rank() + 1
            of_edges = zip(nodes[src].tolist(), nodes[dst].tolist(), self._player_of_edges(near).tolist(), strict=True)
            for one, other, place in of_edges:
                if place >= 0:
                    graph.add_edge(one, other, score=float(self.scores[place]), rank=int(rank[place]))
        return graph

    def to_dict(self) -> dict[str, Any]:
        """Everything, in plain values."""
        graph, nodes_play = self.to_networkx(), self.batch.players.player_type == "nodes"
        rows = self.to_frame().to_dict("records")
        return {
            **graph.graph,
            "predicted_class": self.predicted_class,
            "value": self.game.value,
            "output": self.output,
            "method": self.batch.method,
            "kind": self.batch.players.player_type,
            "players": [{"node": node, **values} for node, values in graph.nodes(data=True)] if nodes_play else rows,
            "edges": [list(edge) for edge in graph.edges],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1)

    @property
    def nodes(self) -> Tensor:
        """(num_nodes,) everybody who can reach the target, rising: the players, where nodes play."""
        return self._near.player

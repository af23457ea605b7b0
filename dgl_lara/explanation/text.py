"""`InWords`: what target, class and players of one explanation are called, and the sentences that are made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from dgl_lara._util.tables import shortened
from dgl_lara.explanation.one_target import OneTarget
from dgl_lara.explanation.plot.scene import is_molecule
from dgl_lara.explanation.ratings import holds_ratings, how_they_come_in
from dgl_lara.explanation.score_table import feature_names
from dgl_lara.explanation.sentence import Sentence, SentenceInput, build_sentence, how_far, how_sure
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.feature_players import FeaturePlayers
from dgl_lara.game.player_index import in_neighborhood
from dgl_lara.graphs.indexing import lookup_sorted

LETTERS = 40  # of a name in a sentence


@dataclass(frozen=True, eq=False, repr=False)
class InWords(OneTarget):
    """One target with names for everybody, and why it is what f says in a sentence."""

    def in_words(self) -> str:
        """One sentence: who decided it, and what happens without them (evaluated, not estimated)."""
        return self._told.text

    def to_dict(self) -> dict[str, Any]:
        """Everything, in plain values, with the names of classes, where they have any, and the sentence."""
        known, of_class = super().to_dict(), self.batch.names.of_class
        asked = [name for name in ("explained_class", "rather_than", "predicted_class") if name in known]
        called = {f"{name}_name": of_class(known[name]) for name in asked} if self.batch.names.classes else {}
        return {**known, **called, "value": self.value_name, "sentence": self.in_words()}

    def numbered_frame(self) -> pd.DataFrame:
        """Nodes of a graph also under the names that sentence and picture have for them: O15 is no number in a file."""
        frame, game = super().numbered_frame(), self.batch.game
        if game is None or game.task.has_distances or self.batch.players.player_type != "nodes":
            return frame
        called = dict(zip(self.players.tolist(), self.player_names(), strict=True))
        rows = frame.drop(columns="label", errors="ignore")
        rows.insert(1, "label", [called[player] for player in rows.player])
        return rows

    @property
    def removed(self) -> list[str]:
        """Whom the sentence takes away as "the top 5": their names, best first; none where it says itself who."""
        names = self.player_names()
        return [names[place] for place in self._told.removed]

    @property
    def removed_in_words(self) -> str:
        """One line that names them, for those who want to check; empty where the sentence says itself who."""
        return f"removed together, to check the scores: {', '.join(self.removed)}" if self.removed else ""

    @cached_property
    def _told(self) -> Sentence:
        """The sentence, and the places (among `players`) of those it names and of those it removes."""
        rank, names = self.batch.rank(include_target=False), self.player_names(LETTERS)
        others = torch.argsort(rank)[: len(self) - int(self.batch.is_target.sum())]  # places, best first

        def without(places: Sequence[int]) -> float:
            keep = torch.ones(1, len(self), dtype=torch.bool, device=self.scores.device)
            keep[0, others[list(places)]] = False
            return float(self.outputs(keep))

        telling = build_sentence(
            SentenceInput(
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
        named, removed = (others[list(places)].tolist() for places in (telling.named, telling.removed))
        return replace(telling, named=named, removed=removed)

    @property
    def subject(self) -> str:
        """What is explained, at the beginning of a sentence."""
        if self.task.num_endpoints > 1:
            u, v = self.node_names(self.task.endpoints_of(self.target), LETTERS)
            return v[0].upper() + v[1:] if self._recommended_to else f"The link from {u} to {v}"
        if self.game.types is not None:
            return self.target_name[0].upper() + self.target_name[1:]
        return f"{self.task.name.capitalize()} {self.target_name}"

    def _whose(self, places: Tensor) -> list[str]:
        """Of players near a link: which end they are nearer to. Of others nothing."""
        if self.task.num_endpoints == 1 or self.batch.players.player_type != "nodes":
            return []
        ends = self.task.endpoints_of(self.target).to(self.players.device)
        near = in_neighborhood(self.game.graph, ends, self.game.hops)
        hop = torch.full((2, self.game.graph.num_nodes()), self.game.hops + 1, device=ends.device)
        hop[near.row, near.player] = near.hop
        first = hop[0, self.players[places]] <= hop[1, self.players[places]]
        names = self.node_names(ends, LETTERS)
        return [names[0] if nearer else names[1] for nearer in first.tolist()]

    @property
    def _recommended_to(self) -> str:
        """Whom the second end of a pair is recommended to; nobody where the graph holds no ratings."""
        return self.node_names(self.task.endpoints_of(self.target), LETTERS)[0] if holds_ratings(self.game) else ""

    def _who_are(self, places: Tensor) -> list[str]:
        """Of players near a recommendation: how they come in."""
        if not self._recommended_to or self.batch.players.player_type != "nodes":
            return []
        u, v = self.task.endpoints_of(self.target).tolist()
        return how_they_come_in(self.game, u, v, self.players[places])

    @property
    def _told_nodes(self) -> list[int]:
        """The places of those whom the sentence names or takes away: among the nodes where nodes play, else among the
        players."""
        told = sorted({*self._told.named, *self._told.removed})
        if self.batch.players.player_type != "nodes" or self.task.num_endpoints == 1:
            return told
        return lookup_sorted(self.players[told], self.nodes)[0].tolist()

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
        if self.task.num_endpoints > 1 and self.game.value == "output":
            return "score"
        return self.game.value if self.batch.rather_than is None else f"{self.game.value} difference"

    @property
    def target_name(self) -> str:
        """Its number; a node that has a name of its own: name and number."""
        if not self.task.has_distances:
            return str(self.target)
        return " and ".join(self.node_names(self.task.endpoints_of(self.target), LETTERS))

    def how_sure(self) -> str:
        """Where the scores come from and how far they can be trusted, in a sentence; empty where nobody knows."""
        if self.batch.corrected is None:
            return ""
        known, novelty = self.batch.confidence, self.batch.novelty
        confidence = None if known is None else float(known)
        said = how_sure(bool(self.batch.corrected), confidence, self.kind, self.task.has_distances)
        return said if novelty is None else f"{said} {how_far(float(novelty))}"

    def player_names(self, most: int | None = None) -> list[str]:
        """What the players are called: nodes by their numbers, in a graph by their places, after their atoms: N12;
        edges by their two ends; features by their names, or x3. `most`: letters of a name of one's own, else all."""
        kind = self.game.player_set
        if isinstance(kind, EdgePlayers):
            between = "→" if kind.directed else "–"
            ends = (self.node_names(end, most) for end in kind.endpoints(self.players))
            return [between.join(pair) for pair in zip(*ends, strict=True)]
        if isinstance(kind, FeaturePlayers):
            called = feature_names(self.game, self.batch.names)
            names = [f"x{player}" if called is None else str(called[player]) for player in self.players.tolist()]
            return names if most is None else [shortened(name, most) for name in names]
        names = self.node_names(self.players, most)
        if self.task.num_endpoints == 1:
            return names
        return ["both ends" if own else name for own, name in zip(self.batch.is_target.tolist(), names, strict=True)]

    def node_names(self, nodes: Tensor, most: int | None = None) -> list[str]:
        """What nodes are called. `most`: letters of a name of one's own, else all."""
        labels: Mapping[int, str] | Sequence[str] | None = self.batch.names.labels
        if labels is not None and most is not None:
            labels = {node: shortened(str(labels[node]), most) for node in nodes.tolist()}
        if self.game.types is not None:
            return self.game.types.node_labels(nodes, labels)
        known = nodes if self.game.parent is None else self.game.parent.node_ids[nodes]
        numbers = self.task.node_ids(self.game.graph, self.batch.players.targets, known)
        if labels is None:
            return list(map(str, numbers))
        form = "{}{}" if self._is_molecule else "{} ({})"
        return [form.format(labels[node], number) for node, number in zip(nodes.tolist(), numbers, strict=True)]

    @property
    def kind(self) -> str:
        """What a player is called in words."""
        if self.batch.players.player_type == "nodes":
            return self.task.player_noun(self._is_molecule)
        return "bond" if self._is_molecule and self.batch.players.player_type == "edges" else self.game.player_set.noun

    @property
    def _is_molecule(self) -> bool:
        labels = self.batch.names.labels
        return (
            not self.task.has_distances
            and labels is not None
            and is_molecule(labels[node] for node in self.nodes.tolist())
        )

"""The game on a graph that is never whole: what is known of all of it, and games on what is cut out around targets.

A cut has the nodes that f and g need for its targets, and is told what else counts (`CutFrom`), so that a game on it
gives its targets the numbers of the whole graph. f's own answer is made once, batch after batch, and lies on disk:
layer by layer where the model can be asked so (`Layered`), else on the surroundings of each batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara._util.memory_budget import Budget
from dgl_lara._util.progress import status
from dgl_lara.blackbox.call import Model, call_model, predict_and_validate
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.blackbox.identity import weights_hash
from dgl_lara.blackbox.layerwise import LayerwiseModel
from dgl_lara.errors import InputError
from dgl_lara.game.caller import NUM_CHECKED_TARGETS
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.context import GameContext
from dgl_lara.game.game import ROUNDING, Game, ModelOutputs, ParentGraph, check_targets
from dgl_lara.game.receptive_field import evenly_spaced
from dgl_lara.game.removal import null_prediction
from dgl_lara.game.tasks import NODE
from dgl_lara.game.values import to_values
from dgl_lara.graphs.extract import extract_subgraph
from dgl_lara.graphs.mmap import GraphView
from dgl_lara.graphs.row_store import Make, RowStore
from dgl_lara.graphs.subgraph import SharedSubgraph

NOT_WHOLE = "the graph lies in parts and is never loaded whole, and {} needs all of it"
ROWS = 1_000_000  # of an array on disk that are looked at together
NODES_A_BATCH = 262_144
BYTES_A_NODE = 24 * 2**10  # of a batch: it and its in-neighbours, some ten times as many


@dataclass(frozen=True, eq=False)
class LocalGame:
    """What is cut out around some targets."""

    game: Game
    nodes: Tensor  # (num_local,) which nodes of the graph its nodes are, rising
    targets: Tensor  # (num_targets,) the places of the targets among them


class PartitionedGame:
    """As far as training and explaining ask for it, what a `Game` is; targets are known by the numbers of the graph."""

    types = None
    parent = None
    edge_inputs = None

    def __init__(
        self, f: Model, view: GraphView, hops: int, value: str, store: RowStore | None = None, memory: int | None = None
    ) -> None:
        """`store`: where what is too large for memory lies; needed from the moment that f's answer is."""
        self.f, self.view, self.hops, self.asked_value, self.store = f, view, hops, value, store
        self.task, self.budget = NODE, Budget.of(memory)
        self.num_targets = self.num_players = view.num_nodes
        with status("asking the model about a few nodes"):
            probe = self._probe()
        # what holds of these nodes holds of all
        self.value, self.num_classes, self.context_hops = probe.value, probe.num_classes, probe.context_hops
        nowhere = dgl.graph(([], []), num_nodes=0)  # its surroundings can be half the graph: nothing keeps them
        self.player_set = probe.player_spec.build(
            GameContext(self.task, nowhere, probe.features.new_empty(0, view.columns), hops)
        )
        self.caller, self.player_spec, self._spread = probe.caller, probe.player_spec, probe.caller.to_logits
        self.null_logits, self.null_values = probe.null_logits, probe.null_values

    def _probe(self) -> Game:
        """The game on what lies around a few nodes: f is checked there, and how much context it needs."""
        view, own = self.view, torch.arange(self.view.all_loops)
        some = evenly_spaced(view.num_nodes, NUM_CHECKED_TARGETS, torch.device("cpu"))
        here = extract_subgraph(view, some, self.hops + 1)
        features = view.features(here.nodes)
        answer = predict_and_validate(self.f, here.graph, features, len(here.nodes), self.task.name)

        def f(graph: dgl.DGLGraph, x: Tensor) -> Tensor:
            said = call_model(self.f, graph, x, graph.num_nodes(), self.task.name)
            return torch.cat([-said, said], dim=1) / 2 if said.shape[1] == 1 and self.asked_value != "output" else said

        with eval_mode(self.f):
            nothing = null_prediction(f, dgl.graph((own, own), num_nodes=1), features.new_zeros(1, view.columns))
        whole = ParentGraph(here.nodes, view.in_degrees(here.nodes))
        known = ModelOutputs(answer, nothing, valid_targets=here.target_rows.sort().values)
        where = (self.f, here.graph, features, self.task, self.hops, self.asked_value)
        return Game.create(*where, memory=self.budget.memory, known=known, parent=whole)

    def __getattr__(self, name: str) -> Any:
        """Whatever else a `Game` has needs the whole graph."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise InputError(NOT_WHOLE.format("this"))

    # --- f's answer

    @property
    def model_key(self) -> str:
        return weights_hash(self.f)

    @cached_property
    def full_outputs(self) -> Tensor:
        """(num_nodes, columns) mapped: what f says of the untouched graph."""
        assert self.store is not None, "the answer needs a place on disk"
        with eval_mode(self.f):
            if isinstance(self.f, LayerwiseModel) and self.f.num_hops == self.hops:
                return self._layer_by_layer(self.f, self.store)
            return self._rows_of_answer(self.store, self._in_surroundings, self.batch_size)

    def full_outputs_of(self, nodes: Tensor) -> Tensor:
        return self.full_outputs[nodes]

    def _rows_of_answer(self, store: RowStore, make: Make, size: int) -> Tensor:
        return store.rows("answer", self.model_key, self.num_targets, make, size, "asking the model about every node")

    @property
    def batch_size(self) -> int:
        """Nodes that a pass over everything takes at a time."""
        return max(64, min(NODES_A_BATCH, self.budget.memory // BYTES_A_NODE))

    @property
    def nodes_per_call(self) -> int:
        return self.budget.nodes_per_call(self.view.columns)

    def _in_surroundings(self, nodes: Tensor) -> Tensor:
        """In halves, where the surroundings of all of them are too many for one call."""
        here = extract_subgraph(self.view, nodes, self.context_hops)
        if len(here.nodes) > self.nodes_per_call and len(nodes) > 1:
            return torch.cat([self._in_surroundings(half) for half in nodes.tensor_split(2)])
        features = self.view.features(here.nodes)
        return call_model(self.f, here.graph, features, len(here.nodes), self.task.name)[here.target_rows]

    def _layer_by_layer(self, f: LayerwiseModel, store: RowStore) -> Tensor:
        """A layer's cut has one hop, and the context that f needs beyond its layers."""
        states: list[Tensor] = []
        hops = 1 + self.context_hops - self.hops
        if store.is_whole("answer", self.model_key, self.num_targets):
            return self._rows_of_answer(store, self._in_surroundings, self.batch_size)

        def state_after(number: int, nodes: Tensor) -> Tensor:
            here = extract_subgraph(self.view, nodes, hops, inner=hops == 1 and not self.view.has_loops)
            before = self.view.features(here.nodes) if number == 0 else states[-1][here.nodes]
            return f.layer(number, here.graph, before)[here.target_rows]

        def logits_of(nodes: Tensor) -> Tensor:
            last = state_after(self.hops - 1, nodes)
            return f.read_out([*(state[nodes] for state in states), last])

        names = [f"f{number}" for number in range(self.hops - 1)]
        with store.passing(*names):
            for number, name in enumerate(names):
                label = f"the model's layer {number + 1}"
                make = lambda nodes, number=number: state_after(number, nodes)  # noqa: E731
                states.append(store.rows(name, self.model_key, self.num_targets, make, self.batch_size, label))
            return self._rows_of_answer(store, logits_of, self.batch_size)

    @cached_property
    def value_scale(self) -> float:
        """As `Game.value_scale`."""
        total = 0.0
        for rows in self.full_outputs.split(ROWS):
            total += float((to_values(self._spread(rows), self.value) - self.null_values).double().square().sum())
        return max((total / (self.num_targets * self.num_classes)) ** 0.5, 1e-6)

    @cached_property
    def min_resolvable(self) -> float:
        """As `Game.min_resolvable`."""
        largest = (to_values(self._spread(rows), self.value).abs().max() for rows in self.full_outputs.split(ROWS))
        return ROUNDING * max(1.0, *map(float, largest))

    def explained_class(self, targets: Tensor) -> Tensor:
        logits = self._spread(self.full_outputs_of(targets))
        return torch.zeros_like(targets) if self.asked_value == "output" else logits.argmax(1)

    # --- around targets

    def near(self, targets: Tensor, hops: int, inner: bool = False, f_is_asked: bool = True) -> LocalGame:
        """`inner`: as for `cut`. `f_is_asked`: otherwise nothing but scores is wanted: there are no features, and f's
        logits are those of the targets only."""
        return self.game_on(self.cut(targets, hops, inner), f_is_asked)

    def alone(self, nodes: Tensor) -> Game:
        """The game on these nodes, rising, with nothing around them: for what g sees of each."""
        return self.near(nodes, 0, inner=not self.view.has_loops).game

    def cut(self, targets: Tensor, hops: int, inner: bool = False) -> SharedSubgraph:
        return extract_subgraph(self.view, targets, hops, inner)

    def game_on(self, here: SharedSubgraph, f_is_asked: bool = True) -> LocalGame:
        whole = ParentGraph(here.nodes, self.view.in_degrees(here.nodes))
        if f_is_asked:
            features, answer = self.view.features(here.nodes), self.full_outputs_of(here.nodes)
        else:
            features, answer = torch.empty(len(here.nodes), 0), torch.zeros(len(here.nodes), self.full_outputs.shape[1])
            answer[here.target_rows] = self.full_outputs_of(here.targets)
        context = GameContext(self.task, here.graph, features, self.hops)
        outputs = ModelOutputs(answer, self.null_logits, self.context_hops)
        game = Game(self.caller, context, self.player_spec, self.asked_value, outputs, whole)
        return LocalGame(game, here.nodes, here.target_rows)

    def check_targets(self, targets: Tensor) -> None:
        check_targets(targets, self.num_targets, self.task)

    device = torch.device("cpu")

    def user_ids(self, nodes: Tensor) -> tuple[None, Tensor]:
        """Return no types and the nodes themselves, since users know them by the same ids."""
        return None, nodes

    def max_players(self, targets: Tensor) -> int:
        """Return the number of all nodes, since players are not known without cutting out the targets."""
        return self.num_players

    def query(self, targets: Tensor) -> ClassQuery:
        """Return the question about the predicted class of each target."""
        return ClassQuery(self.explained_class(targets))

    @property
    def cost_bound(self) -> Work:
        """As `Game.cost_bound`, where it is looked at."""
        return Work(self)


@dataclass(frozen=True)
class Work:
    game: PartitionedGame

    def __getitem__(self, targets: Tensor) -> Tensor:
        near = self.game.near(targets, self.game.hops, inner=True, f_is_asked=False)
        return near.game.cost_bound[near.targets]

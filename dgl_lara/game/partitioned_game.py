"""`PartitionedGame`: the game on a graph that is never loaded as a whole.

A subgraph has the nodes that f and g need for its targets. With the ids and degrees of the full graph (`ParentGraph`) a
game on it has the numbers of the full graph. Outputs of f are computed once in batches and lie on disk. Models that are
called layer by layer (`LayerwiseModel`) need one hop per batch, others the receptive field.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from dgl_lara._util.memory_budget import Budget
from dgl_lara._util.progress import status
from dgl_lara.blackbox.call import LayerwiseModel, Model, call_model, predict_and_validate
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.blackbox.identity import weights_hash
from dgl_lara.errors import InputError
from dgl_lara.game.caller import NUM_CHECKED_TARGETS, ModelCaller
from dgl_lara.game.game import ROUNDING, Game, ModelOutputs, ParentGraph, check_targets
from dgl_lara.game.index import BANZHAF, Index
from dgl_lara.game.player_set import GameContext
from dgl_lara.game.receptive_field import evenly_spaced
from dgl_lara.game.removal import null_prediction
from dgl_lara.game.tasks import NODE
from dgl_lara.game.values import ClassQuery, to_values
from dgl_lara.graphs.graph import graph_from_edges

if TYPE_CHECKING:
    from dgl_lara.graphs.row_store import Make, RowStore
    from dgl_lara.graphs.source import GraphSource
    from dgl_lara.graphs.subgraph import SharedSubgraph

ROWS_AT_ONCE = 1_000_000  # of an array on disk
MAX_BATCH_NODES = 262_144
BYTES_PER_NODE = 24 * 2**10  # of a batch, with its in-neighbours, about ten times as many


@dataclass(frozen=True, eq=False)
class LocalGame:
    """A game on the subgraph around some targets.

    Attributes:
        game: The game.
        nodes: (num_local,) ids of its nodes in the full graph, ascending.
        targets: (num_targets,) indices of the targets in the subgraph.
    """

    game: Game
    nodes: Tensor
    targets: Tensor


class PartitionedGame:
    """The part of `Game` that training and explaining need. Targets have ids of the full graph.

    Args:
        f: The model.
        source: The graph.
        hops: K.
        value: What is explained.
        store: Folder for arrays with one row per node. It is needed for the outputs of f.
        memory: Bytes that calls and batches keep to.
    """

    index: ClassVar[Index] = BANZHAF

    device = torch.device("cpu")
    types = None
    parent = None
    edge_inputs = None

    def __init__(
        self,
        f: Model,
        source: GraphSource,
        hops: int,
        value: str,
        store: RowStore | None = None,
        memory: int | None = None,
    ) -> None:
        self.f, self.source, self.hops, self.requested_value, self.store = f, source, hops, value, store
        self.task, self.budget = NODE, Budget.of(memory)
        self.num_targets = self.num_players = source.num_nodes
        with status("asking the model about a few nodes"):
            probe = self._probe()
        # valid for all nodes
        self.value, self.num_classes, self.context_hops = probe.value, probe.num_classes, probe.context_hops
        no_edges = torch.empty(0, dtype=torch.long)
        nowhere = graph_from_edges(no_edges, no_edges, 0)  # the probe can be half the graph and is not kept
        self.player_set = probe.player_spec.build(
            GameContext(self.task, nowhere, probe.features.new_empty(0, source.columns), hops)
        )
        self.caller, self.player_spec, self._spread = probe.caller, probe.player_spec, probe.caller.to_logits
        self.null_logits, self.null_values = probe.null_logits, probe.null_values

    def _probe(self) -> Game:
        """Return the game around a few nodes, which validates f and finds the context hops."""
        source, own = self.source, torch.arange(self.source.all_loops)
        probed = evenly_spaced(source.num_nodes, NUM_CHECKED_TARGETS, torch.device("cpu"))
        subgraph = source.subgraph(probed, self.hops + 1)
        features = source.features(subgraph.nodes)
        outputs = predict_and_validate(self.f, subgraph.graph, features, len(subgraph.nodes), self.task.name)

        caller = ModelCaller(self.f, self.task, self.budget, source.columns)
        caller.expect(outputs, self.requested_value)
        with eval_mode(self.f):
            null = null_prediction(caller, graph_from_edges(own, own, 1), features.new_zeros(1, source.columns))
        parent = ParentGraph(subgraph.nodes, source.in_degrees(subgraph.nodes))
        known = ModelOutputs(outputs, null, valid_targets=subgraph.target_rows.sort().values)
        where = (self.f, subgraph.graph, features, self.task, self.hops, self.requested_value)
        return Game.create(*where, memory=self.budget.memory, known=known, parent=parent)

    def __getattr__(self, name: str) -> Any:
        """Raise an error for everything else, which needs the full graph."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise InputError("partition.full_graph")

    # --- f's answer

    @property
    def model_key(self) -> str:
        return weights_hash(self.f)

    @cached_property
    def full_outputs(self) -> Tensor:
        """Return (num_nodes, num_outputs) the outputs of f on the full graph, mapped."""
        assert self.store is not None, "outputs need a folder"
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
        """Return the nodes of one batch of a pass over all nodes."""
        return max(64, min(MAX_BATCH_NODES, self.budget.memory // BYTES_PER_NODE))

    @property
    def nodes_per_call(self) -> int:
        return self.budget.nodes_per_call(self.source.columns)

    def _in_surroundings(self, nodes: Tensor) -> Tensor:
        """Return outputs of nodes, in halves if their receptive field is too large for one call."""
        subgraph = self.source.subgraph(nodes, self.context_hops)
        if len(subgraph.nodes) > self.nodes_per_call and len(nodes) > 1:
            return torch.cat([self._in_surroundings(half) for half in nodes.tensor_split(2)])
        features = self.source.features(subgraph.nodes)
        return call_model(self.f, subgraph.graph, features, len(subgraph.nodes), self.task.name)[subgraph.target_rows]

    def _layer_by_layer(self, f: LayerwiseModel, store: RowStore) -> Tensor:
        """Return outputs with one hop per layer, and the context that f needs beyond its layers."""
        states: list[Tensor] = []
        hops = 1 + self.context_hops - self.hops
        if store.is_whole("answer", self.model_key, self.num_targets):
            return self._rows_of_answer(store, self._in_surroundings, self.batch_size)

        def state_after(number: int, nodes: Tensor) -> Tensor:
            subgraph = self.source.subgraph(nodes, hops, inner=hops == 1 and not self.source.has_loops)
            inputs = self.source.features(subgraph.nodes) if number == 0 else states[-1][subgraph.nodes]
            return f.layer(number, subgraph.graph, inputs)[subgraph.target_rows]

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
        """Return `Game.value_scale`."""
        total = 0.0
        for rows in self.full_outputs.split(ROWS_AT_ONCE):
            total += float((to_values(self._spread(rows), self.value) - self.null_values).double().square().sum())
        return max((total / (self.num_targets * self.num_classes)) ** 0.5, 1e-6)

    @cached_property
    def min_resolvable(self) -> float:
        """Return `Game.min_resolvable`."""
        largest = (
            to_values(self._spread(rows), self.value).abs().max() for rows in self.full_outputs.split(ROWS_AT_ONCE)
        )
        return ROUNDING * max(1.0, *map(float, largest))

    def explained_class(self, targets: Tensor) -> Tensor:
        logits = self._spread(self.full_outputs_of(targets))
        return torch.zeros_like(targets) if self.requested_value == "output" else logits.argmax(1)

    # --- around targets

    def near(self, targets: Tensor, hops: int, inner: bool = False, calls_f: bool = True) -> LocalGame:
        """Return a game around targets.

        Args:
            targets: Ids of nodes.
            hops: Hops around them.
            inner: Leave out edges into the outermost nodes.
            calls_f: f will be called. Otherwise there are no features, and only the targets have logits.
        """
        return self.game_on(self.source.subgraph(targets, hops, inner), calls_f)

    def alone(self, nodes: Tensor) -> Game:
        """Return the game on these nodes, ascending, without anything around them."""
        return self.near(nodes, 0, inner=not self.source.has_loops).game

    def game_on(self, subgraph: SharedSubgraph, calls_f: bool = True) -> LocalGame:
        parent = ParentGraph(subgraph.nodes, self.source.in_degrees(subgraph.nodes))
        if calls_f:
            features, outputs = self.source.features(subgraph.nodes), self.full_outputs_of(subgraph.nodes)
        else:
            features = torch.empty(len(subgraph.nodes), 0)
            outputs = torch.zeros(len(subgraph.nodes), self.full_outputs.shape[1])
            outputs[subgraph.target_rows] = self.full_outputs_of(subgraph.targets)
        context = GameContext(self.task, subgraph.graph, features, self.hops)
        known = ModelOutputs(outputs, self.null_logits, self.context_hops)
        game = Game(self.caller, context, self.player_spec, self.requested_value, known, parent)
        return LocalGame(game, subgraph.nodes, subgraph.target_rows)

    def user_ids(self, nodes: Tensor) -> tuple[None, Tensor]:
        """Return no types, and the ids of nodes, which are those of users."""
        return None, nodes

    def check_targets(self, targets: Tensor) -> None:
        check_targets(targets, self.num_targets, self.task)

    def max_players(self, targets: Tensor) -> int:
        """Return the number of all nodes, because players are not known without a subgraph."""
        return self.num_players

    def query(self, targets: Tensor) -> ClassQuery:
        """Return the question about the predicted class of each target."""
        return ClassQuery(self.explained_class(targets))

    @property
    def cost_bound(self) -> _CostBound:
        """Return a bound that is computed for the targets it is indexed with."""
        return _CostBound(self)


@dataclass(frozen=True)
class _CostBound:
    """Bounds on the players of targets, by index."""

    game: PartitionedGame

    def __getitem__(self, targets: Tensor) -> Tensor:
        near = self.game.near(targets, self.game.hops, inner=True, calls_f=False)
        return near.game.cost_bound[near.targets]

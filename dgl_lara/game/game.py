"""`Game`: f, a graph and players, and the value of any coalition of players."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara._util.memory_budget import Budget, slices_within_budget
from dgl_lara._util.progress import Progress
from dgl_lara.blackbox.edge_data import detach_edge_data, without_edge_data
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.blackbox.input_adapter import input_adapter
from dgl_lara.errors import InputError
from dgl_lara.game.caller import ModelCaller
from dgl_lara.game.index import BANZHAF, Index, as_index
from dgl_lara.game.player_set import GameContext
from dgl_lara.game.player_specs import PlayerSpec, as_players
from dgl_lara.game.receptive_field import MAX_HOPS
from dgl_lara.game.removal import strip_data
from dgl_lara.game.tasks import as_task
from dgl_lara.game.values import ClassQuery, checked_value, to_values
from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph

if TYPE_CHECKING:
    from dgl_lara.blackbox.call import Model
    from dgl_lara.blackbox.hetero_index import HeteroIndex
    from dgl_lara.game.player_index import Players
    from dgl_lara.game.player_set import Grouping
    from dgl_lara.game.task import Task
    from dgl_lara.graphs.graph import Graph

ROUNDING = 1e-6  # relative error of float32 values


@dataclass(frozen=True, eq=False)
class ParentGraph:
    """The full graph that a game's graph was extracted from.

    Attributes:
        node_ids: (num_nodes,) ids of the nodes in the full graph, ascending.
        in_degrees: (num_nodes,) in the full graph.
    """

    node_ids: Tensor
    in_degrees: Tensor


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """Results of f on the full graph. None means not known yet.

    Attributes:
        full: (num_targets, num_outputs) outputs of f.
        null: (num_classes,) logits of a target without any player.
        context_hops: Hops around a target on which f returns its own predictions, K or K + 1.
        valid_targets: Targets whose rows of `full` are valid. None means all.
    """

    full: Tensor | None = None
    null: Tensor | None = None
    context_hops: int | None = None
    valid_targets: Tensor | None = None


NOTHING_KNOWN = ModelOutputs()


class Game:
    """f on a graph as a cooperative game.

    The explained class is the one that f predicts on the full graph. The value is its raw logit, its probability, its
    log-odds or an output (see `values.py`).

    Args:
        caller: Calls f and counts the calls.
        context: Task, graph, features and K.
        player_spec: The players.
        value: What is explained.
        outputs: Results of f on the full graph.
        parent: The full graph, if the game's graph was extracted from it.
        index: The law of coalitions, and what a score is the mean of.
    """

    def __init__(
        self,
        caller: ModelCaller,
        context: GameContext,
        player_spec: PlayerSpec,
        value: str,
        outputs: ModelOutputs,
        parent: ParentGraph | None = None,
        index: str | Index = BANZHAF,
    ) -> None:
        assert outputs.full is not None and outputs.null is not None and outputs.context_hops is not None
        self.caller, self.player_spec, self.parent, self.index = caller, player_spec, parent, as_index(index)
        self.task, self.graph, self.features, self.hops = context.task, context.graph, context.features, context.hops
        self.player_set = player_spec.build(context)
        self.value = "log-odds" if caller.is_single_logit and value == "logit" else value
        self.full_outputs, self.null_logits = outputs.full, outputs.null  # (num_targets, num_outputs), (num_classes,)
        self.context_hops, self.valid_targets = outputs.context_hops, outputs.valid_targets
        self.full_logits = caller.to_logits(outputs.full)  # (num_targets, num_classes)
        self.full_values = to_values(self.full_logits, self.value)  # (num_targets, num_classes)
        self.null_values = to_values(self.null_logits, self.value)  # (num_classes,)
        # an output is no class: the first is explained, unless the query names another
        best = self.full_logits.argmax(dim=1)
        self.explained_class = torch.zeros_like(best) if value == "output" else best  # (num_targets,)

    @staticmethod
    def create(
        f: Model,
        graph: Graph,
        features: Tensor,
        task: str | Task = "node",
        hops: int = 1,
        value: str = "logit",
        *,
        players: str | PlayerSpec = "nodes",
        memory: int | None = None,
        uses_edge_data: bool | None = None,
        known: ModelOutputs = NOTHING_KNOWN,
        parent: ParentGraph | None = None,
        index: str | Index = BANZHAF,
    ) -> Game:
        """Return the game, with f called for whatever is not known of it.

        Args:
            f: Model that is called as f(graph, features), for links also with both nodes of every pair.
            graph: Graph that the game is played on.
            features: Features of its nodes.
            task: What is a target.
            hops: K, the players of a node are its K-hop in-neighbourhood.
            value: What is explained.
            players: What is a player.
            memory: Bytes that calls of f and chunks of targets keep to.
            uses_edge_data: Whether f uses edge data. None means f is called to find out.
            known: Results of f that are known already.
            parent: The full graph, if `graph` was extracted from it.
            index: The law of coalitions: "banzhaf", "shapley" or "keep-P".
        """
        checked_value(value)
        if not isinstance(hops, int) or not 0 <= hops <= MAX_HOPS:
            raise InputError("hops.range", most=MAX_HOPS, got=hops)
        task = as_task(task)
        f, graph = without_edge_data(f, graph) if uses_edge_data is False else detach_edge_data(f, graph)
        graph = strip_data(graph)
        columns = input_adapter(f).num_feature_columns(features)
        caller = ModelCaller(f, task, Budget.of(memory, features.device), columns)
        endpoints = task.endpoint_indices(_all_targets(task, graph, features.device))
        outputs = caller.full_outputs(graph, features, endpoints) if known.full is None else known.full
        if uses_edge_data is None:
            graph = caller.drop_edge_data(graph, features, endpoints, outputs)
        caller.expect(outputs, value)
        null = caller.null_logits(graph, features) if known.null is None else known.null
        context_hops = known.context_hops
        if context_hops is None:
            valid = known.valid_targets
            targets = torch.arange(task.num_targets(graph), device=features.device) if valid is None else valid
            context_hops = task.context_hops(caller, graph, features, hops, caller.to_logits(outputs), targets)
        known = replace(known, full=outputs, null=null, context_hops=context_hops)
        return Game(caller, GameContext(task, graph, features, hops), as_players(players), value, known, parent, index)

    # --- the model

    @property
    def f(self) -> Model:
        return self.caller.f

    @property
    def budget(self) -> Budget:
        return self.caller.budget

    @property
    def nodes_per_call(self) -> int:
        return self.caller.nodes_per_call

    @property
    def types(self) -> HeteroIndex | None:
        """Return the index of node and edge types, or None if the graph has one type."""
        return input_adapter(self.f).types

    @cached_property
    def input_blocks(self) -> list[Tensor]:
        """Return (num_nodes, columns) each: the inputs of g that do not depend on f."""
        return input_adapter(self.f).node_blocks(self.graph, self.features)

    @cached_property
    def edge_inputs(self) -> Tensor | None:
        """Return (num_edges, columns) the edge data of the full graph as inputs of g, or None if f uses none."""
        return input_adapter(self.f).edge_columns()

    # --- sizes

    @cached_property
    def in_degrees(self) -> Tensor:
        """Return (num_nodes,) the in-degrees in the full graph."""
        return self.parent.in_degrees if self.parent else self.graph.in_degrees()

    @property
    def device(self) -> torch.device:
        return self.features.device

    @property
    def num_targets(self) -> int:
        return self.task.num_targets(self.graph)

    @property
    def num_classes(self) -> int:
        return self.full_logits.shape[1]

    @property
    def shares_masks(self) -> bool:
        """Return whether one mask over the full graph is a coalition for every target."""
        return self.task.has_distances and self.player_set.supports_shared_masks

    @property
    def num_players(self) -> int:
        """Return the number of players in the full graph: the columns of a shared mask."""
        return self.player_set.count

    @cached_property
    def cost_bound(self) -> Tensor:
        """Return (num_targets,) a bound on the players of each target and on the cost of explaining it."""
        return self.player_set.cost_bound()

    @cached_property
    def value_scale(self) -> float:
        """Return the root mean square of the values that all players contribute together."""
        nothing = self.player_set.empty_values(self)
        return float((self.full_values[: self.num_targets] - nothing).square().mean().sqrt().clamp(min=1e-6))

    @cached_property
    def min_resolvable(self) -> float:
        """Return the smallest difference of values that is not rounding."""
        return ROUNDING * max(1.0, float(self.full_values[: self.num_targets].abs().max()))

    # --- values on the full graph

    def query(self, targets: Tensor) -> ClassQuery:
        """Return the question about the explained class of each target."""
        return ClassQuery(self.explained_class[targets])

    def full_value_of(self, targets: Tensor, query: ClassQuery) -> Tensor:
        """(num_targets,) the explained value on the untouched graph."""
        return query.select(self.full_values[targets].unsqueeze(0))[0]

    @cached_property
    def empty_values(self) -> Tensor:
        """(num_targets, num_classes) Return the values without any player, for shared masks or nodes as players."""
        return self.player_set.empty_values(self).expand(self.num_targets, self.num_classes)

    def empty_batch_values(self, batch: SharedSubgraph | EgoBatch) -> Tensor:
        """(num_targets, num_classes) Return the values of a batch without any player."""
        if self.player_set.are_nodes or self.shares_masks:
            return self.empty_values[batch.targets]
        nothing = torch.zeros(1, len(self.player_set.ids(batch)), dtype=torch.bool, device=batch.targets.device)
        return to_values(self.batch_logits(batch, nothing), self.value)[0]

    def empty_values_of(self, players: Players, query: ClassQuery) -> Tensor:
        """(num_targets,) Return the explained values without any player."""
        if self.player_set.are_nodes or self.shares_masks:
            return query.select(self.empty_values[players.targets].unsqueeze(0))[0]
        nothing = torch.zeros(1, len(players.player), dtype=torch.bool, device=players.player.device)
        return self.values_per_target(players, nothing, query)[0]

    def node_features(self, node: int) -> Tensor:
        """(columns,) of one node; on a graph of several types those of its type."""
        return input_adapter(self.f).features_of(node, self.features)

    def null_value(self, players: Players, query: ClassQuery) -> float:
        """Return the explained value of one target without any player."""
        if self.player_set.are_nodes:  # nothing is left of the target
            return float(query.select(self.null_values.view(1, 1, -1)))
        nothing = torch.zeros(1, len(players.player), dtype=torch.bool, device=players.player.device)
        return float(self.values_per_target(players, nothing, query))

    def user_ids(self, nodes: Tensor) -> tuple[list[str] | None, Tensor]:
        """Return the type of each node (None if the graph has one type) and the number by which users know it."""
        if self.types is not None:
            return self.types.locate(nodes)
        return None, nodes if self.parent is None else self.parent.node_ids[nodes]

    @property
    def type_names(self) -> tuple[str, ...]:
        """Names of the node types, or nothing if the graph has one type."""
        return () if self.types is None else self.types.node_types

    def groups_by_type(self, players: Players) -> Grouping | None:
        """Return players grouped by node type or relation, or None if the graph has one type."""
        return None if self.types is None else self.player_set.groups_by_type(players, self.types)

    def labels_of_types(self, labels: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the labels of all nodes from those of some types, or raise InputError."""
        if self.types is None:
            raise InputError("labels.one_type")
        for name, names in labels.items():
            if name not in self.type_names:
                raise InputError("labels.unknown_type", got=name, types=", ".join(self.type_names))
            if len(names) != (count := self.types.num_nodes(name)):
                raise InputError("names.count", name="labels", each=name, count=count, got=len(names))
        return self.types.node_names(labels)

    @property
    def node_classes(self) -> Tensor | None:
        """(num_nodes,) predicted class of each node, or None if the model gives single nodes no class."""
        if not self.task.targets_are_nodes or self.types is not None or self.value == "output":
            return None
        return self.explained_class

    # --- targets and their players

    def check_targets(self, targets: Tensor) -> None:
        """Raise an error if targets are missing or out of range."""
        check_targets(targets, self.num_targets, self.task)

    def players(self, targets: Tensor) -> Players:
        """Return N(v): the K-hop in-neighbourhood of a node with the node itself, or all nodes of a graph."""
        return self.player_set.players(targets)

    @cached_property
    def endpoint_game(self) -> Game:
        """Return the game whose targets are the nodes that a target consists of, for scores only."""
        task = self.task.endpoint_task
        if task is self.task:
            return self
        game = copy.copy(self)
        game.task = task
        game.player_set = self.player_spec.build(GameContext(task, self.graph, self.features, self.hops))
        return game

    def max_players(self, targets: Tensor) -> int:
        """Return a bound on the number of players of any of these targets."""
        return max(1, int(self.cost_bound[targets].max().clamp(max=self.num_players)))

    def chunks(self, targets: Tensor) -> list[slice]:
        """Return slices of the targets that keep to the memory. A target that exceeds it is alone."""
        if len(targets) == 1:
            return [slice(0, 1)]
        return slices_within_budget(self.cost_bound[targets], self.budget.walks_per_chunk)

    # --- coalitions

    @cached_property
    def full_batch(self) -> SharedSubgraph:
        """Return all targets on the full graph."""
        return _all_targets(self.task, self.graph, self.features.device)

    def shared_values(self, keep: Tensor) -> Tensor:
        """Return (num_masks, num_targets, num_classes) the values of all targets under masks over all players.

        A uniform mask is a uniform coalition of every target's players. Nodes that are no players of a target are
        masked too, which changes f only through the degrees of boundary nodes.
        """
        return to_values(self.batch_logits(self.full_batch, keep), self.value)

    def batch_logits(self, batch: SharedSubgraph | EgoBatch, keep: Tensor) -> Tensor:
        """Return (num_masks, num_targets, num_classes) the logits of a batch under masks over its players."""
        num_nodes = batch.graph.num_nodes()
        masks = self._fit_calls(self.player_set.expand_mask(batch, keep), num_nodes)
        features = self.features if batch.graph is self.graph else self.features[batch.nodes]
        logits = torch.cat(list(self._evaluate(batch, features, masks)))
        self.caller.num_evaluations += logits.shape[0] * logits.shape[1]
        # all rows of the full graph are targets, in order: no copy is made
        is_full = batch is vars(self).get("full_batch") and logits.shape[1] == len(batch.target_rows)
        return logits if is_full else logits[:, batch.target_rows]

    def values_per_target(self, players: Players, keep: Tensor, query: ClassQuery | None = None) -> Tensor:
        """Return (num_masks, num_targets) the value of each target under coalitions of its own.

        Args:
            players: Players of the targets.
            keep: (num_masks, num_pairs) bool, the players that stay. Everything that is no player stays too.
            query: The explained classes, by default those that f predicts.
        """
        chosen = self.query(players.targets) if query is None else query
        values = torch.empty(len(keep), len(players.targets), device=keep.device)
        self._fill(values, players, keep, lambda rows, logits: chosen[rows].select(to_values(logits, self.value)))
        return values

    def logits_per_target(self, players: Players, keep: Tensor) -> Tensor:
        """Return (num_masks, num_targets, num_classes) the logits of each target under coalitions of its own."""
        logits = torch.empty(len(keep), len(players.targets), self.num_classes, device=keep.device)
        self._fill(logits, players, keep, lambda rows, logits: logits)
        return logits

    def _fill(self, into: Tensor, players: Players, keep: Tensor, select: Callable[[slice, Tensor], Tensor]) -> None:
        """Fill (num_masks, num_targets, ...) with what is selected from the logits of some targets."""
        total, indptr = len(keep) * len(players.targets), players.indptr
        self.caller.num_evaluations += total
        label = "asking the model about coalitions (random subsets)"
        bar: Progress[None] = Progress(label=label, total=total, unit="evaluation")
        with bar:
            for rows in slices_within_budget(self.player_set.ego_sizes(self, players), self.nodes_per_call):
                pairs = slice(int(indptr[rows.start]), int(indptr[rows.stop]))
                start = 0
                for logits in self._ego_logits(players.part(rows), keep[:, pairs]):
                    into[start : start + len(logits), rows] = select(rows, logits)
                    start += len(logits)
                    bar.advance(logits.shape[0] * logits.shape[1])

    def _ego_logits(self, players: Players, keep: Tensor) -> Iterator[Tensor]:
        """Yield (some masks, num_targets, num_classes) the logits of targets on their own ego graphs."""
        batch = self.task.ego_batch(self.graph, players.targets, self.context_hops)
        pair, is_player = self.player_set.match_units(batch, players)

        def on_units() -> Iterator[Tensor]:
            for part in self._fit_calls(keep, len(batch.nodes)):
                mask = is_player.new_ones(len(part), len(is_player))
                mask[:, is_player] = part[:, pair[is_player]]
                yield mask

        for logits in self._evaluate(batch, self.features[batch.nodes], on_units()):
            yield logits[:, batch.target_rows]

    def _evaluate(
        self, batch: SharedSubgraph | EgoBatch, features: Tensor, masks: Iterable[Tensor]
    ) -> Iterator[Tensor]:
        """Yield (some masks, num_rows, num_classes) f under masks over units, null logits for rows that are removed."""
        count = self.player_set.num_baselines
        for keep in masks:
            with eval_mode(self.f):
                masked = self.player_set.remove(batch, features, keep)
                logits = self.task.predict(self.caller, batch, masked, self.null_logits)
            yield logits if count == 1 else logits.view(len(keep), count, *logits.shape[1:]).mean(1)

    def _fit_calls(self, keep: Tensor, num_nodes: int) -> tuple[Tensor, ...]:
        """Split masks so that the copies of the graph fit one call of f."""
        return keep.split(max(1, self.nodes_per_call // max(num_nodes * self.player_set.num_baselines, 1)))


def _all_targets(task: Task, graph: Graph, device: torch.device) -> SharedSubgraph:
    targets = torch.arange(task.num_targets(graph), device=device)
    return SharedSubgraph(graph, torch.arange(graph.num_nodes(), device=device), targets, targets)


def check_targets(targets: Tensor, count: int, task: Task) -> None:
    """Raise an error if targets are missing or out of range."""
    if not len(targets):
        raise InputError("targets.none")
    if int(targets.min()) < 0 or int(targets.max()) >= count:
        got = int(targets[(targets < 0) | (targets >= count)][0])
        raise InputError("targets.range", task=task, most=count - 1, got=got)

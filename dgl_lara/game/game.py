"""The game that is explained: f, a graph and a task, and the value of any coalition of players.

`Game` owns two conventions: the explained class is the one f predicts on the untouched graph (unless another is
asked for), and the value is its raw logit (or probability, or log-odds; see `value.py`).

Models of one number z a row come in two kinds. With `value="logit"` z is the logit of class 1 of two: it is spread to
[-z/2, z/2], whose softmax is (sigmoid(-z), sigmoid(z)), and what is explained is the log-odds of the predicted side, z
for class 1 and -z for class 0. With `value="output"` (regression) z itself is explained, whatever its sign.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import dgl
import torch
from torch import Tensor

from dgl_lara._util.memory_budget import Budget, slices_within_budget
from dgl_lara._util.progress import Progress, working
from dgl_lara.blackbox.call import Model, call_model, predict_and_validate, same_predictions
from dgl_lara.blackbox.edge_data import detach_edge_data, without_edge_data
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.blackbox.hetero_index import HeteroIndex
from dgl_lara.blackbox.input_adapter import input_adapter
from dgl_lara.errors import InputError, ModelError
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.context import GameContext
from dgl_lara.game.player_index import Players
from dgl_lara.game.player_specs import PlayerSpec, as_players
from dgl_lara.game.receptive_field import MOST_HOPS, evenly_spaced, fewest_hops
from dgl_lara.game.removal import null_prediction, strip_data
from dgl_lara.game.task import Task
from dgl_lara.game.tasks import NODE, as_task
from dgl_lara.game.values import checked_value, to_values
from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph

ROUNDING = 1e-6  # of the largest answer: float32 says no more of differences
CHECKED = 16  # nodes on whose ego graphs f must give its own predictions


@dataclass(frozen=True, eq=False)
class ParentGraph:
    """What a part of a graph must be told of the whole (`parts/`), for its inner nodes to be as they are there."""

    node_ids: Tensor  # (num_nodes,) which nodes of the whole graph its nodes are, rising
    in_degrees: Tensor  # (num_nodes,) there
    null_logits: Tensor  # what f says of nothing at all


class Game:
    """f, a graph and what to explain, as a cooperative game. Counts its calls of f and its evaluations.

    `hops` is K: the players of a node are its K-hop in-neighbourhood. `context` hops around it are carried along
    when a coalition is evaluated on the ego graph; one more than K where f normalises by degree.
    """

    def __init__(
        self,
        f: Model,
        graph: dgl.DGLGraph,
        features: Tensor,
        task: str | Task = "node",
        hops: int = 1,
        value: str = "logit",
        answer: Tensor | None = None,
        known: Tensor | None = None,
        memory: int | None = None,
        players: str | PlayerSpec = "nodes",
        edge_data: bool | None = None,
        context: int | None = None,
        cut_from: ParentGraph | None = None,
    ) -> None:
        """`answer`: f on the untouched graph, where that was asked before; `known`: the targets whose rows of it are
        right, if not all (see `inference/local.py`). `memory`: bytes that calls of f and chunks of targets keep to.
        `players`: who plays, by name or with more to say (`kinds.py`). `edge_data`: whether f makes anything of what
        edges carry; None: it is asked. `context`: hops, where that was found before. `cut_from`: where the graph is a
        part of one that is never whole."""
        checked_value(value)
        if not isinstance(hops, int) or not 0 <= hops <= MOST_HOPS:
            raise InputError(f"hops must be a whole number from 0 to {MOST_HOPS} (got {hops!r}).")
        self.task = as_task(task)
        self.features, self.hops = features, hops
        self.f, self.graph = without_edge_data(f, graph) if edge_data is False else detach_edge_data(f, graph)
        self.graph = strip_data(self.graph)
        self.player_spec, self.valid_targets, self.parent = as_players(players), known, cut_from
        self.budget = Budget.of(memory, features.device)
        self.num_calls, self.num_evaluations = 0 if answer is not None else 2, 0
        self.nodes_evaluated = 0  # of all graphs that f was given since: what it cost, whoever asked (see `count`)
        if answer is None:
            with working("asking the model about the whole graph"):
                answer = self._untouched()
        self.full_outputs = answer
        if edge_data is None and input_adapter(self.f).edge_data_is_optional and self._does_without_edge_data():
            self.f, self.graph = without_edge_data(self.f, self.graph)
            vars(self).pop("full_batch", None)
        self.player_set = self.player_spec.build(GameContext(self.task, self.graph, features, hops))
        self.is_single_logit = self.full_outputs.shape[1] == 1 and value != "output"  # one number for two classes
        self.value = "log-odds" if self.is_single_logit and value == "logit" else value
        self.full_logits = self._spread(self.full_outputs)  # (num_targets, num_classes)
        self.null_logits = cut_from.null_logits if cut_from else self._null_logits()  # (num_classes,)
        self.null_values = to_values(self.null_logits, self.value)  # (num_classes,)
        self.full_values = to_values(self.full_logits, self.value)  # (num_targets, num_classes)
        # an output is no class: the first is explained, unless another is asked for
        best = self.full_logits.argmax(dim=1)
        self.explained_class = torch.zeros_like(best) if value == "output" else best  # (num_targets,)
        if context is None:
            context = self._context_hops() if self.task.has_distances else hops
        self.context_hops = context

    def _null_logits(self) -> Tensor:
        with eval_mode(self.f):
            nobody = input_adapter(self.f).null_features(self.features, self.task.num_endpoints)
            device = self.features.device
            alone = torch.arange(len(nobody), device=device).unsqueeze(1).unbind() if len(nobody) > 1 else ()
            return null_prediction(self.call, self.graph, nobody, *alone)

    @cached_property
    def in_degrees(self) -> Tensor:
        """(num_nodes,) in the whole graph, also where this is a part of it."""
        return self.parent.in_degrees if self.parent else self.graph.in_degrees()

    @property
    def num_targets(self) -> int:
        return self.task.num_targets(self.graph)

    @property
    def types(self) -> HeteroIndex | None:
        """Who is who, on a graph of several types."""
        return input_adapter(self.f).types

    @property
    def num_classes(self) -> int:
        return self.full_logits.shape[1]

    @property
    def nodes_per_call(self) -> int:
        return self.budget.nodes_per_call(input_adapter(self.f).num_feature_columns(self.features))

    @cached_property
    def input_blocks(self) -> list[Tensor]:
        """What g may see of every node beside what f says of it, in blocks of columns: its features, and what else
        the graph says of it."""
        return input_adapter(self.f).node_blocks(self.graph, self.features)

    @cached_property
    def edge_inputs(self) -> Tensor | None:
        """(num_edges, columns) likewise of every edge of the whole graph, by its number there; None: nothing."""
        return input_adapter(self.f).edge_columns()

    @cached_property
    def cost_bound(self) -> Tensor:
        """(num_targets,) a bound on the players of each target and on what explaining it costs."""
        return self.player_set.cost_bound()

    @property
    def shares_masks(self) -> bool:
        """Return whether one mask over the whole graph is a coalition for every target."""
        return self.task.has_distances and self.player_set.supports_shared_masks

    @property
    def num_players(self) -> int:
        """In the whole graph: the columns of a mask that all targets share."""
        return self.player_set.count

    @cached_property
    def value_scale(self) -> float:
        """The size of what there is to explain: how far the players together move the values."""
        nothing = self.null_values
        if self.player_set.supports_shared_masks and self.player_set.name != "nodes":
            nothing = self.shared_values(
                torch.zeros(1, self.num_players, dtype=torch.bool, device=self.features.device)
            )[0]
        return float((self.full_values[: self.num_targets] - nothing).square().mean().sqrt().clamp(min=1e-6))

    @cached_property
    def min_resolvable(self) -> float:
        """What rounding alone may move a value by: less than that is nothing to explain."""
        return ROUNDING * max(1.0, float(self.full_values[: self.num_targets].abs().max()))

    # --- asking f

    def call(self, graph: dgl.DGLGraph, features: Tensor, *ends: Tensor) -> Tensor:
        """Logits of f. `ends`: of the pairs that are asked about, where targets are pairs."""
        self.record_call(graph)
        rows = len(ends[0]) if ends else self.task.num_rows(graph)
        answer = call_model(self.f, graph, features, rows, self.task.name, *ends)
        whole = vars(self).get("full_outputs", answer)
        if answer.shape[1] != whole.shape[1]:
            raise ModelError(
                f"the model must return as many numbers a {self.task} on every graph (got {whole.shape[1]} on the "
                f"whole one, {answer.shape[1]} on {graph.num_nodes()} nodes)."
            )
        return self._spread(answer)

    def record_call(self, graph: dgl.DGLGraph) -> None:
        """f is given this graph, by whatever way. The way back that gradients take is not counted."""
        self.num_calls += 1
        self.nodes_evaluated += graph.num_nodes()

    def _untouched(self) -> Tensor:
        ends, rows = self.task.endpoint_indices(self.full_batch), self.task.num_rows(self.graph)
        return predict_and_validate(self.f, self.graph, self.features, rows, self.task.name, *ends)

    def _does_without_edge_data(self) -> bool:
        """f says the same where edges carry nothing, so that nothing need be carried along."""
        f, graph = without_edge_data(self.f, self.graph)
        ends = self.task.endpoint_indices(self.full_batch)
        self.num_calls += 1
        with working("asking the model whether it reads what edges carry"):
            return same_predictions(f, graph, self.features, self.full_outputs, self.task.name, *ends)

    def _spread(self, answer: Tensor) -> Tensor:
        """Logits: f's own, or two for the one z of two classes (see the top of the file)."""
        return torch.cat([-answer, answer], dim=1) / 2 if self.is_single_logit else answer

    def _context_hops(self) -> int:
        """The fewest hops, from K on, whose ego graphs give f's predictions: K + 1 where boundary degrees count."""
        known = (
            torch.arange(self.num_targets, device=self.features.device)
            if self.valid_targets is None
            else self.valid_targets
        )
        nodes = known[evenly_spaced(len(known), CHECKED, known.device)]
        full, allowed = self.full_logits[nodes], 1e-4 * self.full_logits[known].abs().max()
        with working("finding out how much around a node the model must be shown"), eval_mode(self.f):
            found = fewest_hops(
                self.call, self.task, self.graph, self.features, nodes, full, range(self.hops, self.hops + 4), allowed,
                self.nodes_per_call,
            )  # fmt: skip
        if found is None:
            warnings.warn(
                f"the model does not give its own predictions where it sees {self.hops + 3} hops around a node alone "
                "(does it see outgoing edges, or the whole graph?); values of coalitions are approximate.",
                stacklevel=3,
            )
        return self.hops + 1 if found is None else found

    def query(self, targets: Tensor) -> ClassQuery:
        """Return the question about the explained class of each target."""
        return ClassQuery(self.explained_class[targets])

    def full_value_of(self, targets: Tensor, query: ClassQuery) -> Tensor:
        """(num_targets,) the explained value on the untouched graph."""
        return query.select(self.full_values[targets].unsqueeze(0))[0]

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
    def node_classes(self) -> Tensor | None:
        """(num_nodes,) predicted class of each node, or None if the model gives single nodes no class."""
        if not self.task.targets_are_nodes or self.types is not None or self.value == "output":
            return None
        return self.explained_class

    # --- targets and their players

    def check_targets(self, targets: Tensor) -> None:
        check_targets(targets, self.num_targets, self.task)

    def players(self, targets: Tensor) -> Players:
        """N(v): for a node its K-hop in-neighbourhood with the target itself; for a graph all its nodes."""
        return self.player_set.players(targets)

    @cached_property
    def endpoint_game(self) -> Game:
        """The game seen from single nodes: itself, unless a target is several nodes. For g, whose scores of such a
        target are sums over its nodes; values and coalitions are not to be asked of it."""
        if self.task.num_endpoints == 1:
            return self
        side = copy.copy(self)
        side.task = NODE
        side.player_set = self.player_spec.build(GameContext(NODE, self.graph, self.features, self.hops))
        return side

    def max_players(self, targets: Tensor) -> int:
        """Return a bound on the number of players of any of these targets."""
        return max(1, int(self.cost_bound[targets].max().clamp(max=self.num_players)))

    def chunks(self, targets: Tensor) -> list[slice]:
        """Slices of the targets that stay within the memory, whatever the hubs (one that does not fit stands alone)."""
        if len(targets) == 1:
            return [slice(0, 1)]
        return slices_within_budget(self.cost_bound[targets], self.budget.walks_per_chunk)

    # --- coalitions

    @cached_property
    def full_batch(self) -> SharedSubgraph:
        """All targets on the whole graph."""
        everyone = torch.arange(self.num_targets, device=self.features.device)
        return SharedSubgraph(
            self.graph, torch.arange(self.graph.num_nodes(), device=everyone.device), everyone, everyone
        )

    def shared_values(self, keep: Tensor) -> Tensor:
        """(num_masks, num_targets, num_classes): one mask over all players is a coalition for every target.

        Uniform masks are uniform coalitions of every target's players at once. Nodes outside a target's players
        are masked too: that moves f only through boundary degrees (a test says how much).
        """
        return to_values(self.batch_logits(self.full_batch, keep), self.value)

    def batch_logits(self, batch: SharedSubgraph | EgoBatch, keep: Tensor) -> Tensor:
        """(num_masks, num_targets, num_classes): what f says of a batch's targets under each mask over its players."""
        features = self.features if batch.graph is self.graph else self.features[batch.nodes]
        logits = self.masked_logits(batch, features, self.player_set.expand_mask(batch, keep))
        whole = batch is vars(self).get("full_batch") and logits.shape[1] == len(batch.target_rows)
        return logits if whole else logits[:, batch.target_rows]

    def masked_logits(self, here: SharedSubgraph | EgoBatch, features: Tensor, keep: Tensor) -> Tensor:
        """(num_masks, rows, num_classes): f on a (sub)graph under each mask over its units (see `player_kind.py`);
        null where the row itself is removed."""
        with eval_mode(self.f):
            parts = [self._answer(here, features, part) for part in self._affordable(keep, here.graph.num_nodes())]
        self.num_evaluations += sum(part.shape[0] * part.shape[1] for part in parts)
        return torch.cat(parts)

    def _answer(self, here: SharedSubgraph | EgoBatch, features: Tensor, keep: Tensor) -> Tensor:
        left, repeats = self.player_set.remove(here, features, keep), self.player_set.num_baselines
        logits = self.task.predict(self.call, here, left, self.null_logits)
        return logits if repeats == 1 else logits.view(len(keep), repeats, *logits.shape[1:]).mean(1)

    def _affordable(self, keep: Tensor, num_nodes: int) -> Iterator[Tensor]:
        """As many masks at a time as one call of f can take copies of the graph for."""
        yield from keep.split(max(1, self.nodes_per_call // max(num_nodes * self.player_set.num_baselines, 1)))

    def values_per_target(self, players: Players, keep: Tensor, query: ClassQuery | None = None) -> Tensor:
        """(num_masks, num_targets): the value of each target when only the kept players remain.

        `keep` has a row a coalition and a column a (target, player) pair. Whoever is not a player stays.
        """
        asked = self.query(players.targets) if query is None else query
        values = torch.empty(len(keep), len(players.targets), device=keep.device)
        return self._ask(players, keep, values, lambda rows, logits: asked[rows].select(to_values(logits, self.value)))

    def logits_per_target(self, players: Players, keep: Tensor) -> Tensor:
        """(num_masks, num_targets, num_classes): the same, but f's own logits of all classes."""
        logits = torch.empty(len(keep), len(players.targets), self.num_classes, device=keep.device)
        return self._ask(players, keep, logits, lambda rows, logits: logits)

    def _ask(self, players: Players, keep: Tensor, into: Tensor, take: Callable[[slice, Tensor], Tensor]) -> Tensor:
        """Fills `into`, (num_masks, num_targets, ...), with what `take` takes of f's logits."""
        total = len(keep) * len(players.targets)
        self.num_evaluations += total
        indptr = players.indptr
        bar: Progress[None] = Progress(
            label="asking the model about coalitions (random subsets)", total=total, unit="evaluation"
        )
        with bar:
            for rows in slices_within_budget(self._sizes(players), self.nodes_per_call):
                pairs = slice(int(indptr[rows.start]), int(indptr[rows.stop]))
                into[:, rows] = self._some_coalitions(players.part(rows), keep[:, pairs], partial(take, rows), bar)
        return into

    def _sizes(self, players: Players) -> Tensor:
        """(num_targets,) about how many nodes the separate graph of each has."""
        return players.counts if players.player_type == "nodes" else self.cost_bound[players.targets]

    def _some_coalitions(
        self, players: Players, keep: Tensor, take: Callable[[Tensor], Tensor], bar: Progress
    ) -> Tensor:
        here = self.task.ego_batch(self.graph, players.targets, self.context_hops)
        features, (pair, plays) = self.features[here.nodes], self.player_set.match_units(here, players)
        values = []
        with eval_mode(self.f):
            for part in self._affordable(keep, len(here.nodes)):
                stays = plays.new_ones(len(part), len(plays))
                stays[:, plays] = part[:, pair[plays]]
                logits = self._answer(here, features, stays)[:, here.target_rows]
                values.append(take(logits))
                bar.advance(logits.shape[0] * logits.shape[1])
        return torch.cat(values)


def check_targets(targets: Tensor, count: int, task: Task) -> None:
    if not len(targets):
        raise InputError("no targets were given to explain.")
    if int(targets.min()) < 0 or int(targets.max()) >= count:
        wrong = targets[(targets < 0) | (targets >= count)][0]
        raise InputError(f"targets must be {task}s 0..{count - 1} (got {int(wrong)}).")

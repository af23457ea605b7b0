"""The game that is explained: which number of f, and its value for any coalition of players.

`Game` owns two conventions: the explained class is the one f predicts on the untouched graph (unless another is
asked for), and the value is its raw logit (or probability, or log-odds).
"""

from __future__ import annotations

import warnings
from functools import cached_property

import dgl
import torch
from torch import Tensor

from dgl_lara.choices import VALUES
from dgl_lara.datasets.dataset import take_graphs
from dgl_lara.errors import InputError, LaraError
from dgl_lara.neighborhood import Neighborhood, find, in_neighborhood, nodes_of_graphs, walk_counts
from dgl_lara.removal import Model, ego_graphs, has_all_loops, null_prediction, predict_graphs, predict_nodes
from dgl_lara.targets.training import evaluating

NODES_A_CALL = 200_000  # bounds the memory of one call of f


def to_values(logits: Tensor, kind: str) -> Tensor:
    """The numbers that are explained, one a class, from the logits."""
    if kind == "logit":
        return logits
    log_p = logits.log_softmax(dim=-1)
    if kind == "probability":
        return log_p.exp()
    # log p/(1-p), with 1-p = sum of the other classes' probabilities, stable where p is near 1
    total = logits.logsumexp(dim=-1, keepdim=True)
    others = torch.log(-torch.expm1((logits - total).clamp(max=-1e-7)))
    return log_p - others


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
        task: str = "node",
        hops: int = 1,
        value: str = "logit",
        logits: Tensor | None = None,
    ) -> None:
        """`logits`: f on the untouched graph, where that is known already (kept with a run, or made in batches)."""
        if task not in ("node", "graph"):
            raise InputError(f"task must be 'node' or 'graph' (got '{task}').")
        if value not in VALUES:
            raise InputError(f"value must be one of {', '.join(VALUES)} (got '{value}').")
        if len(features) != graph.num_nodes():
            raise InputError(f"features must have one row a node, {graph.num_nodes()} (got {len(features)}).")
        if hops < 0:
            raise InputError(f"hops must be at least 0 (got {hops}).")
        graph = graph.long()
        self.f, self.graph, self.features, self.task, self.hops, self.value = f, graph, features, task, hops, value
        self.calls = self.evaluations = 0
        with evaluating(f):
            logits = self.call(graph, features) if logits is None else logits
            self.null_logits = null_prediction(self.call, features, has_all_loops(graph))  # (num_classes,)
        expected = graph.num_nodes() if task == "node" else graph.batch_size
        if logits.dim() != 2 or len(logits) != expected:
            raise LaraError(
                f"f must return one row of logits a {task}, ({expected}, classes) (got {tuple(logits.shape)})."
            )
        if not bool(torch.isfinite(logits).all()):
            raise LaraError("f returned NaN or infinity on the untouched graph; it cannot be explained.")
        if not bool(torch.isfinite(self.null_logits).all()):
            raise LaraError(
                "f returned NaN or infinity for one node with zero features, the value of a removed target."
            )
        self.logits = logits
        self.null = to_values(self.null_logits, value)  # (num_classes,)
        self.full = to_values(logits, value)  # (num_targets, num_classes)
        self.explained_class = logits.argmax(dim=1)  # (num_targets,)
        self.context = hops if task == "graph" else self._context_hops()

    @property
    def num_targets(self) -> int:
        return len(self.logits)

    @property
    def num_classes(self) -> int:
        return self.logits.shape[1]

    @cached_property
    def work(self) -> Tensor:
        """(num_targets,) walks that end at a target, a bound on its players and on what explaining it costs."""
        if self.task == "graph":
            return self.graph.batch_num_nodes().double()
        return walk_counts(self.graph, self.hops)

    def call(self, graph: dgl.DGLGraph, features: Tensor) -> Tensor:
        self.calls += 1
        return self.f(graph, features).float()

    def _context_hops(self, sample: int = 16) -> int:
        """The fewest hops, from K on, whose ego graphs give f's predictions: K + 1 where boundary degrees count."""
        nodes = torch.linspace(0, self.num_targets - 1, min(sample, self.num_targets)).long().to(self.features.device)
        for hops in range(self.hops, self.hops + 4):
            context = in_neighborhood(self.graph, nodes, hops)
            own = (context.hop == 0).nonzero().flatten()
            with evaluating(self.f):
                seen = self.call(ego_graphs(self.graph, context), self.features[context.player])[own]
            if (seen - self.logits[nodes]).abs().max() <= 1e-4 * self.logits.abs().max():
                return hops
        warnings.warn(
            f"f does not give its own predictions on {self.hops + 3}-hop ego graphs (does it see outgoing edges, "
            "or the whole graph?); values of coalitions are approximate.",
            stacklevel=3,
        )
        return self.hops + 1

    def players(self, targets: Tensor) -> Neighborhood:
        """N(v): the K-hop in-neighbourhood with the target itself; for a graph all its nodes."""
        if self.task == "graph":
            return nodes_of_graphs(self.graph, targets)
        return in_neighborhood(self.graph, targets, self.hops)

    def shared(self, keep: Tensor) -> Tensor:
        """(num_masks, num_targets, num_classes): one mask over the whole graph is a coalition for every target.

        Uniform masks are uniform coalitions of every target's players at once. Nodes outside a target's players
        are masked too: that moves f only through boundary degrees (a test says how much).
        """
        return to_values(self.logits_under(self.graph, self.features, keep), self.value)

    def logits_under(self, graph: dgl.DGLGraph, features: Tensor, keep: Tensor) -> Tensor:
        """(num_masks, rows, num_classes): f on a (sub)graph under each mask; null where the row itself is removed."""
        predict = predict_nodes if self.task == "node" else predict_graphs
        step = max(1, NODES_A_CALL // max(graph.num_nodes(), 1))
        with evaluating(self.f):
            parts = [predict(self.call, graph, features, part, self.null_logits) for part in keep.split(step)]
        self.evaluations += sum(part.shape[0] * part.shape[1] for part in parts)
        return torch.cat(parts)

    def coalitions(self, players: Neighborhood, keep: Tensor, classes: Tensor | None = None) -> Tensor:
        """(num_masks, num_targets): the value of each target when only the kept players remain.

        `keep` has a row a coalition and a column a (target, player) pair. Nodes that are not players stay.
        """
        classes = self.explained_class[players.targets] if classes is None else classes
        self.evaluations += len(keep) * len(players.targets)
        first = players.first
        values = torch.empty(len(keep), len(players.targets), device=keep.device)
        for rows in row_slices(players.counts, NODES_A_CALL):
            pairs = slice(int(first[rows.start]), int(first[rows.stop]))
            values[:, rows] = self._some_coalitions(players.part(rows), keep[:, pairs], classes[rows])
        return values

    def _some_coalitions(self, players: Neighborhood, keep: Tensor, classes: Tensor) -> Tensor:
        if self.task == "graph":
            return self._some_graphs(players, keep, classes)
        context = in_neighborhood(self.graph, players.targets, self.context)
        place, is_player = find(context.key, players.key)
        own = (context.hop == 0).nonzero().flatten()  # one target a row, in order
        ego, features = ego_graphs(self.graph, context), self.features[context.player]
        step = max(1, NODES_A_CALL // max(len(place), 1))
        values = []
        with evaluating(self.f):
            for part in keep.split(step):
                present = torch.where(is_player, part[:, place], True)
                logits = predict_nodes(self.call, ego, features, present, self.null_logits)[
                    :, own
                ]  # (masks, targets, classes)
                values.append(_pick(to_values(logits, self.value), classes))
        return torch.cat(values)

    def _some_graphs(self, players: Neighborhood, keep: Tensor, classes: Tensor) -> Tensor:
        batch, nodes = take_graphs(self.graph, players.targets)
        features = self.features[nodes]
        step = max(1, NODES_A_CALL // max(len(nodes), 1))
        values = []
        with evaluating(self.f):
            for part in keep.split(step):
                logits = predict_graphs(self.call, batch, features, part, self.null_logits)
                values.append(_pick(to_values(logits, self.value), classes))
        return torch.cat(values)


def _pick(values: Tensor, classes: Tensor) -> Tensor:
    return values.gather(2, classes.expand(len(values), -1).unsqueeze(2)).squeeze(2)


def row_slices(counts: Tensor, budget: int) -> list[slice]:
    """Consecutive targets whose players together stay within the budget (a larger one stands alone)."""
    slices, start, total = [], 0, 0
    for row, count in enumerate(counts.tolist()):
        if total and total + count > budget:
            slices.append(slice(start, row))
            start, total = row, 0
        total += count
    return [*slices, slice(start, len(counts))]

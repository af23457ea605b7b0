"""The game that is explained: which number of f, and its value for any coalition of players.

`Game` owns two conventions: the explained class is the one f predicts on the untouched graph (unless another is
asked for), and the value is its raw logit (or probability, or log-odds).

Models of one number z a row come in two kinds. With `value="logit"` z is the logit of class 1 of two: it is spread to
[-z/2, z/2], whose softmax is (sigmoid(-z), sigmoid(z)), and what is explained is the log-odds of the predicted side, z
for class 1 and -z for class 0. With `value="output"` (regression) z itself is explained, whatever its sign.
"""

from __future__ import annotations

import warnings
from functools import cached_property

import dgl
import torch
from torch import Tensor

from dgl_lara.choices import VALUES
from dgl_lara.errors import InputError
from dgl_lara.game.players import Neighborhood, find, in_neighborhood, nodes_of_graphs, walk_counts
from dgl_lara.game.removal import (
    bare,
    ego_graphs,
    has_all_loops,
    null_prediction,
    predict_graphs,
    predict_nodes,
    take_graphs,
)
from dgl_lara.model import blackbox
from dgl_lara.model.blackbox import Model
from dgl_lara.model.evaluating import evaluating

NODES_A_CALL = 200_000  # bounds the memory of one call of f


def to_values(logits: Tensor, kind: str) -> Tensor:
    """The numbers that are explained, one a class, from the logits."""
    if kind in ("logit", "output"):
        return logits
    if kind == "log-odds" and logits.shape[-1] == 2:
        return logits - logits.flip(-1)  # the same as below, and exact for certain predictions too
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
        answer: Tensor | None = None,
    ) -> None:
        """`answer`: f on the untouched graph, where that is known already (kept with a run, or made in batches)."""
        if task not in ("node", "graph"):
            raise InputError(f"task must be 'node' or 'graph' (got '{task}').")
        if value not in VALUES:
            raise InputError(f"value must be one of {', '.join(VALUES)} (got '{value}').")
        if hops < 0:
            raise InputError(f"hops must be at least 0 (got {hops}).")
        graph = bare(graph)
        known = answer is not None
        answer = blackbox.untouched(f, graph, features, task) if answer is None else answer
        self.f, self.graph, self.features, self.task, self.hops = f, graph, features, task, hops
        self.answer, self.calls, self.evaluations = answer, 0 if known else 2, 0
        self.single = answer.shape[1] == 1 and value != "output"  # one number for two classes
        self.value = "log-odds" if self.single and value == "logit" else value
        self.logits = self._spread(answer)  # (num_targets, num_classes)
        with evaluating(f):
            self.null_logits = null_prediction(self.call, features, has_all_loops(graph))  # (num_classes,)
        self.null = to_values(self.null_logits, self.value)  # (num_classes,)
        self.full = to_values(self.logits, self.value)  # (num_targets, num_classes)
        # an output is no class: the first is explained, unless another is asked for
        best = self.logits.argmax(dim=1)
        self.explained_class = torch.zeros_like(best) if value == "output" else best  # (num_targets,)
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
        return self._spread(blackbox.call(self.f, graph, features, self.task))

    def _spread(self, answer: Tensor) -> Tensor:
        """Logits: f's own, or two for the one z of two classes (see the top of the file)."""
        return torch.cat([-answer, answer], dim=1) / 2 if self.single else answer

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


def row_slices(counts: Tensor, budget: float) -> list[slice]:
    """Consecutive targets whose players together stay within the budget (a larger one stands alone)."""
    slices, start, total = [], 0, 0
    for row, count in enumerate(counts.tolist()):
        if total and total + count > budget:
            slices.append(slice(start, row))
            start, total = row, 0
        total += count
    return [*slices, slice(start, len(counts))]

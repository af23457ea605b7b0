"""`ModelCaller`: calls of f, checked, counted and kept within memory."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara._util.memory_budget import Budget
from dgl_lara._util.notices import notice
from dgl_lara._util.progress import status
from dgl_lara.blackbox.call import Model, call_model, predict_and_validate, same_predictions
from dgl_lara.blackbox.edge_data import without_edge_data
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.blackbox.input_adapter import input_adapter
from dgl_lara.errors import ModelError
from dgl_lara.game.receptive_field import evenly_spaced, fewest_hops
from dgl_lara.game.removal import null_prediction
from dgl_lara.game.task import Task
from dgl_lara.graphs.graph import Graph

NUM_CHECKED_TARGETS = 16  # on whose ego graphs f must return its own predictions
MAX_CONTEXT_HOPS = 4  # radii that are tried, from K on
CONTEXT_TOLERANCE = 1e-4  # of the largest logit


class ModelCaller:
    """The model f of a game.

    A model that returns one number z per row is a binary classifier unless its output is explained. Its logits are
    [-z/2, z/2], whose softmax is (sigmoid(-z), sigmoid(z)).

    Attributes:
        f: The model, in its input adapter.
        budget: Memory that one call keeps to.
        num_calls: Calls of f.
        num_evaluations: Pairs of a coalition and a target that f was evaluated on.
        nodes_evaluated: Nodes of all graphs that f was called with, backward passes not counted.
    """

    def __init__(self, f: Model, task: Task, budget: Budget, num_columns: int) -> None:
        self.f, self.task, self.budget = f, task, budget
        self.nodes_per_call = budget.nodes_per_call(num_columns)
        self.num_calls = self.num_evaluations = self.nodes_evaluated = 0
        self.num_outputs: int | None = None  # columns on the full graph
        self.is_single_logit = False

    def __call__(self, graph: Graph, features: Tensor, *endpoints: Tensor) -> Tensor:
        """Return (num_rows, num_classes) the logits of f.

        Args:
            graph: A graph, or several side by side.
            features: Features of its nodes.
            endpoints: Both nodes of every pair, if targets are pairs.
        """
        self.record(graph)
        num_rows = len(endpoints[0]) if endpoints else self.task.num_rows(graph)
        outputs = call_model(self.f, graph, features, num_rows, self.task.name, *endpoints)
        if self.num_outputs not in (None, outputs.shape[1]):
            expected, got = self.num_outputs, outputs.shape[1]
            raise ModelError("model.columns", task=self.task, full=expected, got=got, nodes=graph.num_nodes())
        return self.to_logits(outputs)

    def record(self, graph: Graph) -> None:
        """Count one call of f, made by whatever means."""
        self.num_calls += 1
        self.nodes_evaluated += graph.num_nodes()

    def expect(self, outputs: Tensor, value: str) -> None:
        """Set the number of outputs by those on the full graph."""
        self.num_outputs = outputs.shape[1]
        self.is_single_logit = self.num_outputs == 1 and value != "output"

    def to_logits(self, outputs: Tensor) -> Tensor:
        """Return one column per class."""
        return torch.cat([-outputs, outputs], dim=1) / 2 if self.is_single_logit else outputs

    def full_outputs(self, graph: Graph, features: Tensor, endpoints: tuple[Tensor, ...]) -> Tensor:
        """Return the validated outputs of f on the full graph."""
        self.num_calls += 2
        with status("asking the model about the whole graph"):
            num_rows = self.task.num_rows(graph)
            return predict_and_validate(self.f, graph, features, num_rows, self.task.name, *endpoints)

    def drop_edge_data(self, graph: Graph, features: Tensor, endpoints: tuple[Tensor, ...], outputs: Tensor) -> Graph:
        """Return the graph without edge data if f returns equal outputs without them, and call f without them."""
        if not input_adapter(self.f).edge_data_is_optional:
            return graph
        f, plain = without_edge_data(self.f, graph)
        self.num_calls += 1
        with status("asking the model whether it reads what edges carry"):
            if not same_predictions(f, plain, features, outputs, self.task.name, *endpoints):
                return graph
        self.f = f
        return plain

    def null_logits(self, graph: Graph, features: Tensor) -> Tensor:
        """Return (num_classes,) the logits of isolated nodes with null features."""
        with eval_mode(self.f):
            rows = input_adapter(self.f).null_features(features, self.task.num_endpoints)
            nodes = torch.arange(len(rows), device=features.device).unsqueeze(1).unbind() if len(rows) > 1 else ()
            return null_prediction(self, graph, rows, *nodes)

    def context_hops(self, graph: Graph, features: Tensor, hops: int, logits: Tensor, targets: Tensor) -> int:
        """Return the fewest hops, from K on, whose ego graphs give the predictions of f.

        A model that normalises by degree needs K + 1.

        Args:
            graph: The full graph.
            features: Features of its nodes.
            hops: K.
            logits: (num_targets, num_classes) on the full graph.
            targets: The targets whose logits are valid.
        """
        chosen = targets[evenly_spaced(len(targets), NUM_CHECKED_TARGETS, targets.device)]
        allowed = CONTEXT_TOLERANCE * logits[targets].abs().max()
        radii = range(hops, hops + MAX_CONTEXT_HOPS)
        with status("finding out how much around a node the model must be shown"), eval_mode(self.f):
            where = (self, self.task, graph, features, chosen, logits[chosen])
            found = fewest_hops(*where, radii, allowed, self.nodes_per_call)
        if found is None:
            notice("context.unbounded", hops=radii[-1])
        return hops + 1 if found is None else found

"""`DistributedGame`: the game on a graph with one part in each process. All processes call its methods at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from dgl_lara._util.memory import hand_back_freed_memory
from dgl_lara._util.progress import Progress
from dgl_lara.blackbox.call import LayerwiseModel, Model, call_model
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.game.partitioned_game import PartitionedGame
from dgl_lara.game.values import to_values
from dgl_lara.graphs.remote import RemoteGraph, RowFetcher
from dgl_lara.graphs.subgraph import SharedSubgraph


class DistributedGame(PartitionedGame):
    """The game from one process. `full_outputs` has the nodes of its part. Rows of other parts are fetched."""

    source: RemoteGraph

    def __init__(self, f: Model, source: RemoteGraph, hops: int, value: str, memory: int | None = None) -> None:
        hand_back_freed_memory()
        super().__init__(f, source, hops, value, None, memory)
        self.ranks = source.ranks

    @cached_property
    def full_outputs(self) -> Tensor:
        """Return (nodes of the part, num_outputs) the outputs of f on the full graph."""
        with eval_mode(self.f):
            if isinstance(self.f, LayerwiseModel) and self.f.num_hops == self.hops:
                return self._own_layers(self.f)
            return self._own_rows("asking the model about every node", self.context_hops, self._outputs_on)

    def _outputs_on(self, subgraph: SharedSubgraph) -> Tensor:
        return call_model(
            self.f, subgraph.graph, self.source.features(subgraph.nodes), len(subgraph.nodes), self.task.name
        )

    def _own_rows(self, label: str, hops: int, make: Callable[[SharedSubgraph], Tensor]) -> Tensor:
        """Return rows of the nodes of the part, in as many batches as the largest part has."""
        own, size = self.source.nodes, self.batch_size
        rounds = max(-(-part["nodes"] // size) for part in self.source.meta.parts)
        rows = []
        for number in Progress(range(rounds), label, unit="batch"):
            subgraph = self.source.subgraph(own[number * size : (number + 1) * size], hops)
            rows.append(make(subgraph)[subgraph.target_rows])
        return torch.cat([some for some in rows if len(some)])

    def _own_layers(self, f: LayerwiseModel) -> Tensor:
        """Return outputs with one hop per layer, and the context that f needs beyond its layers."""
        states: list[Tensor] = []
        for number in range(self.hops):

            def after(subgraph: SharedSubgraph, number: int = number) -> Tensor:
                inputs = (
                    RowFetcher(self.source, subgraph.nodes)(states[-1])
                    if number
                    else self.source.features(subgraph.nodes)
                )
                return f.layer(number, subgraph.graph, inputs)

            states.append(self._own_rows(f"the model's layer {number + 1}", 1 + self.context_hops - self.hops, after))
        return f.read_out(states)

    def full_outputs_of(self, nodes: Tensor) -> Tensor:
        return RowFetcher(self.source, nodes)(self.full_outputs)

    @cached_property
    def value_scale(self) -> float:
        full = to_values(self._spread(self.full_outputs), self.value)
        total = self.ranks.summed((full - self.null_values).double().square().sum())
        return max(float(total / (self.num_targets * self.num_classes)) ** 0.5, 1e-6)

    def around(self, targets: Tensor) -> SharedSubgraph:
        """Return the subgraph with K + 1 hops, which f needs, and which has the degrees of all players."""
        return self.source.subgraph(targets, self.hops + 1)

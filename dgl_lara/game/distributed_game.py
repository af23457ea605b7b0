"""The game on a graph of which each process holds a part. Whatever is asked of it, all processes ask at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from dgl_lara._util.memory import hand_back_freed_memory
from dgl_lara._util.progress import Progress
from dgl_lara.blackbox.call import Model, call_model
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.blackbox.layerwise import LayerwiseModel
from dgl_lara.game.partitioned_game import PartitionedGame
from dgl_lara.game.values import to_values
from dgl_lara.graphs.remote import DistributedGraphView, RowFetcher
from dgl_lara.graphs.subgraph import SharedSubgraph


class DistributedGame(PartitionedGame):
    """`answer` has the nodes of this part only, in memory; rows of others are fetched."""

    view: DistributedGraphView

    def __init__(self, f: Model, view: DistributedGraphView, hops: int, value: str, memory: int | None = None) -> None:
        hand_back_freed_memory()
        super().__init__(f, view, hops, value, None, memory)
        self.ranks = view.ranks

    @cached_property
    def full_outputs(self) -> Tensor:
        """(nodes of the part, columns): what f says of the untouched graph."""
        with eval_mode(self.f):
            if isinstance(self.f, LayerwiseModel) and self.f.num_hops == self.hops:
                return self._own_layers(self.f)
            return self._own_rows("asking the model about every node", self.context_hops, self._said)

    def _said(self, here: SharedSubgraph) -> Tensor:
        return call_model(self.f, here.graph, self.view.features(here.nodes), len(here.nodes), self.task.name)

    def _own_rows(self, label: str, hops: int, make: Callable[[SharedSubgraph], Tensor]) -> Tensor:
        """Batch after batch of the part; every process goes through as many, because rows are asked of it."""
        own, size = self.view.nodes, self.batch_size
        rounds = max(-(-part["nodes"] // size) for part in self.view.meta.parts)
        rows = []
        for number in Progress(range(rounds), label, unit="batch"):
            here = self.cut(own[number * size : (number + 1) * size], hops)
            rows.append(make(here)[here.target_rows])
        return torch.cat([some for some in rows if len(some)])

    def _own_layers(self, f: LayerwiseModel) -> Tensor:
        """A layer's cut has one hop, and the context that f needs beyond its layers."""
        states: list[Tensor] = []
        for number in range(self.hops):

            def after(here: SharedSubgraph, number: int = number) -> Tensor:
                before = RowFetcher(self.view, here.nodes)(states[-1]) if number else self.view.features(here.nodes)
                return f.layer(number, here.graph, before)

            states.append(self._own_rows(f"the model's layer {number + 1}", 1 + self.context_hops - self.hops, after))
        return f.read_out(states)

    def full_outputs_of(self, nodes: Tensor) -> Tensor:
        return RowFetcher(self.view, nodes)(self.full_outputs)

    @cached_property
    def value_scale(self) -> float:
        full = to_values(self._spread(self.full_outputs), self.value)
        total = self.ranks.summed((full - self.null_values).double().square().sum())
        return max(float(total / (self.num_targets * self.num_classes)) ** 0.5, 1e-6)

    def around(self, targets: Tensor) -> SharedSubgraph:
        """K + 1 hops: all that f needs, and the degrees of all players."""
        return self.cut(targets, self.hops + 1)

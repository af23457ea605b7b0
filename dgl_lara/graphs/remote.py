"""`RemoteGraph`: a partitioned graph with one part in each process.

All processes read at the same time, each the rows it needs, which may be none. Requests and rows cross the network in
`ProcessGroup.exchange`. Gradients of computed rows, such as states of g, flow back to the process that owns the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.distributed import ProcessGroup
from dgl_lara.errors import InputError
from dgl_lara.graphs.indexing import ragged
from dgl_lara.graphs.mapped import MappedGraph
from dgl_lara.graphs.source import GraphSource


class RemoteGraph(GraphSource):
    """The full graph, seen from the process that holds part `ranks.rank`."""

    def __init__(self, folder: Path | str, ranks: ProcessGroup) -> None:
        self.ranks, self.own = ranks, MappedGraph(folder, only=ranks.rank)
        self.meta = self.own.meta
        if len(self.meta.parts) != ranks.count:
            raise InputError("partition.processes", parts=len(self.meta.parts), got=ranks.count)
        self.num_nodes, self.num_edges, self.columns = self.meta.nodes, self.meta.edges, self.meta.columns
        self.has_loops, self.all_loops, self.folder = self.own.has_loops, self.own.all_loops, self.own.folder
        self.split = self.own.split

    @cached_property
    def nodes(self) -> Tensor:
        """Return the nodes of this part, ascending."""
        return torch.from_numpy(np.array(self.own.parts[self.ranks.rank].nodes, np.int64))

    def _by_owner(self, nodes: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the order that groups nodes by owner, and the nodes of each owner."""
        owner, _ = self.own.part_of(nodes.numpy())
        order = torch.from_numpy(np.argsort(owner, kind="stable"))
        counts = np.bincount(owner, minlength=self.ranks.count).tolist()
        return order, list(nodes[order].split(counts))

    def _local_rows(self, nodes: Tensor) -> Tensor:
        """Return the rows of nodes of this part."""
        return torch.from_numpy(self.own.part_of(nodes.numpy())[1])

    def _exchange(self, nodes: Tensor, read: Callable[[Tensor], Tensor]) -> Tensor:
        order, requested = self._by_owner(nodes)
        received = torch.cat(self.ranks.exchange([read(some) for some in self.ranks.exchange(requested)]))
        return torch.empty_like(received).index_copy_(0, order, received)

    def in_degrees(self, nodes: Tensor) -> Tensor:
        return self._exchange(nodes, self.own.in_degrees)

    def features(self, nodes: Tensor) -> Tensor:
        return self._exchange(nodes, self.own.features)

    def in_edges(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        order, requested = self._by_owner(nodes)
        entering = [self.own.in_edges(some) for some in self.ranks.exchange(requested)]
        lengths = torch.cat(self.ranks.exchange([indptr.diff() for indptr, _ in entering]))
        sources = torch.cat(self.ranks.exchange([sources for _, sources in entering]))
        first = torch.empty_like(lengths).index_copy_(0, order, lengths.cumsum(0) - lengths)
        counts = torch.empty_like(lengths).index_copy_(0, order, lengths)
        pair, within = ragged(counts)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), sources[first[pair] + within]


class RowFetcher:
    """Routes of rows between processes, found once for some nodes and used often."""

    def __init__(self, source: RemoteGraph, nodes: Tensor) -> None:
        self.ranks = source.ranks
        self.order, requested = source._by_owner(nodes)
        self.counts = [len(some) for some in requested]
        self.owed = [source._local_rows(some) for some in self.ranks.exchange(requested)]

    def __call__(self, rows: Tensor) -> Tensor:
        """Return (len(nodes), columns) rows from (nodes of the part, columns) of all processes."""
        return _Fetched.apply(rows, self)


class _Fetched(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, routes: RowFetcher) -> Tensor:
        ctx.routes, ctx.shape = routes, rows.shape
        received = torch.cat(routes.ranks.exchange([rows[some] for some in routes.owed]))
        return torch.empty_like(received).index_copy_(0, routes.order, received)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of each row to its owner."""
        routes, (gradient,) = ctx.routes, gradients
        back = routes.ranks.exchange(list(gradient[routes.order].split(routes.counts)))
        total = gradient.new_zeros(ctx.shape)
        for owed, part in zip(routes.owed, back, strict=True):
            total.index_add_(0, owed, part)
        return total, None

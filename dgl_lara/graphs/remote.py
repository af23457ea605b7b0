"""A graph of which each process has one part: what lies elsewhere is asked of whoever has it.

All processes ask at the same time, each for what it needs, be it nothing: questions and answers cross the network in
`Ranks.exchange`. Rows that are computed, such as states of g, are fetched so that gradients go back to their owners.
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
from dgl_lara.graphs.mmap import MmapGraphView


class DistributedGraphView:
    """A `View` (see `mapped.py`) of the whole graph from the process that holds part `ranks.rank` of it."""

    def __init__(self, folder: Path | str, ranks: ProcessGroup) -> None:
        self.ranks, self.own = ranks, MmapGraphView(folder, only=ranks.rank)
        self.meta = self.own.meta
        if len(self.meta.parts) != ranks.count:
            raise InputError(
                f"{folder} has {len(self.meta.parts)} parts and there are {ranks.count} processes: there must be one "
                "for each part (--processes, torchrun --nproc-per-node), or one process for all of them."
            )
        self.num_nodes, self.num_edges, self.columns = self.meta.nodes, self.meta.edges, self.meta.columns
        self.has_loops, self.all_loops, self.folder = self.own.has_loops, self.own.all_loops, self.own.folder
        self.split = self.own.split

    @cached_property
    def nodes(self) -> Tensor:
        """Those of this part, rising."""
        return torch.from_numpy(np.array(self.own.parts[self.ranks.rank].nodes, np.int64))

    @cached_property
    def marks(self) -> np.ndarray:
        return np.full(self.num_nodes, -1, np.int32)

    def by_owner(self, nodes: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The order that puts those of one owner together, and the nodes of each."""
        owner, _ = self.own.part_of(nodes.numpy())
        order = torch.from_numpy(np.argsort(owner, kind="stable"))
        counts = np.bincount(owner, minlength=self.ranks.count).tolist()
        return order, list(nodes[order].split(counts))

    def rows_here(self, nodes: Tensor) -> Tensor:
        """Where nodes of this part stand in it."""
        return torch.from_numpy(self.own.part_of(nodes.numpy())[1])

    def _answered(self, nodes: Tensor, answer: Callable[[Tensor], Tensor]) -> Tensor:
        order, asked = self.by_owner(nodes)
        got = torch.cat(self.ranks.exchange([answer(some) for some in self.ranks.exchange(asked)]))
        return torch.empty_like(got).index_copy_(0, order, got)

    def in_degrees(self, nodes: Tensor) -> Tensor:
        return self._answered(nodes, self.own.in_degrees)

    def features(self, nodes: Tensor) -> Tensor:
        return self._answered(nodes, self.own.features)

    def in_edges(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        order, asked = self.by_owner(nodes)
        entering = [self.own.in_edges(some) for some in self.ranks.exchange(asked)]
        came = torch.cat(self.ranks.exchange([indptr.diff() for indptr, _ in entering]))
        sources = torch.cat(self.ranks.exchange([sources for _, sources in entering]))
        first = torch.empty_like(came).index_copy_(0, order, came.cumsum(0) - came)
        counts = torch.empty_like(came).index_copy_(0, order, came)
        pair, within = ragged(counts)
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), sources[first[pair] + within]


class RowFetcher:
    """From where rows of these nodes come, and to whom rows of this part go; found once, travelled often."""

    def __init__(self, view: DistributedGraphView, nodes: Tensor) -> None:
        self.ranks = view.ranks
        self.order, asked = view.by_owner(nodes)
        self.counts = [len(some) for some in asked]
        self.owed = [view.rows_here(some) for some in self.ranks.exchange(asked)]

    def __call__(self, rows: Tensor) -> Tensor:
        """(len(nodes), columns) from everybody's (nodes of the part, columns)."""
        return _Fetched.apply(rows, self)


class _Fetched(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, routes: RowFetcher) -> Tensor:
        ctx.routes, ctx.shape = routes, rows.shape
        got = torch.cat(routes.ranks.exchange([rows[some] for some in routes.owed]))
        return torch.empty_like(got).index_copy_(0, routes.order, got)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Whoever sent a row gets what became of it."""
        routes, (gradient,) = ctx.routes, gradients
        back = routes.ranks.exchange(list(gradient[routes.order].split(routes.counts)))
        total = gradient.new_zeros(ctx.shape)
        for owed, part in zip(routes.owed, back, strict=True):
            total.index_add_(0, owed, part)
        return total, None

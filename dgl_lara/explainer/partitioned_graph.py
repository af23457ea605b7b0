"""`PartGraph`: the nodes of one part as inputs of g, with in-neighbours of other parts fetched in every layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.graphs.graph import bipartite_block
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.graphs.remote import RemoteGraph, RowFetcher


@dataclass(frozen=True, eq=False)
class PartGraph(EncoderGraph):
    """A block from the nodes of the part and their neighbours elsewhere to the nodes of the part.

    One pass of g over it, in all processes at once, equals a pass over the full graph, with gradients.
    """

    elsewhere: RowFetcher

    def at_sources(self, rows: Tensor) -> Tensor:
        return torch.cat([rows, self.elsewhere(rows)])

    @staticmethod
    def of_part(source: RemoteGraph, inputs: Tensor) -> PartGraph:
        """Return the block of a part. `inputs` are those of its nodes."""
        own = source.nodes
        indptr, sources = source.own.in_edges(own)
        index, is_own = lookup_sorted(sources, own)
        others = torch.unique(sources[~is_own])
        index[~is_own] = len(own) + lookup_sorted(sources[~is_own], others)[0]
        loops, counts = torch.arange(len(own)), indptr.diff()
        src, dst = torch.cat([index, loops]), torch.cat([loops.repeat_interleave(counts), loops])
        block = bipartite_block(src, dst, len(own) + len(others), len(own))
        scale = (counts.float() + 1).rsqrt().unsqueeze(1)
        return PartGraph(block, scale, torch.tensor([len(own)]), inputs, RowFetcher(source, others))

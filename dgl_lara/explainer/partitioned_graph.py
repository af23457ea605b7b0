"""The nodes of one part as g sees them: their in-neighbours of other parts are fetched before every layer."""

from __future__ import annotations

from dataclasses import dataclass

import dgl
import torch
from torch import Tensor

from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.graphs.remote import DistributedGraphView, RowFetcher


@dataclass(frozen=True, eq=False)
class PartGraph(EncoderGraph):
    """`looped` is a block from the nodes of the part and their neighbours elsewhere to the nodes of the part. One pass
    of g over it, in all processes at once, is one over the whole graph, gradients included."""

    elsewhere: RowFetcher

    def at_sources(self, rows: Tensor) -> Tensor:
        return torch.cat([rows, self.elsewhere(rows)])

    @staticmethod
    def of_part(view: DistributedGraphView, inputs: Tensor) -> PartGraph:
        """`inputs`: of the nodes of this part."""
        own = view.nodes
        indptr, sources = view.own.in_edges(own)
        place, is_own = lookup_sorted(sources, own)
        others = torch.unique(sources[~is_own])
        place[~is_own] = len(own) + lookup_sorted(sources[~is_own], others)[0]
        loops, counts = torch.arange(len(own)), indptr.diff()
        src, dst = torch.cat([place, loops]), torch.cat([loops.repeat_interleave(counts), loops])
        block = dgl.create_block((src, dst), num_src_nodes=len(own) + len(others), num_dst_nodes=len(own))
        scale = (counts.float() + 1).rsqrt().unsqueeze(1)
        return PartGraph(block, scale, torch.tensor([len(own)]), inputs, RowFetcher(view, others))

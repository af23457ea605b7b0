"""Eq. 11 and 12: the subgraphs of a mini-batch of targets.

The K-hop subgraph serves the attribution: f is evaluated on it. The 2K-hop subgraph serves the update of g: t of a
target needs its K-hop neighbours, p of a K-hop neighbour needs K hops more.
"""

from __future__ import annotations

from collections.abc import Iterator

import dgl
import torch
from dgl.dataloading import MultiLayerFullNeighborSampler
from torch import Tensor

from dgl_lara.utils.randomness import generator


def attribution_subgraph(graph: dgl.DGLGraph, targets: Tensor, context: int) -> tuple[dgl.DGLGraph, Tensor, Tensor]:
    """Eq. 11: (subgraph, its nodes in the graph, where the targets are in it).

    `context` is K, or K + 1 where f normalises by the degrees of the boundary nodes.
    """
    subgraph, places = dgl.khop_in_subgraph(graph, targets, k=context, store_ids=True)
    nodes = subgraph.ndata.pop(dgl.NID)
    subgraph.edata.pop(dgl.EID)
    return subgraph, nodes, places


def explainer_nodes(graph: dgl.DGLGraph, targets: Tensor, hops: int) -> Tensor:
    """Eq. 12: the nodes within `hops` (2K) of a target, sorted."""
    input_nodes, _, _ = MultiLayerFullNeighborSampler(hops).sample_blocks(graph, targets)
    return input_nodes.sort().values  # the sampler's own order varies from run to run


def target_batches(targets: Tensor, size: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """Alg. 1, line 6: the targets of one epoch in random mini-batches. Seed and epoch say which, nothing else."""
    order = torch.randperm(len(targets), generator=generator(seed * 1_000_003 + epoch))
    yield from targets[order.to(targets.device)].split(size)


def some_targets(targets: Tensor, most: int, seed: int) -> Tensor:
    """All of them, or `most` drawn at random."""
    if len(targets) <= most:
        return targets
    return targets[torch.randperm(len(targets), generator=generator(seed))[:most].to(targets.device)].sort().values

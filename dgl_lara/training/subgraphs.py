"""Eq. 11 and 12: the subgraphs that a training step works on.

f is evaluated on the K-hop subgraph of a batch of targets. g is updated on the 2K-hop subgraph: t of a target needs its
K-hop neighbours, and p of a K-hop neighbour needs K more hops. If everything fits, both are the full graph, and one
random mask is a coalition for every target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara._util.randomness import generator

if TYPE_CHECKING:
    from dgl_lara.explainer.encoder import EncoderGraph
    from dgl_lara.explainer.network import Explainer
    from dgl_lara.game.game import Game
    from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph


@dataclass(frozen=True, eq=False)
class SubgraphEmbeddings:
    """g's embeddings of a batch of targets and of all nodes that may be their players."""

    graph: EncoderGraph  # the input of g
    nodes: Tensor  # (num_local,) its nodes, ascending
    p: Tensor  # (num_local, width), or what else the decoder computes from the nodes
    t: Tensor  # (num_targets, sides * width)


@dataclass(frozen=True, eq=False)
class NeighborSubgraphs:
    """Mini-batches: K hops for f, 2K hops for g."""

    game: Game
    encoder_graph: EncoderGraph  # of the full graph

    def batch(self, targets: Tensor) -> SharedSubgraph | EgoBatch:
        """Extract the subgraph of Eq. 11."""
        return self.game.player_set.batch(targets, self.game.context_hops)

    def embed(self, explainer: Explainer, targets: Tensor) -> SubgraphEmbeddings:
        """Embed the subgraph of Eq. 12."""
        task = self.game.task
        nodes = task.encoder_nodes(self.game.graph, targets, explainer.decoder.receptive_hops(explainer.config))
        subgraph = self.encoder_graph.part(nodes, task.encoder_sizes(self.encoder_graph.sizes, targets))
        p, t = explainer(subgraph)
        return SubgraphEmbeddings(subgraph, nodes, p, task.target_embeddings(t, targets, nodes))


@dataclass(frozen=True, eq=False)
class FullGraph:
    """All targets at once: both subgraphs are the full graph."""

    game: Game
    encoder_graph: EncoderGraph

    def batch(self, targets: Tensor) -> SharedSubgraph:
        return self.game.task.full_batch(self.game.graph, targets)

    def embed(self, explainer: Explainer, targets: Tensor) -> SubgraphEmbeddings:
        p, t = explainer(self.encoder_graph)
        nodes = torch.arange(self.game.graph.num_nodes(), device=p.device)
        return SubgraphEmbeddings(self.encoder_graph, nodes, p, self.game.task.target_embeddings(t, targets, None))


Subgraphs = NeighborSubgraphs | FullGraph


def target_batches(targets: Tensor, size: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """Yield the random mini-batches of an epoch (Algorithm 1, line 6). They depend on seed and epoch only."""
    order = torch.randperm(len(targets), generator=generator(seed * 1_000_003 + epoch))
    yield from targets[order.to(targets.device)].split(size)

"""Eq. 11 and 12: the parts of the graph that a step of training works on.

The K-hop subgraph of a batch of targets serves the attribution: f is evaluated on it. The 2K-hop subgraph serves the
update of g: t of a target needs its K-hop neighbours, p of a K-hop neighbour needs K hops more. Where everything fits
both are the whole graph, and one random mask is a coalition for every target at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_lara._util.randomness import generator
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.network import Explainer
from dgl_lara.game.game import Game
from dgl_lara.graphs.subgraph import EgoBatch, SharedSubgraph


@dataclass(frozen=True, eq=False)
class SubgraphEmbeddings:
    """What g says of a batch of targets and of everyone who may be their player."""

    graph: EncoderGraph  # what g saw
    nodes: Tensor  # (num_local,) which nodes those are, rising
    p: Tensor  # one row a node, or what else the form of the scores makes of them
    t: Tensor  # (num_targets, sides * width)


@dataclass(frozen=True, eq=False)
class NeighborSubgraphs:
    """Mini-batches: K hops for f, 2K hops for g."""

    game: Game
    encoder_graph: EncoderGraph  # the whole graph, as g sees it

    def batch(self, targets: Tensor) -> SharedSubgraph | EgoBatch:
        """Eq. 11."""
        return self.game.player_set.batch(targets, self.game.context_hops)

    def embed(self, explainer: Explainer, targets: Tensor) -> SubgraphEmbeddings:
        """Eq. 12."""
        task = self.game.task
        nodes = task.encoder_nodes(self.game.graph, targets, explainer.form.sight(explainer.config))
        part = self.encoder_graph.part(nodes, task.encoder_sizes(self.encoder_graph.sizes, targets))
        p, t = explainer(part)
        return SubgraphEmbeddings(part, nodes, p, task.target_embeddings(t, targets, nodes))


@dataclass(frozen=True, eq=False)
class FullGraph:
    """Everything at once: the same code, with the whole graph in the place of both subgraphs."""

    game: Game
    encoder_graph: EncoderGraph

    def batch(self, targets: Tensor) -> SharedSubgraph:
        return self.game.task.full_batch(self.game.graph, targets)

    def embed(self, explainer: Explainer, targets: Tensor) -> SubgraphEmbeddings:
        p, t = explainer(self.encoder_graph)
        everyone = torch.arange(self.game.graph.num_nodes(), device=p.device)
        return SubgraphEmbeddings(self.encoder_graph, everyone, p, self.game.task.target_embeddings(t, targets, None))


Subgraphs = NeighborSubgraphs | FullGraph


def target_batches(targets: Tensor, size: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """Alg. 1, line 6: the targets of one epoch in random mini-batches. Seed and epoch say which, nothing else."""
    order = torch.randperm(len(targets), generator=generator(seed * 1_000_003 + epoch))
    yield from targets[order.to(targets.device)].split(size)

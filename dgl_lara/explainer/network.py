"""The explainer g (Eq. 6, 7): a GraphConv encoder and two heads, source p and target t.

    phi_hat(j -> i, class c) = sum_d w_d(i, j) <p_j^(d) * m_c^(d), t_i^(d)>

The paper's form is the special case with one term, w = 1 and no m: <p_j, t_i>. The gate w says where j stands as
seen from i, which p_j alone cannot know:

    none   w = 1                                    (the paper)
    hop    w_d = 1 if j is d hops from i, else 0
    walk   w_d = (Â^d)_ij, the weight of all walks of d steps; exact for linear GNNs
    random-walk  w_d = (P^d)_ij, P = D^-1 (A + I): how much of i's average over d steps is j; exact for averaging GNNs

m_c lets one g explain every class: each logit of f is a game of its own and teaches g without extra model calls.
A graph task needs no gate, its target embedding is the max-pool of t over the graph (Eq. 7).
"""

from __future__ import annotations

from dataclasses import dataclass

import dgl
import torch
import torch.nn.functional as F
from dgl import ops
from dgl.nn.pytorch import GraphConv
from torch import Tensor, nn

from dgl_lara.game.players import Neighborhood, walk_weights


@dataclass(frozen=True)
class ExplainerConfig:
    """Everything that determines the shape of g; stored beside its weights."""

    task: str
    in_dim: int
    num_classes: int
    hops: int  # K of the explained model
    layers: int  # GraphConv layers of g; 0 makes it an MLP
    hidden: int = 64
    dim: int = 20
    gate: str = "walk"
    embedding: str = "dual"
    encoder: str = "residual"  # plain: the paper's stack of GraphConv and ReLU
    all_classes: bool = True

    @property
    def walks(self) -> bool:
        return self.gate in ("walk", "random-walk")

    @property
    def terms(self) -> int:
        """How many <p, t> a score sums: one a distance 0..K, or just one."""
        return 1 if self.gate == "none" or self.task == "graph" else self.hops + 1


@dataclass(frozen=True, eq=False)
class Surroundings:
    """A graph as the encoder sees it: with self-loops, and the GCN scale of each node in the *whole* graph.

    With the scale taken from the whole graph, a subgraph gives its inner nodes exactly the whole graph's embeddings.
    """

    looped: dgl.DGLGraph
    scale: Tensor  # (num_nodes, 1)
    sizes: Tensor  # nodes of each graph of the batch

    @staticmethod
    def of(graph: dgl.DGLGraph) -> Surroundings:
        looped = dgl.add_self_loop(graph)  # on top of the graph's own, as in `walk_scale`
        return Surroundings(looped, looped.in_degrees().float().rsqrt().unsqueeze(1), graph.batch_num_nodes())

    def induced(self, nodes: Tensor, sizes: Tensor) -> Surroundings:
        return Surroundings(dgl.node_subgraph(self.looped, nodes, store_ids=False), self.scale[nodes], sizes)


class Encoder(nn.Module):
    """GraphConv layers. `residual` adds skip connections and LayerNorm, and hands every layer's state to the heads."""

    def __init__(self, config: ExplainerConfig) -> None:
        super().__init__()
        self.residual = config.encoder == "residual"
        width = config.hidden
        self.first = nn.Linear(config.in_dim, width)
        # norm="none": the scale is folded into the features, so that it can come from the whole graph
        self.convs = nn.ModuleList(GraphConv(width, width, norm="none") for _ in range(config.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) if self.residual else nn.Identity() for _ in self.convs)
        self.out_dim = width * (config.layers + 1) if self.residual else width

    def forward(self, around: Surroundings, x: Tensor) -> Tensor:
        h = F.relu(self.first(x))
        states = [h]
        for conv, norm in zip(self.convs, self.norms, strict=True):
            # LayerNorm before the convolution: behind it, wide or deep encoders failed to train on MUTAG
            message = F.relu(conv(around.looped, norm(h) * around.scale) * around.scale)
            h = h + message if self.residual else message
            states.append(h)
        return torch.cat(states, dim=1) if self.residual else h


def make_head(config: ExplainerConfig, in_dim: int) -> nn.Module:
    """Linear; in a graph task, where no gate tells players apart, with one hidden layer."""
    width = config.terms * config.dim
    if config.task == "node" or config.encoder == "plain":
        return nn.Linear(in_dim, width)
    return nn.Sequential(nn.Linear(in_dim, config.hidden), nn.ReLU(), nn.Linear(config.hidden, width))


class Explainer(nn.Module):
    """g: embeddings of all nodes in one pass; scores of any pair from them."""

    centre: Tensor
    spread: Tensor
    clip: Tensor
    unit: Tensor

    def __init__(self, config: ExplainerConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.source_head = make_head(config, self.encoder.out_dim)
        self.target_head = make_head(config, self.encoder.out_dim) if config.embedding == "dual" else self.source_head
        classes, width = config.num_classes if config.all_classes else 0, config.terms * config.dim
        self.class_weight = nn.Parameter(0.5 + 0.5 * torch.randn(classes, width)) if classes else None
        # inputs are centred, scaled and clipped: unseen nodes cannot blow up; scores come in units of `unit`
        self.register_buffer("centre", torch.zeros(config.in_dim))
        self.register_buffer("spread", torch.ones(config.in_dim))
        self.register_buffer("clip", torch.tensor(torch.inf))
        self.register_buffer("unit", torch.ones(()))

    def forward(self, around: Surroundings, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """p of every node and t of every target (node, or graph: Eq. 7, the max-pool), rows of terms * dim."""
        h = self.encoder(around, self.normalised(inputs))
        p, t = self.embeddings(self.source_head(h), self.target_head(h), around.scale)
        return p, ops.segment_reduce(around.sizes, t, "max") if self.config.task == "graph" else t

    def embeddings(self, source: Tensor, target: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """p and t from what the heads say. P^d = diag(s) Â^d diag(1/s), s = scale: with the two ends' factors in p and
        t, a random walk needs no weights of its own."""
        if self.config.gate == "random-walk":
            source, target = source / scale, target * scale
        return source, target * self.unit.to(target.device)  # layer-wise passes have the rest in main memory

    def normalised(self, inputs: Tensor) -> Tensor:
        return (inputs - self.centre).div_(self.spread).clamp_(-self.clip, self.clip)

    def for_class(self, target: Tensor, classes: Tensor) -> Tensor:
        """t (rows, width), turned towards one class a row."""
        return target if self.class_weight is None else target * self.class_weight[classes]

    def all_class_weights(self) -> Tensor:
        """(num_classes or 1, width)"""
        if self.class_weight is None:
            return torch.ones(1, self.config.terms * self.config.dim, device=self.unit.device)
        return self.class_weight

    def gate(self, graph: dgl.DGLGraph, players: Neighborhood) -> Tensor:
        """w (num_pairs, terms) of (target, player) pairs; see the top of the file."""
        config = self.config
        if config.task == "graph" or config.gate == "none":
            return torch.ones(len(players.player), 1, device=players.player.device)
        if config.gate == "hop":
            return F.one_hot(players.hop, config.hops + 1).float()
        return walk_weights(graph, players, config.hops)

    def pair_products(self, p: Tensor, t: Tensor, gate: Tensor) -> Tensor:
        """(num_pairs, terms * dim): w_d p_j^(d) t_i^(d), to be summed with a class's weights. p, t: one row a pair."""
        return p * t * gate.repeat_interleave(self.config.dim, dim=1)


def pair_scores(explainer: Explainer, p: Tensor, t: Tensor, players: Neighborhood, gate: Tensor) -> Tensor:
    """Eq. 6, 7: phi_hat of every pair. p: one row a node; t: one row a target, already turned to its class.

    The dot products are one sampled product over all pairs; gated terms are added one after the other, so that
    memory stays at one number a pair.
    """
    dim = explainer.config.dim
    pairs = dgl.create_block(
        ("csc", (players.first, players.player, torch.empty(0, dtype=torch.long, device=p.device))),
        num_src_nodes=len(p),
        num_dst_nodes=len(t),
    )
    scores = torch.zeros(len(players.player), device=p.device)
    for term in range(explainer.config.terms):
        columns = slice(term * dim, (term + 1) * dim)
        dots = ops.u_dot_v(pairs, p[:, columns].contiguous(), t[:, columns].contiguous()).squeeze(1)
        scores += gate[:, term] * dots
    return scores

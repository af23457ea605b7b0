"""Target models f(graph, features) -> logits: GCN (the paper's), GAT, GIN, GraphSAGE, and GINE, which reads bonds.

One row a node (node task) or one row a graph of the batch (graph task). Nothing is stored on the graph.

LARA needs no more than that. Some of the methods it is compared with do, so our own models also take a weight for
every edge (a differentiable mask: 1 leaves the edge as it is, 0 takes its message away) and show their embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import dgl
import torch
import torch.nn.functional as F
from dgl import ops
from dgl.nn.pytorch import GATConv, GINConv, SAGEConv
from torch import Tensor, nn

from dgl_lara._util.schema import flag, number, validation_error, whole, word
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import InputError
from dgl_lara.game.receptive_field import MOST_HOPS
from dgl_lara.game.tasks import TASKS
from dgl_lara.gnns import ARCHITECTURES, EDGE_AWARE
from dgl_lara.gnns.base import ShippedModel
from dgl_lara.gnns.gine import BondLayer

READOUTS = {"max": ("max",), "max-mean": ("max", "mean")}
FIELDS = {
    "architecture": word(*ARCHITECTURES, *EDGE_AWARE), "task": word(*TASKS), "in_dim": whole(1, 2**31),
    "hidden": whole(1, 16_384), "num_classes": whole(1, 2**31), "layers": whole(1, MOST_HOPS),
    "readout": word(*READOUTS), "dropout": number, "divide_by_row_sum": flag, "weigh_degrees": flag,
}  # fmt: skip


@dataclass(frozen=True)
class ModelConfig:
    """Everything that determines the shape of a target model; stored beside its weights."""

    architecture: str
    task: str
    in_dim: int
    num_classes: int
    hidden: int = 20
    layers: int = 3
    readout: str = "max"
    dropout: float = 0.0
    divide_by_row_sum: bool = False  # the authors' node models expect features divided by their row sum
    weigh_degrees: bool = True  # GCN: the weight of an edge counts in the degrees too, so that 0 removes the edge

    def __post_init__(self) -> None:
        wrong = validation_error(vars(self), FIELDS)
        if wrong is None and not 0 <= self.dropout < 1:
            wrong = f"dropout must be in [0, 1) (got {self.dropout})"
        if wrong:
            raise InputError(f"the shape of a target model: {wrong}.")

    @staticmethod
    def of_dataset(dataset: Dataset) -> dict[str, Any]:
        """What the data decide."""
        if isinstance(dataset.features, dict) or dataset.pairs is not None:
            raise InputError(
                f"{', '.join(ARCHITECTURES + EDGE_AWARE)} classify nodes or graphs of one type; {dataset.name} is no "
                "such data set."
            )
        return {"task": dataset.task, "in_dim": dataset.features.shape[1], "num_classes": dataset.num_classes}

    @property
    def fewest_weights(self) -> int:
        return self.hidden * (self.in_dim + self.num_classes)


class GCNLayer(nn.Module):
    """D^-1/2 (A + I) D^-1/2 X W + b. The self-loop is added in the formula, so the graph is not rebuilt each pass."""

    def __init__(self, in_dim: int, out_dim: int, weigh_degrees: bool = True) -> None:
        super().__init__()
        self.weigh_degrees = weigh_degrees
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_dim, out_dim)))
        # not zero: with constant features and L2-normalised rows a zero bias makes all nodes look alike
        self.bias = nn.Parameter(nn.init.uniform_(torch.empty(out_dim), -(in_dim**-0.5), in_dim**-0.5))

    def forward(self, graph: dgl.DGLGraph, h: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weighed = edge_weight is not None and self.weigh_degrees
        degree = ops.copy_e_sum(graph, edge_weight) if weighed else graph.in_degrees().to(h.dtype)
        scale = (degree + 1).rsqrt().unsqueeze(1)  # (num_nodes, 1)
        h = (h @ self.weight) * scale
        return (pass_on(graph, h, edge_weight) + h) * scale + self.bias


def pass_on(graph: dgl.DGLGraph, h: Tensor, edge_weight: Tensor | None) -> Tensor:
    """The sum of the in-neighbours' rows."""
    if edge_weight is None:
        return ops.copy_u_sum(graph, h)
    return ops.u_mul_e_sum(graph, h, edge_weight.unsqueeze(1))


class GATLayer(nn.Module):
    """Graph attention (four heads, averaged) with a linear skip, so that an isolated node keeps its own features."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.attention = GATConv(in_dim, out_dim, num_heads=4, allow_zero_in_degree=True)
        self.skip = nn.Linear(in_dim, out_dim)

    def forward(self, graph: dgl.DGLGraph, h: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.attention(graph, h, edge_weight=edge_weight).mean(dim=1) + self.skip(h)


class SAGELayer(SAGEConv):
    """GraphSAGE with the mean of the neighbours; the same numbers as DGL's with half of its memory at the peak."""

    def forward(self, graph: dgl.DGLGraph, h: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        total, degree = pass_on(graph, h, edge_weight), graph.in_degrees().clamp(min=1).unsqueeze(1)
        if torch.is_grad_enabled():
            return torch.addmm(self.fc_self(h), total / degree, self.fc_neigh.weight.T)
        return self.fc_self(h).addmm_(total.div_(degree), self.fc_neigh.weight.T)


def make_layer(architecture: str, in_dim: int, out_dim: int, weigh_degrees: bool = True) -> nn.Module:
    if architecture == "gcn":
        return GCNLayer(in_dim, out_dim, weigh_degrees)
    if architecture == "gat":
        return GATLayer(in_dim, out_dim)
    if architecture == "gin":
        mlp = nn.Sequential(nn.Linear(in_dim, out_dim), nn.ReLU(), nn.Linear(out_dim, out_dim))
        return GINConv(mlp, "sum")
    if architecture == "sage":
        return SAGELayer(in_dim, out_dim, "mean")
    if architecture in EDGE_AWARE:
        return BondLayer(in_dim, out_dim, blind=architecture == "gine-blind")
    raise ValueError(f"architecture must be one of {', '.join(ARCHITECTURES + EDGE_AWARE)} (got '{architecture}').")


class GNN(ShippedModel):
    """Message-passing layers, then a linear head on all of them (node task) or on the pooled last one (graph task)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        widths = [config.in_dim] + [config.hidden] * config.layers
        self.layers = nn.ModuleList(
            make_layer(config.architecture, *pair, config.weigh_degrees)
            for pair in zip(widths, widths[1:], strict=False)
        )
        # a node's head sees all layers side by side, a graph's the pools of the last one
        pools = READOUTS[config.readout]
        self.pools = pools if config.task == "graph" else ()
        self.head = nn.Linear(config.hidden * (len(self.pools) or config.layers), config.num_classes)

    def forward(self, graph: dgl.DGLGraph, features: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        states = self.states(graph, features, edge_weight)
        if not self.pools:
            return self.read_out(states)
        sizes = graph.batch_num_nodes()
        pooled = [ops.segment_reduce(sizes, states[-1], pool) for pool in self.pools]
        return self.head(torch.cat(pooled, dim=1))

    def read_out(self, states: list[Tensor]) -> Tensor:
        """Logits of nodes: the head on all states side by side, without putting them there."""
        parts = self.head.weight.split(self.config.hidden, dim=1)
        return self.head.bias + sum(h @ part.T for h, part in zip(states, parts, strict=True))

    def states(self, graph: dgl.DGLGraph, features: Tensor, edge_weight: Tensor | None = None) -> list[Tensor]:
        """(num_nodes, hidden) after each layer."""
        h, states = features, []
        for place in range(len(self.layers)):
            h = self.layer(place, graph, h, edge_weight)
            states.append(h)
        return states

    def layer(self, place: int, graph: dgl.DGLGraph, h: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """One layer, which looks one hop far; of the first, h are the features."""
        h = divide_by_row_sum(h) if self.config.divide_by_row_sum and place == 0 else h
        layer = self.layers[place]
        h = layer(graph, h) if edge_weight is None else layer(graph, h, edge_weight=edge_weight)
        # L2-normalised rows as in the authors' models; their ReLU comes after
        h = F.relu(F.normalize(h, dim=1) if self.config.architecture == "gcn" else h, inplace=not h.requires_grad)
        return F.dropout(h, self.config.dropout, self.training)

    def embed(self, graph: dgl.DGLGraph, features: Tensor) -> Tensor:
        """(num_nodes, width): what the head of a node model sees, or what a graph model pools."""
        states = self.states(graph, features)
        return states[-1] if self.pools else torch.cat(states, dim=1)


def masking_messages_only(model: GNN) -> GNN:
    """The same model, whose edge weights leave the degrees alone: a mask on the normalised adjacency."""
    twin = GNN(replace(model.config, weigh_degrees=False)).to(model.head.weight.device)
    twin.load_state_dict(model.state_dict())
    return twin.requires_grad_(False).eval()


def divide_by_row_sum(features: Tensor) -> Tensor:
    total = features.sum(dim=1, keepdim=True)
    return torch.where(total == 0, features, features / torch.where(total == 0, 1, total))

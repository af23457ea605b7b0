"""GNNs f(graph, features) -> logits: GCN (the paper's), GAT, GIN, GraphSAGE, and GINE, which reads bonds.

They return one row per node (node task) or per graph of the batch (graph task). Some baselines need more than a black
box, so these models also take a weight for every edge (a differentiable mask: 0 removes the message) and return
embeddings.
"""

from __future__ import annotations

from typing import Annotated, Any

import dgl
import torch
import torch.nn.functional as F
from dgl import ops
from dgl.nn.pytorch import GATConv, GINConv, SAGEConv
from torch import Tensor, nn

from dgl_lara._util.settings import Choice, settings
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import InputError
from dgl_lara.game.tasks import TASKS
from dgl_lara.gnns import ARCHITECTURES, EDGE_AWARE
from dgl_lara.gnns.base import Dropout, Layers, ShippedModel, Size, Width
from dgl_lara.gnns.gine import BondLayer

READOUTS = {"max": ("max",), "max-mean": ("max", "mean")}


@settings
class ModelConfig:
    """The shape of a GNN.

    Args:
        architecture: "gcn", "gat", "gin", "sage", "gine" or "gine-blind".
        task: "node" or "graph".
        in_dim: Number of feature columns.
        num_classes: Number of classes.
        hidden: Width of the layers.
        layers: Number of layers.
        readout: Pooling of a graph task, "max" or "max-mean".
        dropout: Share of the hidden units dropped in training.
        divide_by_row_sum: Divide features by their row sum, as the authors' node models do.
        weigh_degrees: Let edge weights count in the degrees of a GCN, so that weight 0 removes the edge.
    """

    architecture: Annotated[str, Choice(ARCHITECTURES + EDGE_AWARE)]
    task: Annotated[str, Choice(tuple(TASKS))]
    in_dim: Size
    num_classes: Size
    hidden: Width = 20
    layers: Layers = 3
    readout: Annotated[str, Choice(tuple(READOUTS))] = "max"
    dropout: Dropout = 0.0
    divide_by_row_sum: bool = False
    weigh_degrees: bool = True

    @staticmethod
    def fields_of(dataset: Dataset) -> dict[str, Any]:
        """Return the settings that the data set determines."""
        if isinstance(dataset.features, dict) or dataset.pairs is not None:
            architectures = ", ".join(ARCHITECTURES + EDGE_AWARE)
            raise InputError("gnn.not_homogeneous", architectures=architectures, dataset=dataset.name)
        return {"task": dataset.task, "in_dim": dataset.features.shape[1], "num_classes": dataset.num_classes}

    @property
    def min_weights(self) -> int:
        """A lower bound on the number of weights."""
        return self.hidden * (self.in_dim + self.num_classes)


class GCNLayer(nn.Module):
    """D^-1/2 (A + I) D^-1/2 X W + b. The formula adds the self-loops, so the graph needs none."""

    def __init__(self, in_dim: int, out_dim: int, weigh_degrees: bool = True) -> None:
        super().__init__()
        self.weigh_degrees = weigh_degrees
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_dim, out_dim)))
        # not zero, because with constant features and L2-normalised rows all nodes would be equal
        self.bias = nn.Parameter(nn.init.uniform_(torch.empty(out_dim), -(in_dim**-0.5), in_dim**-0.5))

    def forward(self, graph: dgl.DGLGraph, h: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weighed = edge_weight is not None and self.weigh_degrees
        degree = ops.copy_e_sum(graph, edge_weight) if weighed else graph.in_degrees().to(h.dtype)
        scale = (degree + 1).rsqrt().unsqueeze(1)  # (num_nodes, 1)
        h = (h @ self.weight) * scale
        return (_sum_neighbours(graph, h, edge_weight) + h) * scale + self.bias


def _sum_neighbours(graph: dgl.DGLGraph, h: Tensor, edge_weight: Tensor | None) -> Tensor:
    """Return the sum of the in-neighbours' rows."""
    if edge_weight is None:
        return ops.copy_u_sum(graph, h)
    return ops.u_mul_e_sum(graph, h, edge_weight.unsqueeze(1))


class _GATLayer(nn.Module):
    """Graph attention (mean of four heads) with a linear skip, so that an isolated node keeps its features."""

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.attention = GATConv(in_dim, out_dim, num_heads=4, allow_zero_in_degree=True)
        self.skip = nn.Linear(in_dim, out_dim)

    def forward(self, graph: dgl.DGLGraph, h: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.attention(graph, h, edge_weight=edge_weight).mean(dim=1) + self.skip(h)


class SAGELayer(SAGEConv):
    """GraphSAGE with the mean of the neighbours, at half the peak memory of DGL's."""

    def forward(self, graph: dgl.DGLGraph, h: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        total, degree = _sum_neighbours(graph, h, edge_weight), graph.in_degrees().clamp(min=1).unsqueeze(1)
        if torch.is_grad_enabled():
            return torch.addmm(self.fc_self(h), total / degree, self.fc_neigh.weight.T)
        return self.fc_self(h).addmm_(total.div_(degree), self.fc_neigh.weight.T)


def _make_layer(architecture: str, in_dim: int, out_dim: int, weigh_degrees: bool = True) -> nn.Module:
    if architecture == "gcn":
        return GCNLayer(in_dim, out_dim, weigh_degrees)
    if architecture == "gat":
        return _GATLayer(in_dim, out_dim)
    if architecture == "gin":
        mlp = nn.Sequential(nn.Linear(in_dim, out_dim), nn.ReLU(), nn.Linear(out_dim, out_dim))
        return GINConv(mlp, "sum")
    if architecture == "sage":
        return SAGELayer(in_dim, out_dim, "mean")
    return BondLayer(in_dim, out_dim, blind=architecture == "gine-blind")


class GNN(ShippedModel):
    """Message-passing layers and a linear head on all of them (node task) or on the pooled last one (graph task)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        widths = [config.in_dim] + [config.hidden] * config.layers
        self.layers = nn.ModuleList(
            _make_layer(config.architecture, *pair, config.weigh_degrees)
            for pair in zip(widths, widths[1:], strict=False)
        )
        # the head reads all layers of a node, or the pooled last layer of a graph
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
        """Return the logits of nodes: the head on the concatenated states, without concatenating them."""
        parts = self.head.weight.split(self.config.hidden, dim=1)
        return self.head.bias + sum(h @ part.T for h, part in zip(states, parts, strict=True))

    def states(self, graph: dgl.DGLGraph, features: Tensor, edge_weight: Tensor | None = None) -> list[Tensor]:
        """Return (num_nodes, hidden) after each layer."""
        h, states = features, []
        for index in range(len(self.layers)):
            h = self.layer(index, graph, h, edge_weight)
            states.append(h)
        return states

    def layer(self, index: int, graph: dgl.DGLGraph, h: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return (num_nodes, hidden) after layer `index`. The input of the first one is the features."""
        h = divide_by_row_sum(h) if self.config.divide_by_row_sum and index == 0 else h
        layer = self.layers[index]
        h = layer(graph, h) if edge_weight is None else layer(graph, h, edge_weight=edge_weight)
        # L2-normalised rows before the ReLU, as in the authors' models
        h = F.relu(F.normalize(h, dim=1) if self.config.architecture == "gcn" else h, inplace=not h.requires_grad)
        return F.dropout(h, self.config.dropout, self.training)

    def embed(self, graph: dgl.DGLGraph, features: Tensor) -> Tensor:
        """Return (num_nodes, width) the input of a node model's head, or of a graph model's pooling."""
        states = self.states(graph, features)
        return states[-1] if self.pools else torch.cat(states, dim=1)


def divide_by_row_sum(features: Tensor) -> Tensor:
    """Divide rows by their sum, except those that sum to zero."""
    total = features.sum(dim=1, keepdim=True)
    return torch.where(total == 0, features, features / torch.where(total == 0, 1, total))

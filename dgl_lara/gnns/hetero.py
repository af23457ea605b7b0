"""GNNs for heterogeneous graphs: R-GCN and HGT, f(graph, {type: x}) -> logits of the target type.

Node types without nodes and relations without edges are allowed, because removal creates them.
"""

from __future__ import annotations

import warnings
from typing import Annotated, Any

import dgl
import torch
import torch.nn.functional as F
from dgl import ops
from dgl.nn.pytorch import HGTConv
from pydantic import Field
from torch import Tensor, nn

from dgl_lara._util.settings import Choice, settings
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import InputError
from dgl_lara.gnns import HETERO
from dgl_lara.gnns.base import Dropout, Layers, Relation, ShippedModel, Size, Width

# removal creates graphs without edges, about which DGL warns although it handles them
warnings.filterwarnings("ignore", message="The input graph for the user-defined edge function")
HEADS = 4  # of HGT, every width is a multiple of it


@settings
class HeteroConfig:
    """The shape of a GNN for heterogeneous graphs.

    Args:
        architecture: "rgcn" or "hgt".
        target_type: Node type that is classified.
        in_dims: Feature columns by node type, in the order of the graph.
        relations: (type, name, type), in the order of the graph.
        num_classes: Number of classes.
        hidden: Width of the layers.
        layers: Number of layers.
        dropout: Share of the hidden units dropped in training.
    """

    architecture: Annotated[str, Choice(HETERO)]
    target_type: str
    in_dims: dict[str, Size]
    relations: Annotated[tuple[Relation, ...], Field(min_length=1)]
    num_classes: Size
    hidden: Width = 64
    layers: Layers = 2
    dropout: Dropout = 0.0

    def __post_init__(self) -> None:
        needed = {self.target_type, *(end for relation in self.relations for end in relation[::2])}
        if not needed <= {*self.in_dims}:
            raise InputError("gnn.in_dims", expected=", ".join(sorted(needed)), got=", ".join(self.in_dims))
        if self.hidden % HEADS:
            raise InputError("gnn.hidden", heads=HEADS, got=self.hidden)

    @staticmethod
    def fields_of(dataset: Dataset) -> dict[str, Any]:
        """Return the settings that the data set determines."""
        if dataset.graph.is_homogeneous or dataset.target_type is None:
            raise InputError("gnn.not_hetero", architectures=" and ".join(HETERO), dataset=dataset.name)
        return {
            "target_type": dataset.target_type,
            "in_dims": {name: dataset.features[name].shape[1] for name in dataset.graph.ntypes},
            "relations": tuple(dataset.graph.canonical_etypes),
            "num_classes": dataset.num_classes,
        }

    @property
    def min_weights(self) -> int:
        """A lower bound on the number of weights."""
        return self.hidden * (sum(self.in_dims.values()) + self.num_classes)


class HeteroGNN(ShippedModel):
    """A linear layer per node type, message passing over all relations, and a linear head on the target type."""

    def __init__(self, config: HeteroConfig) -> None:
        super().__init__()
        self.config = config
        # lists, not dicts, because a node type may have names that a module may not
        self.inputs = nn.ModuleList(nn.Linear(dim, config.hidden) for dim in config.in_dims.values())
        make = {"rgcn": _RelationalLayer, "hgt": _TransformerLayer}[config.architecture]
        self.layers = nn.ModuleList(make(config) for _ in range(config.layers))
        self.head = nn.Linear(config.hidden, config.num_classes)

    def forward(self, graph: dgl.DGLGraph, features: dict[str, Tensor]) -> Tensor:
        inputs = zip(self.config.in_dims, self.inputs, strict=True)
        h = {name: F.relu(linear(features[name])) for name, linear in inputs}
        for layer in self.layers:
            h = {name: F.dropout(rows, self.config.dropout, self.training) for name, rows in layer(graph, h).items()}
        return self.head(h[self.config.target_type])


class _RelationalLayer(nn.Module):
    """R-GCN: h_i' = ReLU(W_0 h_i + sum_r mean_{j in N_r(i)} W_r h_j), with one W_0 per node type."""

    def __init__(self, config: HeteroConfig) -> None:
        super().__init__()
        self.types, self.relations = tuple(config.in_dims), config.relations
        self.own = nn.ModuleList(nn.Linear(config.hidden, config.hidden) for _ in self.types)
        self.passed = nn.ModuleList(nn.Linear(config.hidden, config.hidden, bias=False) for _ in self.relations)

    def forward(self, graph: dgl.DGLGraph, h: dict[str, Tensor]) -> dict[str, Tensor]:
        new = {name: linear(h[name]) for name, linear in zip(self.types, self.own, strict=True)}
        for relation, linear in zip(self.relations, self.passed, strict=True):
            start, _, end = relation
            if graph.num_edges(relation):
                degree = graph.in_degrees(etype=relation).clamp(min=1).unsqueeze(1)
                new[end] = new[end] + ops.copy_u_sum(graph[relation], linear(h[start])) / degree
        return {name: F.relu(rows) for name, rows in new.items()}


class _TransformerLayer(nn.Module):
    """HGT: attention over all in-neighbours of a node, with weights for each node type and relation."""

    def __init__(self, config: HeteroConfig) -> None:
        super().__init__()
        self.types, self.relations = tuple(config.in_dims), config.relations
        sizes = len(self.types), len(self.relations)
        self.attention = HGTConv(config.hidden, config.hidden // HEADS, HEADS, *sizes, dropout=config.dropout)

    def forward(self, graph: dgl.DGLGraph, h: dict[str, Tensor]) -> dict[str, Tensor]:
        counts = torch.tensor([graph.num_nodes(name) for name in self.types], device=graph.device)
        first = dict(zip(self.types, (counts.cumsum(0) - counts).tolist(), strict=True))
        ends = [graph.edges(etype=relation) for relation in self.relations]
        pairs = list(zip(ends, self.relations, strict=True))
        src = torch.cat([src + first[start] for (src, _), (start, _, _) in pairs])
        dst = torch.cat([dst + first[end] for (_, dst), (_, _, end) in pairs])
        homogeneous = dgl.graph((src, dst), num_nodes=int(counts.sum()))
        sizes = torch.tensor([len(src) for src, _ in ends], device=graph.device)
        type_ids = (torch.arange(len(one), device=graph.device).repeat_interleave(one) for one in (counts, sizes))
        rows = self.attention(homogeneous, torch.cat([h[name] for name in self.types]), *type_ids, presorted=True)
        return dict(zip(self.types, rows.split(counts.tolist()), strict=True))

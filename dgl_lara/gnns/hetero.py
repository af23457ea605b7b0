"""Target models for graphs of several node types: R-GCN and HGT, f(graph, {type: x}) -> logits of the target type.

Types without nodes and relations without edges are nothing special: removal makes them. Nothing is stored on the graph.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import dgl
import torch
import torch.nn.functional as F
from dgl import ops
from dgl.nn.pytorch import HGTConv
from torch import Tensor, nn

from dgl_lara._util.schema import Check, number, text, validation_error, whole, word
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import InputError
from dgl_lara.game.receptive_field import MOST_HOPS
from dgl_lara.gnns import HETERO
from dgl_lara.gnns.base import ShippedModel, dims_by_type, relations

Relation = tuple[str, str, str]
# removal leaves graphs without edges, of which DGL warns before it does the right thing
warnings.filterwarnings("ignore", message="The input graph for the user-defined edge function")
HEADS = 4  # of HGT; every width is a multiple of it


FIELDS: dict[str, Check] = {
    "architecture": word(*HETERO), "target_type": text,
    "in_dims": dims_by_type, "relations": relations, "num_classes": whole(1, 2**31), "hidden": whole(1, 16_384),
    "layers": whole(1, MOST_HOPS), "dropout": number,
}  # fmt: skip


@dataclass(frozen=True)
class HeteroConfig:
    """Everything that determines the shape of the model; stored beside its weights."""

    architecture: str
    target_type: str
    in_dims: dict[str, int]  # of each node type, in the order of the graph
    relations: tuple[Relation, ...]  # in the order of the graph
    num_classes: int
    hidden: int = 64
    layers: int = 2
    dropout: float = 0.0

    def __post_init__(self) -> None:
        wrong = validation_error(vars(self), FIELDS)
        if wrong is None and not 0 <= self.dropout < 1:
            wrong = f"dropout must be in [0, 1) (got {self.dropout})"
        ends = () if wrong else (end for relation in self.relations for end in relation[::2])
        if wrong is None and not {self.target_type, *ends} <= {*self.in_dims}:
            wrong = f"in_dims must name the types of all relations (got {', '.join(self.in_dims)})"
        if wrong is None and self.hidden % HEADS:
            wrong = f"hidden must be a multiple of {HEADS} (got {self.hidden})"
        if wrong:
            raise InputError(f"the shape of a target model: {wrong}.")

    @staticmethod
    def of_dataset(dataset: Dataset) -> dict[str, Any]:
        """What the data decide."""
        if dataset.graph.is_homogeneous or dataset.target_type is None:
            raise InputError(
                f"{' and '.join(HETERO)} classify nodes of one type in a graph of several; {dataset.name} is not one."
            )
        return {
            "target_type": dataset.target_type,
            "in_dims": {kind: dataset.features[kind].shape[1] for kind in dataset.graph.ntypes},
            "relations": tuple(dataset.graph.canonical_etypes),
            "num_classes": dataset.num_classes,
        }

    @property
    def fewest_weights(self) -> int:
        return self.hidden * (sum(self.in_dims.values()) + self.num_classes)


class HeteroGNN(ShippedModel):
    """A linear layer for each type, then message passing over all relations, then a linear head on the target type."""

    def __init__(self, config: HeteroConfig) -> None:
        super().__init__()
        self.config = config
        # lists, not dicts: a type may have any name, a module may not
        self.inputs = nn.ModuleList(nn.Linear(dim, config.hidden) for dim in config.in_dims.values())
        make = {"rgcn": RelationalLayer, "hgt": TransformerLayer}[config.architecture]
        self.layers = nn.ModuleList(make(config) for _ in range(config.layers))
        self.head = nn.Linear(config.hidden, config.num_classes)

    def forward(self, graph: dgl.DGLGraph, features: dict[str, Tensor]) -> Tensor:
        h = {
            kind: F.relu(linear(features[kind])) for kind, linear in zip(self.config.in_dims, self.inputs, strict=True)
        }
        for layer in self.layers:
            h = {kind: F.dropout(rows, self.config.dropout, self.training) for kind, rows in layer(graph, h).items()}
        return self.head(h[self.config.target_type])


class RelationalLayer(nn.Module):
    """R-GCN: h_i' = ReLU(W_0 h_i + sum_r mean_{j in N_r(i)} W_r h_j), with W_0 for each type."""

    def __init__(self, config: HeteroConfig) -> None:
        super().__init__()
        self.types, self.relations = tuple(config.in_dims), config.relations
        self.own = nn.ModuleList(nn.Linear(config.hidden, config.hidden) for _ in self.types)
        self.passed = nn.ModuleList(nn.Linear(config.hidden, config.hidden, bias=False) for _ in self.relations)

    def forward(self, graph: dgl.DGLGraph, h: dict[str, Tensor]) -> dict[str, Tensor]:
        new = {kind: own(h[kind]) for kind, own in zip(self.types, self.own, strict=True)}
        for relation, linear in zip(self.relations, self.passed, strict=True):
            start, _, end = relation
            if graph.num_edges(relation):
                degree = graph.in_degrees(etype=relation).clamp(min=1).unsqueeze(1)
                new[end] = new[end] + ops.copy_u_sum(graph[relation], linear(h[start])) / degree
        return {kind: F.relu(rows) for kind, rows in new.items()}


class TransformerLayer(nn.Module):
    """HGT: attention among all in-neighbours of a node, with weights by the types of nodes and relations."""

    def __init__(self, config: HeteroConfig) -> None:
        super().__init__()
        self.types, self.relations = tuple(config.in_dims), config.relations
        sizes = len(self.types), len(self.relations)
        self.attention = HGTConv(config.hidden, config.hidden // HEADS, HEADS, *sizes, dropout=config.dropout)

    def forward(self, graph: dgl.DGLGraph, h: dict[str, Tensor]) -> dict[str, Tensor]:
        counts = torch.tensor([graph.num_nodes(kind) for kind in self.types], device=graph.device)
        first = dict(zip(self.types, (counts.cumsum(0) - counts).tolist(), strict=True))
        ends = [graph.edges(etype=relation) for relation in self.relations]
        pairs = list(zip(ends, self.relations, strict=True))
        src = torch.cat([src + first[start] for (src, _), (start, _, _) in pairs])
        dst = torch.cat([dst + first[end] for (_, dst), (_, _, end) in pairs])
        alike = dgl.graph((src, dst), num_nodes=int(counts.sum()))
        sizes = torch.tensor([len(src) for src, _ in ends], device=graph.device)
        numbers = (torch.arange(len(part), device=graph.device).repeat_interleave(part) for part in (counts, sizes))
        rows = self.attention(alike, torch.cat([h[kind] for kind in self.types]), *numbers, presorted=True)
        return dict(zip(self.types, rows.split(counts.tolist()), strict=True))

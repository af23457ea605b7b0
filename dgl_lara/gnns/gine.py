"""GINE layers, which read bond types from `graph.edata["bond"]`, and their blind twin with equally many weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from dgl import ops
from torch import Tensor, nn

from dgl_lara.datasets import BOND, BONDS
from dgl_lara.errors import InputError
from dgl_lara.graphs.graph import Graph


class BondLayer(nn.Module):
    """h_i' = MLP(x_i + sum_j ReLU(x_j + W_e e_ij)), x = W h. The blind layer sees one average bond type."""

    def __init__(self, in_dim: int, out_dim: int, blind: bool) -> None:
        super().__init__()
        self.blind = blind
        self.lift = nn.Linear(in_dim, out_dim)
        self.bond = nn.Linear(len(BONDS), out_dim, bias=False)
        self.mlp = nn.Sequential(nn.Linear(out_dim, out_dim), nn.ReLU(), nn.Linear(out_dim, out_dim))

    def forward(self, graph: Graph, h: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x, bond = self.lift(h), self.bond(self._bonds(graph, h))
        message = F.relu(x[graph.edges()[0]] + bond)  # (num_edges, out_dim)
        if edge_weight is not None:
            message = message * edge_weight.unsqueeze(1)
        return self.mlp(x + ops.copy_e_sum(graph, message))

    def _bonds(self, graph: Graph, h: Tensor) -> Tensor:
        """Return (num_edges, bond types) one-hot bonds."""
        if self.blind:
            return torch.full((graph.num_edges(), len(BONDS)), 1 / len(BONDS), dtype=h.dtype, device=h.device)
        if BOND not in graph.edata or graph.edata[BOND].shape[1:] != (len(BONDS),):
            carried = ", ".join(graph.edata) or "no edge data"
            raise InputError("gine.no_bonds", name=BOND, columns=", ".join(BONDS), got=carried)
        return graph.edata[BOND]

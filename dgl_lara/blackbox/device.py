"""f on another device than the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dgl_lara.graphs.graph import Graph


class OnDevice(nn.Module):
    """f that moves its arguments to the device of the model and its outputs back."""

    def __init__(self, model: Callable, device: torch.device) -> None:
        super().__init__()
        self.model = model.to(device) if isinstance(model, nn.Module) else model
        self.device = device
        if hasattr(model, "num_hops"):
            self.num_hops = model.num_hops

    def forward(self, graph: Graph, features: Tensor | Mapping[str, Tensor], *ends: Tensor) -> Any:
        home = graph.device
        moved = features.to(self.device) if isinstance(features, Tensor) else _move(features, self.device)
        outputs = self.model(graph.to(self.device), moved, *(end.to(self.device) for end in ends))
        return outputs.to(home) if isinstance(outputs, Tensor) else _move(outputs, home)


def _move(by_type: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: rows.to(device) for name, rows in by_type.items()}

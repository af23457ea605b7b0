"""f on a device of its own, for data that stays in main memory."""

from __future__ import annotations

from collections.abc import Callable

import dgl
import torch
from torch import Tensor, nn


class OnDevice(nn.Module):
    """What it is called with goes to the device of the model, and its answer back."""

    def __init__(self, model: Callable, device: torch.device) -> None:
        super().__init__()
        self.model = model.to(device) if isinstance(model, nn.Module) else model
        self.device = device
        if hasattr(model, "num_hops"):
            self.num_hops = model.num_hops

    def forward(self, graph: dgl.DGLGraph, features: Tensor) -> Tensor:
        return self.model(graph.to(self.device), features.to(self.device)).to(features.device)

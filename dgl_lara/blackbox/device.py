"""f on a device of its own, for data that stays in main memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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

    def forward(self, graph: dgl.DGLGraph, features: Tensor | Mapping[str, Tensor], *ends: Tensor) -> Any:
        there = [end.to(self.device) for end in ends]
        if isinstance(features, Tensor):
            return self.model(graph.to(self.device), features.to(self.device), *there).to(features.device)
        answer = self.model(graph.to(self.device), {kind: x.to(self.device) for kind, x in features.items()}, *there)
        back = graph.device
        return answer.to(back) if isinstance(answer, Tensor) else {kind: part.to(back) for kind, part in answer.items()}

"""What a model of PyTorch Geometric returns, by its `ModelConfig`, as logits.

Log-probabilities are logits as they are (their softmax is the probabilities); probabilities become these, and the one
probability of a binary model its log-odds. What is explained then is log p of a class, as PyG's own losses take it,
unless `value` asks for the probability itself.
"""

from __future__ import annotations

from collections.abc import Callable

import dgl
import torch
from torch import Tensor
from torch_geometric.explain.config import ModelConfig, ModelMode, ModelReturnType

from dgl_lara.blackbox.adapter import ModelAdapter
from dgl_lara.blackbox.call import Model
from dgl_lara.errors import ModelError

SMALLEST = 1e-7  # probability; the logarithm of 0 could not be explained


class AsLogits(ModelAdapter):
    """f that answers with logits (of a regression: with its one output), whatever the model returns."""

    mode: ModelMode
    returns: ModelReturnType

    def forward(self, graph: dgl.DGLGraph, features: Tensor) -> Tensor:
        output = self.model(graph, features)
        if not isinstance(output, Tensor):
            return output  # `blackbox` has a sentence for it
        columns = output.shape[1] if output.dim() > 1 else 1
        if columns != 1 and self.mode != ModelMode.multiclass_classification:
            raise ModelError(
                f"a model for {self.mode.value} must return one number a row (got {columns}); explain one of them, or "
                "say mode='multiclass_classification'."
            )
        if columns == 1 and self.mode == ModelMode.multiclass_classification:
            raise ModelError("a model of several classes must return a column a class (got one); is its mode binary?")
        if self.returns != ModelReturnType.probs:
            return output
        p = output.clamp(min=SMALLEST)
        return torch.logit(p, eps=SMALLEST) if self.mode == ModelMode.binary_classification else p.log()


def as_logits(f: Callable, config: ModelConfig) -> Model:
    return AsLogits(f, mode=config.mode, returns=config.return_type)

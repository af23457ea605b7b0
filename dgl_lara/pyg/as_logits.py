"""The output of a PyTorch Geometric model as logits, by its `ModelConfig`.

Log-probabilities are logits already (their softmax is the probabilities). Probabilities become their logarithms, and
the single probability of a binary model becomes its log-odds. The explained value is then log p of a class, as in PyG's
own losses, unless `value` is the probability itself.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.explain.config import ModelConfig, ModelMode, ModelReturnType

from dgl_lara.blackbox.adapter import ModelAdapter
from dgl_lara.blackbox.call import Model
from dgl_lara.errors import ModelError
from dgl_lara.graphs.graph import Graph

MIN_PROBABILITY = 1e-7  # the logarithm of 0 is not finite


class _AsLogits(ModelAdapter):
    """A model that returns logits (a regression model its one output), whatever the wrapped model returns."""

    mode: ModelMode
    returns: ModelReturnType

    def forward(self, graph: Graph, features: Tensor) -> Tensor:
        output = self.model(graph, features)
        if not isinstance(output, Tensor):
            return output  # `blackbox` raises an error
        columns = output.shape[1] if output.dim() > 1 else 1
        if columns != 1 and self.mode != ModelMode.multiclass_classification:
            raise ModelError("pyg.several_columns", mode=self.mode.value, got=columns)
        if columns == 1 and self.mode == ModelMode.multiclass_classification:
            raise ModelError("pyg.one_column")
        if self.returns != ModelReturnType.probs:
            return output
        p = output.clamp(min=MIN_PROBABILITY)
        return torch.logit(p, eps=MIN_PROBABILITY) if self.mode == ModelMode.binary_classification else p.log()


def as_logits(f: Callable, config: ModelConfig) -> Model:
    """Wrap a model of PyTorch Geometric so that it returns logits."""
    return _AsLogits(f, mode=config.mode, returns=config.return_type)

"""A model called in another way, and the model inside: what every adapter is made of."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn


class ModelAdapter(nn.Module):
    """A model called in another way. It stays a submodule, so that eval mode reaches its dropout.

    Each way of calling is a class of its own, not a local function, so that an adapted model can be stored whole.
    """

    def __init__(self, model: Callable, **settings: Any) -> None:
        super().__init__()
        self.model = model
        if hasattr(model, "num_hops"):
            self.num_hops = model.num_hops
        for name, value in settings.items():
            setattr(self, name, value)

    @property
    def has_weights(self) -> bool:
        """Parts of its own that can have learned, beside the model."""
        return bool(self._modules.keys() - {"model"})

    def rewrap(self, model: Callable) -> ModelAdapter:
        """The same adapter around another model."""
        other = copy.copy(self)
        vars(other).update(_modules=dict(self._modules))
        other.model = model
        return other


def unwrap(model: Callable) -> Callable:
    """The model inside its adapters."""
    while isinstance(model, ModelAdapter):
        model = model.model
    return model


def holding_weights(model: Callable) -> Callable:
    """The same, unless an adapter on the way holds weights too: then that one."""
    while isinstance(model, ModelAdapter) and not model.has_weights:
        model = model.model
    return model

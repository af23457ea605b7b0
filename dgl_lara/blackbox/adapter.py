"""Base class of all adapters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn


class ModelAdapter(nn.Module):
    """A model behind another call signature.

    The model is a submodule, so that eval mode reaches its dropout. Adapters are classes and not local functions, so
    that they can be pickled.
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
        """The adapter has submodules besides the model."""
        return bool(self._modules.keys() - {"model"})

    def rewrap(self, model: Callable) -> ModelAdapter:
        """Return a copy of the adapter around another model."""
        other = copy.copy(self)
        vars(other).update(_modules=dict(self._modules))
        other.model = model
        return other


def unwrap(model: Callable) -> Callable:
    """Return the model inside its adapters."""
    while isinstance(model, ModelAdapter):
        model = model.model
    return model


def unwrap_to_weights(model: Callable) -> Callable:
    """Return the outermost adapter that has weights of its own, or else the model inside."""
    while isinstance(model, ModelAdapter) and not model.has_weights:
        model = model.model
    return model

"""Base class of the shipped GNNs, and the types of their settings."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from torch import nn

from dgl_lara.game.receptive_field import MAX_HOPS

Size = Annotated[int, Field(ge=1, le=2**31)]
Width = Annotated[int, Field(ge=1, le=16_384)]
Layers = Annotated[int, Field(ge=1, le=MAX_HOPS)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
Relation = tuple[str, str, str]


class ShippedModel(nn.Module):
    """A GNN whose shape is determined by its `config`, which is stored with the weights."""

    config: Any  # with at least architecture, hidden and layers

    @property
    def num_hops(self) -> int:
        """K, the depth of the receptive field."""
        return self.config.layers

"""What all models that ship with dgl-lara have in common: a shape in plain values, stored beside the weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from dgl_lara._util.schema import whole


class ShippedModel(nn.Module):
    config: Any  # a frozen dataclass with at least architecture, hidden and layers

    @property
    def num_hops(self) -> int:
        """K: how far the model looks."""
        return self.config.layers


def dims_by_type(value: object) -> str | None:
    """A check of a stored shape: how many features the nodes of each type have."""
    fits = isinstance(value, dict) and all(isinstance(kind, str) for kind in value)
    fits = fits and not any(whole(1, 2**31)(dim) for dim in value.values())  # type: ignore[attr-defined]
    return None if fits and value else "the number of features of each node type"


def relations(value: object) -> str | None:
    fits = isinstance(value, tuple) and all(not relation(one) for one in value)
    return None if fits and value else "relations (type, name, type)"


def relation(value: object) -> str | None:
    fits = isinstance(value, tuple) and len(value) == 3 and all(isinstance(part, str) for part in value)
    return None if fits else "a relation (type, name, type)"

"""Decoders, one file for each player set. The names are read without importing torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgl_lara._util.registry import Registry

if TYPE_CHECKING:
    from dgl_lara.explainer.decoder import Decoder

DECODERS: Registry[Decoder] = Registry(__name__, "DECODER", first=("nodes", "edges", "features"))

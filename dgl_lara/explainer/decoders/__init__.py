"""How scores are put together, one file a kind of player; `form.py` says what they have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgl_lara._util.registry import Registry

if TYPE_CHECKING:
    from dgl_lara.explainer.decoder import Decoder

DECODERS: Registry[Decoder] = Registry(__name__, "FORM", first=("nodes", "edges", "features"))

"""Gates, one file each. The names are read without importing torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgl_lara._util.registry import Registry

if TYPE_CHECKING:
    from dgl_lara.explainer.gate import Gate

GATES: Registry[Gate] = Registry(__name__, "GATE", first=("none", "hop", "walk", "random-walk"))

"""Objectives, one file each. `objective.py` has what they share. Importing this loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgl_lara._util.registry import Registry

if TYPE_CHECKING:
    from dgl_lara.training.objective import Objective

OBJECTIVES: Registry[Objective] = Registry(
    __name__, "OBJECTIVE", first=("balanced", "least-squares", "running-mean", "mutual-information")
)

"""Objectives, one file each; `objective.py` says what they have in common. Light: the command line reads the names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgl_lara._util.registry import Registry

if TYPE_CHECKING:
    from dgl_lara.training.objective import Objective

OBJECTIVES: Registry[Objective] = Registry(
    __name__, "OBJECTIVE", first=("balanced", "least-squares", "running-mean", "mutual-information")
)

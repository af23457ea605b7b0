"""Methods to compare with, one file each. `common/method.py` has what they share. Importing this loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgl_lara._util.registry import Registry

if TYPE_CHECKING:
    from dgl_lara.baselines.common.method import Method

# in the order of the tables. Added methods come after these
BASELINES: Registry[type[Method]] = Registry(
    __name__,
    "METHOD",
    first=(
        "random", "gradient", "abs-gradient", "gnn-explainer", "pg-explainer", "graphsvx", "orphicx", "fastdnx",
        "sampled",
    ),
)  # fmt: skip

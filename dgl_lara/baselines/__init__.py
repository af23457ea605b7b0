"""Methods to compare with, one file each, called as the file is called; `common/method.py` says what they share.

Light: the command line reads the names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgl_lara._util.registry import Registry

if TYPE_CHECKING:
    from dgl_lara.baselines.common.method import Method

# in the order of the tables; what is added later comes behind
BASELINES: Registry[type[Method]] = Registry(
    __name__,
    "METHOD",
    first=(
        "random", "gradient", "abs-gradient", "gnn-explainer", "pg-explainer", "graphsvx", "orphicx", "fastdnx",
        "sampled",
    ),
)  # fmt: skip

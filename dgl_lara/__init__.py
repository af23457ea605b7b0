"""dgl-lara: explain any graph neural network in one feed-forward pass (LARA, on DGL)."""

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dgl_lara.explanation import Explanation, Explanations
    from dgl_lara.game.player_specs import Edges, Features, Nodes
    from dgl_lara.lara import LARA
    from dgl_lara.lara import explain as explain
    from dgl_lara.runs.open import open_run
    from dgl_lara.training.config import TrainingConfig

__version__ = "0.1.0"
__all__ = [
    "LARA", "Edges", "Explanation", "Explanations", "Features", "Nodes", "TrainingConfig", "__version__", "explain",
    "open_run",
]  # fmt: skip

# Set before torch and dgl load. Otherwise idle OpenMP threads spin, which makes a GCN epoch on few cores take up to ten
# times as long, and dgl writes a settings file into the home folder.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("DGLBACKEND", "pytorch")

_HOMES = {
    "LARA": ("lara", "LARA"),
    "explain": ("lara", "explain"),
    "Explanation": ("explanation", "Explanation"),
    "Explanations": ("explanation", "Explanations"),
    "Nodes": ("game.player_specs", "Nodes"),
    "Edges": ("game.player_specs", "Edges"),
    "Features": ("game.player_specs", "Features"),
    "open_run": ("runs.open", "open_run"),
    "TrainingConfig": ("training.config", "TrainingConfig"),
}


def __getattr__(name: str) -> object:
    """Load heavy names on first use, so that `dgl-lara --help` needs no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dgl_lara' has no attribute '{name}'")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(f"dgl_lara.{module}"), attribute)


def __dir__() -> list[str]:
    return __all__

"""Run folders: configuration, training state and results of trained explainers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dgl_lara.runs.open import open_run as open_run


def __getattr__(name: str) -> object:
    """Load `open_run` on first use, because it needs torch."""
    if name == "open_run":
        from dgl_lara.runs.open import open_run

        return open_run
    raise AttributeError(f"module 'dgl_lara.runs' has no attribute '{name}'")

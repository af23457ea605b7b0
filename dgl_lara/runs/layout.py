"""Which folder a run is, and what continues it: told from names alone, before anything is loaded."""

from __future__ import annotations

import shlex
from pathlib import Path

from dgl_lara.constants import PLAYERS

FEATURE_GROUPS = "feature_groups.json"
FILES = (
    "config.json", "environment.json", FEATURE_GROUPS, "target.pt", "weights.pt", "metrics.csv", "checkpoint.pt",
    "explainer.pt", "samples.pt", "embeddings.pt",
)  # fmt: skip


def is_of_a_run(path: Path) -> bool:
    """One of the files that make a run, which no result may replace."""
    return path.name in FILES and (run_itself(path.parent) / "config.json").exists()


def run_itself(folder: Path) -> Path:
    """Explainers of other players than the first lie in folders of their own within the run."""
    is_part = folder.name in PLAYERS and not (folder / "config.json").exists()
    return folder.parent if is_part and (folder.parent / "config.json").exists() else folder


def how_to_go_on(folder: Path, runs_code: bool) -> str:
    """The command; `runs_code`: the run explains a model of the user's own, whose code is run only where that is
    said."""
    return f"dgl-lara train --resume {shlex.quote(str(run_itself(folder)))}" + " --trust" * runs_code

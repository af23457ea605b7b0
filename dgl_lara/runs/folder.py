"""Names and places of the files of a run. Nothing is loaded to answer a question here."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

from dgl_lara import constants
from dgl_lara.constants import PLAYERS
from dgl_lara.errors import InputError, LaraError

RUNS = Path(constants.RUNS)
FEATURE_GROUPS = "feature_groups.json"
FILES = (
    "config.json", "environment.json", FEATURE_GROUPS, "target.pt", "weights.pt", "metrics.csv", "checkpoint.pt",
    "explainer.pt", "samples.pt", "embeddings.pt",
)  # fmt: skip


def is_run_file(path: Path) -> bool:
    """Return whether a path is one of the files that make a run. No result may replace these."""
    return path.name in FILES and (run_root(path.parent) / "config.json").exists()


def run_root(folder: Path) -> Path:
    """Return the folder of the run that a folder belongs to. Each further player set has a folder within the run."""
    is_part = folder.name in PLAYERS and not (folder / "config.json").exists()
    return folder.parent if is_part and (folder.parent / "config.json").exists() else folder


def resume_command(folder: Path, runs_code: bool) -> str:
    """Return the command that continues a training.

    Args:
        folder: Folder of the run, or of one of its player sets.
        runs_code: The model is the user's own, so its code has to be trusted.
    """
    return f"dgl-lara train --resume {shlex.quote(str(run_root(folder)))}" + " --trust" * runs_code


def check_unused(folder: Path) -> None:
    """Raise InputError if there is a run in the folder."""
    if (folder / "config.json").exists():
        raise InputError("run.exists", folder=folder)


def new_folder(dataset: str) -> Path:
    """Return runs/<dataset>-<time>, with a number appended if that folder exists."""
    folder = candidate = RUNS / f"{dataset}-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 2
    while candidate.exists():
        candidate, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return candidate


def newest_run(dataset: str | None = None) -> Path:
    """Return the folder of the newest run in runs/, preferably of a trained one.

    Args:
        dataset: Consider only runs of this data set.

    Raises:
        InputError: If there is no run.
    """
    candidates = []
    for path in RUNS.glob("*/config.json"):
        try:
            run_dataset = json.loads(path.read_text()).get("dataset")
        except (OSError, ValueError, AttributeError, RecursionError):
            continue  # damaged
        if dataset in (None, run_dataset):
            candidates.append((is_trained(path.parent), path.stat().st_mtime_ns, path.parent))
    if not candidates:
        raise InputError("run.none", of=f" of {dataset}" if dataset else "", dataset=dataset or "NAME")
    return max(candidates)[2]


def is_trained(folder: Path) -> bool:
    """Return whether a run holds an explainer for any player set."""
    return any(folder.rglob("explainer.pt"))


def not_trained(folder: Path, runs_code: bool) -> LaraError:
    """Return the error about a run without an explainer."""
    return LaraError("run.not_trained", folder=folder, command=resume_command(folder, runs_code))

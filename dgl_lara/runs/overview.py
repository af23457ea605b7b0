"""Runs at a glance, from their small files alone, so that listing them takes no time.

Damaged or missing files show as missing values, because a list is there to find out which runs are complete.
"""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dgl_lara._util.registry import closest
from dgl_lara.constants import PLAYERS
from dgl_lara.errors import InputError, LaraError
from dgl_lara.runs.folder import FILES, RUNS, resume_command, run_root

# What dgl-lara writes into a run folder. Anything else there is the user's.
OURS = re.compile(
    "|".join(map(re.escape, FILES)) + r"|report\.html"
    r"|eval(-(train|val))?-[a-z]+(-\d+)?\.(csv|json|png|pdf)"
)
REQUIRED = ("dataset", "options", "hops", "value", "training", "preset")  # entries of every config.json

FIGURES = {"fidelity": ("fidelity+", "fidelity-", "delta"), "agreement": ("R2 corrected", "neighbours only")}


@dataclass(frozen=True)
class RunSummary:
    """A run folder, summarised from its small files.

    Args:
        folder: Folder of the run, or of one of its player sets.
    """

    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        return _json(run_root(self.folder) / "config.json")

    @cached_property
    def environment(self) -> dict[str, Any]:
        return _json(run_root(self.folder) / "environment.json")

    @cached_property
    def history(self) -> list[dict[str, str]]:
        try:
            with (self.folder / "metrics.csv").open(newline="") as file:
                return list(csv.DictReader(file))
        except (OSError, csv.Error, UnicodeDecodeError):
            return []

    @property
    def damage(self) -> str:
        """Return the entries that config.json lacks. Empty if it is complete."""
        return ", ".join(name for name in REQUIRED if name not in self.config)

    @property
    def started(self) -> str:
        return str(self.environment.get("time", "-"))

    @property
    def model(self) -> str:
        own = self.config.get("model")
        return f"{own.get('module')}:{own.get('function')}" if isinstance(own, dict) else "dgl-lara's own"

    @property
    def dataset(self) -> str:
        return Path(str(self.config.get("dataset", "-"))).name

    @property
    def training(self) -> dict[str, Any]:
        return _as_table(self.config.get("training"))

    @property
    def agreement(self) -> float | None:
        """Return the best validation agreement."""
        return max((float(row["agreement"]) for row in self.history if _is_float(row.get("agreement"))), default=None)

    @property
    def steps(self) -> int | None:
        done = [row.get("step", "") for row in self.history]
        return int(done[-1]) if done and done[-1].isdigit() else None

    @property
    def stopped(self) -> str:
        """Return how far an unfinished training came, such as "220 of 400 steps". Empty if it is finished."""
        unit = "epoch" if self.training.get("epochs") is not None else "step"
        done, requested = (self.history[-1].get(unit, "") if self.history else ""), self.training.get(f"{unit}s")
        if not (self.is_trained and done.isdigit() and isinstance(requested, int) and int(done) < requested):
            return ""
        return f"{done} of {requested} {unit}s"

    @property
    def is_being_trained(self) -> bool:
        """Return whether a process holds the lock of the folder, as training does."""
        try:
            handle = os.open(self.folder, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
        finally:
            os.close(handle)
        return False

    @property
    def resume_command(self) -> str:
        return resume_command(self.folder, isinstance(self.config.get("model"), dict))

    @property
    def is_trained(self) -> bool:
        return (self.folder / "explainer.pt").is_file()

    @cached_property
    def evaluations(self) -> dict[str, dict[str, Any]]:
        """Return the content of each evaluation by file name, the newest last."""
        paths = sorted(self.folder.glob("eval*.json"), key=lambda path: path.stat().st_mtime_ns)
        return {path.stem: _json(path) for path in paths}

    def outdated_step(self, evaluation: dict[str, Any]) -> str:
        """Return the step of the explainer that was evaluated. Empty if it is the present one."""
        step = _as_table(evaluation.get("question")).get("steps", self.steps)
        return "" if step == self.steps else str(step)

    @property
    def figures(self) -> dict[str, tuple[float, int]]:
        """Return each figure of LARA with its number of targets (0: unknown), over the most targets evaluated."""
        figures: dict[str, tuple[float, int]] = {}
        current = [content for content in self.evaluations.values() if not self.outdated_step(content)]
        for content in sorted(current, key=_num_targets):
            for metric, row in _lara_rows(content):
                names = {
                    "fidelity": ("fidelity+", "fidelity-", "delta"),
                    "agreement": ("R2 corrected", "neighbours only"),
                }
                label = "{}, " + str(row.get("definition")) if metric == "fidelity" else "{}"
                measured = [name for name in names.get(metric, ()) if row.get(name) is not None]
                if row["method"] == "lara":
                    figures |= {label.format(name): (row[name], _num_targets(content)) for name in measured}
        return figures

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.files)


def all_runs() -> list[RunSummary]:
    """Return the runs in runs/, the newest first."""
    configs = [path for path in RUNS.glob("*/config.json") if path.is_file()]
    return [RunSummary(path.parent) for path in sorted(configs, key=lambda path: -path.stat().st_mtime_ns)]


def find_run(name: str, allow_damaged: bool = False) -> RunSummary:
    """Return a run.

    Args:
        name: Folder of the run, or its name in runs/.
        allow_damaged: Return the run even if its config.json lacks entries.

    Raises:
        InputError: If there is no such run.
        LaraError: If its config.json lacks entries.
    """
    for folder in (Path(name), RUNS / name):
        if (folder / "config.json").is_file():
            run = RunSummary(folder)
            if run.damage and not allow_damaged:
                raise LaraError("run.damaged", folder=folder, missing=run.damage, name=name)
            return run
    raise InputError("run.unknown", name=name, hint=closest(name, [run.folder.name for run in all_runs()]))


def lara_table(content: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Return header and rows of LARA's figures in one evaluation. Fidelity is averaged over sparsities."""
    rows = [
        {name: value for name, value in row.items() if name not in ("sparsity", "reference")}
        for _, row in _lara_rows(content)
    ]
    header = list(dict.fromkeys(name for row in rows for name in row))
    return header, [[row.get(name) for name in header] for row in rows]


def delete_run(run: RunSummary) -> list[Path]:
    """Remove the files of a run.

    Returns:
        Files that stay, because dgl-lara did not write them.

    Raises:
        LaraError: If the run is being trained.
    """
    from dgl_lara._util.atomic import locked  # loads torch, which lists of runs do without

    folders = {run.folder, *(run.folder / players for players in PLAYERS)}
    with ExitStack() as locks:
        for folder in filter(Path.is_dir, folders):
            locks.enter_context(locked(folder))
        kept = [path for path in run.files if path.parent not in folders or not OURS.fullmatch(path.name)]
        for path in run.files:
            if path not in kept and path.name != "config.json":
                path.unlink()
        (run.folder / "config.json").unlink()  # last, because a folder with a config can be deleted again
        if not kept:
            for folder in sorted((path for path in run.folder.rglob("*") if path.is_dir()), reverse=True):
                folder.rmdir()
            run.folder.rmdir()
    return kept


def _json(path: Path) -> dict[str, Any]:
    try:
        return _as_table(json.loads(path.read_text()))
    except (OSError, ValueError, RecursionError):
        return {}


def _as_table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _lara_rows(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield metric and row of each of LARA's figures in an evaluation."""
    for metric, rows in content.items():
        for row in filter(lambda row: isinstance(row, dict), rows if isinstance(rows, list) else []):
            if str(row.get("method", "")).startswith("lara") and row.get("sparsity", "average") == "average":
                yield metric, row


def _num_targets(content: dict[str, Any]) -> int:
    count = _as_table(content.get("question")).get("targets")
    return count if isinstance(count, int) else 0


def _is_float(text: str | None) -> bool:
    try:
        return text is not None and float(text) == float(text)
    except ValueError:
        return False

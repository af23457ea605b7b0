"""Runs at a glance: what is in a folder, told from its small files alone, so that a list of them takes no time.

Whatever is damaged or missing is shown as missing: a list is for finding out which runs are good.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dgl_lara.choices import PLAYERS, RUNS
from dgl_lara.errors import InputError, LaraError
from dgl_lara.utils.registry import closest

# What dgl-lara writes into a run folder; anything else there is the user's.
OURS = re.compile(
    r"(config|environment)\.json|metrics\.csv|(target|weights|checkpoint|explainer|samples|embeddings)\.pt|report\.html"
    r"|eval(-(train|val))?-[a-z]+(-\d+)?\.(csv|json|png|pdf)"
)
Rows = tuple[list[str], list[list[object]]]


@dataclass(frozen=True)
class Overview:
    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        return _json(self.folder / "config.json")

    @cached_property
    def environment(self) -> dict[str, Any]:
        return _json(self.folder / "environment.json")

    @cached_property
    def history(self) -> list[dict[str, str]]:
        try:
            with (self.folder / "metrics.csv").open(newline="") as file:
                return list(csv.DictReader(file))
        except (OSError, csv.Error, UnicodeDecodeError):
            return []

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
        found = self.config.get("training")
        return found if isinstance(found, dict) else {}

    @property
    def agreement(self) -> float | None:
        """The best on the validation split."""
        return max((float(row["agreement"]) for row in self.history if _is_float(row.get("agreement"))), default=None)

    @property
    def steps(self) -> int | None:
        done = [row.get("step", "") for row in self.history]
        return int(done[-1]) if done and done[-1].isdigit() else None

    @property
    def is_trained(self) -> bool:
        return (self.folder / "explainer.pt").is_file()

    @cached_property
    def evaluations(self) -> dict[str, dict[str, Any]]:
        """File name -> content, the newest last."""
        paths = sorted(self.folder.glob("eval*.json"), key=lambda path: path.stat().st_mtime_ns)
        return {path.stem: _json(path) for path in paths}

    @property
    def figures(self) -> dict[str, float]:
        """LARA's own of the newest evaluation of each kind."""
        found: dict[str, float] = {}
        for content in self.evaluations.values():
            for row in _rows_of(content, "fidelity"):
                if row.get("method") == "lara" and row.get("sparsity") == "average":
                    measures = [name for name in ("fidelity+", "fidelity-", "delta") if name in row]
                    found |= {f"{name}, {row.get('definition')}": row[name] for name in measures}
            for row in _rows_of(content, "agreement"):
                if row.get("method") == "lara":
                    found |= {name: row[name] for name in ("R2 corrected", "neighbours only") if name in row}
        return found

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.files)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _rows_of(content: dict[str, Any], metric: str) -> list[dict[str, Any]]:
    rows = content.get(metric)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _is_float(text: str | None) -> bool:
    try:
        return text is not None and float(text) == float(text)
    except ValueError:
        return False


def all_runs() -> list[Overview]:
    """Those in runs/, the newest first."""
    found = [path for path in Path(RUNS).glob("*/config.json") if path.is_file()]
    return [Overview(path.parent) for path in sorted(found, key=lambda path: -path.stat().st_mtime_ns)]


def find(name: str) -> Overview:
    """A run by its folder, or by its name in runs/."""
    for folder in (Path(name), Path(RUNS) / name):
        if (folder / "config.json").is_file():
            return Overview(folder)
    known = [run.folder.name for run in all_runs()]
    hint = closest(name, known)
    raise InputError(f"there is no run '{name}', here or in {RUNS}/.{hint} `dgl-lara runs` lists them.")


def listing(runs: Sequence[Overview]) -> Rows:
    header = ["run", "started", "data set", "model", "steps", "agreement", "delta kept", "MB"]
    rows: list[list[object]] = []
    for run in runs:
        delta = run.figures.get("delta, kept", run.figures.get("delta, paper"))
        state = run.agreement if run.is_trained else "not trained yet"
        size = f"{run.size / 2**20:.1f}"
        rows.append([run.folder.name, run.started, run.dataset, run.model, run.steps, state, delta, size])
    return header, rows


def settings(run: Overview) -> dict[str, object]:
    """Everything that was chosen, by name."""
    options = run.config.get("options")
    plain = {
        name: value for name, value in run.config.items() if name not in ("options", "training", "model", "dataset")
    }
    return {
        "data set": run.config.get("dataset"),
        **{f"data: {name}": value for name, value in (options if isinstance(options, dict) else {}).items()},
        "model": run.model,
        **plain,
        **{f"training: {name}": value for name, value in run.training.items()},
        **{f"version of {name}": version for name, version in run.environment.get("versions", {}).items()},
    }


def comparison(one: Overview, other: Overview) -> Rows:
    """What differs in the settings, and all figures, side by side."""
    first, second = settings(one), settings(other)
    rows: list[list[object]] = [
        [name, _shown(first.get(name)), _shown(second.get(name))]
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    ]
    rows += [
        ["steps", one.steps, other.steps],
        ["validation agreement", one.agreement, other.agreement],
    ]
    names = dict.fromkeys([*one.figures, *other.figures])
    rows += [[name, one.figures.get(name), other.figures.get(name)] for name in names]
    return ["", one.folder.name, other.folder.name], rows


def _shown(value: object) -> str:
    return "-" if value is None else str(value)


def as_options(run: Overview) -> dict[str, object]:
    """What `dgl-lara train` was, or could have been, told to make this run; also what it has no option for."""
    config, options, own = run.config, run.config.get("options"), run.config.get("model")
    if not run.training or not isinstance(options, dict):
        raise LaraError(f"{run.folder / 'config.json'} cannot be understood; its settings are lost.")
    training = dict(run.training)
    given: dict[str, object] = {"dataset": config.get("dataset"), "source": options.get("source")}
    given |= {"data-dir": options.get("data_dir"), "data-seed": options.get("seed"), "nodes": options.get("nodes")}
    given |= {"undirected": options.get("undirected") or None}
    if isinstance(own, dict):
        weights = run.folder / "weights.pt"
        given |= {"model": run.model, "weights": weights.resolve() if weights.is_file() else None}
    else:
        given["target"] = (run.folder / "target.pt").resolve()
    given |= {name: config.get(name) for name in ("hops", "value", "preset")}
    given |= _players(config.get("players"))
    training["batch_size"] = training.get("batch_size") or "all"
    return given | {name.replace("_", "-"): value for name, value in training.items()}


def _players(held: object) -> dict[str, object]:
    """The options that say who is scored. Groups of features stood in a file of the user's, which is not kept."""
    rows = [row for row in held if isinstance(row, dict)] if isinstance(held, list) else []
    if [row.get("kind") for row in rows] in ([], ["nodes"]):
        return {}
    told: dict[str, object] = {"players": [row.get("kind") for row in rows]}
    for row in rows:
        if row.get("kind") == "edges":
            told["directed-edges"] = row.get("directed") or None
        elif row.get("kind") == "features":
            told |= {"features-of": row.get("of"), "baseline": row.get("baseline")}
    return told


def delete(run: Overview) -> list[Path]:
    """Remove what dgl-lara wrote; returns what stays, because it is not ours."""
    rooms = {run.folder, *(run.folder / kind for kind in PLAYERS)}  # explainers of other players have their own
    foreign = [path for path in run.files if path.parent not in rooms or not OURS.fullmatch(path.name)]
    for path in run.files:
        if path not in foreign and path.name != "config.json":
            path.unlink()
    (run.folder / "config.json").unlink()  # last: a folder with a config is a run, and can be deleted again
    if not foreign:
        for folder in sorted((path for path in run.folder.rglob("*") if path.is_dir()), reverse=True):
            folder.rmdir()
        run.folder.rmdir()
    return foreign

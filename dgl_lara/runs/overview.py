"""Runs at a glance: what is in a folder, told from its small files alone, so that a list of them takes no time.

Whatever is damaged or missing is shown as missing: a list is for finding out which runs are good.
"""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dgl_lara._util.registry import closest
from dgl_lara.constants import PLAYERS, RUNS
from dgl_lara.errors import InputError, LaraError
from dgl_lara.explanation.sentence import doubt
from dgl_lara.runs.layout import FEATURE_GROUPS, FILES, how_to_go_on, run_itself

# What dgl-lara writes into a run folder; anything else there is the user's.
OURS = re.compile(
    "|".join(map(re.escape, FILES)) + r"|report\.html"
    r"|eval(-(train|val))?-[a-z]+(-\d+)?\.(csv|json|png|pdf)"
)
HELD = ("dataset", "options", "hops", "value", "training", "preset")  # by the config.json of every run
Rows = tuple[list[str], list[list[object]]]


@dataclass(frozen=True)
class RunSummary:
    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        return _json(run_itself(self.folder) / "config.json")

    @cached_property
    def environment(self) -> dict[str, Any]:
        return _json(run_itself(self.folder) / "environment.json")

    @cached_property
    def history(self) -> list[dict[str, str]]:
        try:
            with (self.folder / "metrics.csv").open(newline="") as file:
                return list(csv.DictReader(file))
        except (OSError, csv.Error, UnicodeDecodeError):
            return []

    @property
    def damage(self) -> str:
        """What is wrong with its config.json; empty where nothing is."""
        lacking = [name for name in HELD if name not in self.config]
        if not self.config:
            return "it holds none of them"
        return f"it lacks {', '.join(lacking)}" if lacking else ""

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
        """The best on the validation split."""
        return max((float(row["agreement"]) for row in self.history if _is_float(row.get("agreement"))), default=None)

    @property
    def steps(self) -> int | None:
        done = [row.get("step", "") for row in self.history]
        return int(done[-1]) if done and done[-1].isdigit() else None

    @property
    def stopped(self) -> str:
        """How far its training came, where that was stopped: '220 of 400 steps'; empty where it was not."""
        unit = "epoch" if self.training.get("epochs") is not None else "step"
        done, wanted = (self.history[-1].get(unit, "") if self.history else ""), self.training.get(f"{unit}s")
        if not (self.is_trained and done.isdigit() and isinstance(wanted, int) and int(done) < wanted):
            return ""
        return f"{done} of {wanted} {unit}s"

    @property
    def is_being_trained(self) -> bool:
        """Somebody holds the lock of the folder, as whoever trains does."""
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
    def caveats(self) -> list[str]:
        """What whoever explains with it should know."""
        stopped = (
            f"the training of this run was stopped after {self.stopped}: its scores are not corrected; go on with: "
            f"{self.again}"
        )
        if self.is_being_trained:
            stopped = f"this run is being trained, {self.stopped} so far: its scores are not corrected yet"
        return list(filter(None, [stopped if self.stopped else "", doubt(self.agreement)]))

    @property
    def again(self) -> str:
        """The command that continues its training."""
        return how_to_go_on(self.folder, isinstance(self.config.get("model"), dict))

    @property
    def is_trained(self) -> bool:
        return (self.folder / "explainer.pt").is_file()

    @cached_property
    def evaluations(self) -> dict[str, dict[str, Any]]:
        """File name -> content, the newest last."""
        paths = sorted(self.folder.glob("eval*.json"), key=lambda path: path.stat().st_mtime_ns)
        return {path.stem: _json(path) for path in paths}

    def came_before(self, evaluation: dict[str, Any]) -> str:
        """The step after which an explainer was evaluated that has learned on since; empty where it is that of now."""
        step = _as_table(evaluation.get("question")).get("steps", self.steps)
        return "" if step == self.steps else str(step)

    @property
    def figures(self) -> dict[str, float]:
        """LARA's own, of the evaluation over the most targets of each kind (the newest of these), under names that say
        how many these are: what was measured on other targets is not put side by side."""
        return {f"{name} ({many} targets)" if many else name: value for name, (value, many) in self.judged.items()}

    @property
    def judged(self) -> dict[str, tuple[float, int]]:
        """Name -> figure, and over how many targets (0: the file does not say)."""
        found: dict[str, tuple[float, int]] = {}
        of_now = [content for content in self.evaluations.values() if not self.came_before(content)]
        for content in sorted(of_now, key=_targets_of):
            many = _targets_of(content)
            for row in _rows_of(content, "fidelity"):
                if row.get("method") == "lara" and row.get("sparsity") == "average":
                    measures = [name for name in ("fidelity+", "fidelity-", "delta") if name in row]
                    found |= {f"{name}, {row.get('definition')}": (row[name], many) for name in measures}
            for row in _rows_of(content, "agreement"):
                if row.get("method") == "lara":
                    told = [name for name in ("R2 corrected", "neighbours only") if row.get(name) is not None]
                    found |= {name: (row[name], many) for name in told}
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
    return _as_table(content)


def _as_table(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _rows_of(content: dict[str, Any], metric: str) -> list[dict[str, Any]]:
    rows = content.get(metric)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def own_figures(content: dict[str, Any]) -> Rows:
    """LARA's own in one evaluation, whatever its metric: a row a method, of fidelity the averages over sparsities."""
    header: list[str] = []
    rows = []
    for metric in content:
        for row in _rows_of(content, metric):
            if str(row.get("method", "")).startswith("lara") and row.get("sparsity", "average") == "average":
                rows.append({name: value for name, value in row.items() if name not in ("sparsity", "reference")})
                header += [name for name in rows[-1] if name not in header]
    return header, [[row.get(name) for name in header] for row in rows]


def _targets_of(content: dict[str, Any]) -> int:
    many = _as_table(content.get("question")).get("targets")
    return many if isinstance(many, int) else 0


def _is_float(text: str | None) -> bool:
    try:
        return text is not None and float(text) == float(text)
    except ValueError:
        return False


def all_runs() -> list[RunSummary]:
    """Those in runs/, the newest first."""
    found = [path for path in Path(RUNS).glob("*/config.json") if path.is_file()]
    return [RunSummary(path.parent) for path in sorted(found, key=lambda path: -path.stat().st_mtime_ns)]


def find(name: str, damaged_too: bool = False) -> RunSummary:
    """A run by its folder, or by its name in runs/."""
    for folder in (Path(name), Path(RUNS) / name):
        if (folder / "config.json").is_file():
            found = RunSummary(folder)
            if found.damage and not damaged_too:
                raise LaraError(
                    f"{folder / 'config.json'} must hold {', '.join(HELD)} ({found.damage}); put a copy of it back, or "
                    f"train anew. `dgl-lara runs delete {name}` removes the run."
                )
            return found
    known = [run.folder.name for run in all_runs()]
    hint = closest(name, known)
    raise InputError(f"there is no run '{name}', here or in {RUNS}/.{hint} `dgl-lara runs` lists them.")


def listing(runs: Sequence[RunSummary]) -> Rows:
    header = ["run", "started", "data set", "model", "steps", "agreement", "delta", "targets", "MB"]
    rows: list[list[object]] = []
    for run in runs:
        delta, many = run.judged.get("delta, kept", run.judged.get("delta, paper", (None, 0)))
        state = "damaged" if run.damage else run.agreement if run.is_trained else "not trained yet"
        size = f"{run.size / 2**20:.1f}"
        steps = f"{run.steps} ({'in training' if run.is_being_trained else 'stopped'})" if run.stopped else run.steps
        rows.append([run.folder.name, run.started, run.dataset, run.model, steps, state, delta, many or None, size])
    return header, rows


def settings(run: RunSummary) -> dict[str, object]:
    """Everything that was chosen, by name; options of the command line by theirs."""
    apart = ("options", "training", "model", "dataset", "players", "data")
    by_epochs = run.training.get("epochs") is not None  # then nobody looks at the steps
    training = {name: value for name, value in run.training.items() if not (by_epochs and name == "steps")}
    if "batch_size" in training:
        training["batch_size"] = training["batch_size"] or "all"
    return {
        "data set": run.config.get("dataset"),
        **{f"data: {_hyphened(name)}": value for name, value in _as_table(run.config.get("options")).items()},
        "model": run.model,
        "players": who_plays(run.config.get("players")),
        **{name: value for name, value in run.config.items() if name not in apart},
        **{f"training: {_hyphened(name)}": value for name, value in training.items()},
        "checksum of the data": run.config.get("data"),
        **{f"version of {name}": version for name, version in _as_table(run.environment.get("versions")).items()},
    }


def _hyphened(name: str) -> str:
    return name.replace("_", "-")


def who_plays(held: object) -> str:
    """'nodes, edges (directed no), features (of field, baseline zero, groups 12)'; runs of 0.1.0 say nothing of it."""
    told = []
    for row in _player_rows(held):
        about = {name: len(value) if isinstance(value, list) else value for name, value in row.items()}
        kind = str(about.pop("kind", "-"))
        more = ", ".join(f"{name} {plainly(value)}" for name, value in about.items() if value is not None)
        told.append(f"{kind} ({more})" if more else kind)
    return ", ".join(told) or "nodes"


def plainly(value: object) -> str:
    """A setting, in full."""
    return {None: "-", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)


def comparison(one: RunSummary, other: RunSummary) -> Rows:
    """What differs in the settings, and all figures, side by side."""
    first, second = settings(one), settings(other)
    rows: list[list[object]] = [
        [name, plainly(first.get(name)), plainly(second.get(name))]
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


def as_options(run: RunSummary) -> dict[str, object]:
    """What `dgl-lara train` was, or could have been, told to make this run; also what it has no option for."""
    config, options, own = run.config, _as_table(run.config.get("options")), run.config.get("model")
    training = dict(run.training)
    given: dict[str, object] = {"dataset": config.get("dataset"), "source": options.get("source")}
    given |= {"data-dir": options.get("data_dir"), "data-seed": options.get("seed"), "nodes": options.get("nodes")}
    given |= {name: options.get(name.replace("-", "_")) or None for name in ("undirected", "leave-out")}
    given |= {name: options.get(name.replace("-", "_")) for name in ("target-type", "pairs", "relation")}
    if isinstance(own, dict):
        weights = run.folder / "weights.pt"
        given |= {"model": run.model, "weights": weights.resolve() if weights.is_file() else None}
    else:
        given["target"] = (run.folder / "target.pt").resolve()
    given |= {name: config.get(name) for name in ("hops", "value", "preset")}
    given |= _players(config.get("players"))
    groups = run.folder / FEATURE_GROUPS
    given["feature-groups"] = groups.resolve() if groups.is_file() else None
    training["batch_size"] = training.get("batch_size") or "all"
    return given | {_hyphened(name): value for name, value in training.items()}


def _players(held: object) -> dict[str, object]:
    """The options that say who is scored, but for groups of features, which have a file of their own."""
    rows = _player_rows(held)
    if [row.get("kind") for row in rows] in ([], ["nodes"]):
        return {}
    told: dict[str, object] = {"players": [row.get("kind") for row in rows]}
    for row in rows:
        if row.get("kind") == "edges":
            told["directed-edges"] = row.get("directed") or None
        elif row.get("kind") == "features":
            told |= {"features-of": row.get("of"), "baseline": row.get("baseline")}
    return told


def _player_rows(held: object) -> list[dict[str, Any]]:
    return [row for row in held if isinstance(row, dict)] if isinstance(held, list) else []


def delete(run: RunSummary) -> list[Path]:
    """Remove what dgl-lara wrote; returns what stays, because it is not ours. LaraError where somebody trains it."""
    from dgl_lara._util.atomic import locked  # which loads torch: lists of runs do without

    rooms = {run.folder, *(run.folder / kind for kind in PLAYERS)}  # explainers of other players have their own
    with ExitStack() as all_locks:
        for room in filter(Path.is_dir, rooms):
            all_locks.enter_context(locked(room))
        return _without_ours(run, rooms)


def _without_ours(run: RunSummary, rooms: set[Path]) -> list[Path]:
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

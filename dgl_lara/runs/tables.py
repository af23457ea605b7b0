"""Tables of runs for the command line and reports: lists, settings, comparisons, options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgl_lara.runs.folder import FEATURE_GROUPS
from dgl_lara.runs.overview import RunSummary

PLAYER_OPTIONS = {"directed": "directed-edges", "of": "features-of", "baseline": "baseline"}
Table = tuple[list[str], list[list[object]]]


def run_table(runs: Sequence[RunSummary]) -> Table:
    """Return header and rows of a list of runs."""
    header = ["run", "started", "data set", "model", "steps", "agreement", "delta", "targets", "MB"]
    rows: list[list[object]] = []
    for run in runs:
        delta, num_targets = run.figures.get("delta, kept", run.figures.get("delta, paper", (None, 0)))
        state = "damaged" if run.damage else run.agreement if run.is_trained else "not trained yet"
        size = f"{run.size / 2**20:.1f}"
        steps = f"{run.steps} ({'in training' if run.is_being_trained else 'stopped'})" if run.stopped else run.steps
        name, dataset = run.folder.name, run.dataset
        rows.append([name, run.started, dataset, run.model, steps, state, delta, num_targets or None, size])
    return header, rows


def settings_of(run: RunSummary) -> dict[str, object]:
    """Return all settings of a run by name. Those with an option have its name."""
    apart = ("options", "training", "model", "dataset", "players", "data")
    training = {_hyphened(name): value for name, value in run.training.items()}
    if training.get("epochs") is not None:
        training.pop("steps", None)  # epochs decide
    if "batch-size" in training:
        training["batch-size"] = training["batch-size"] or "all"
    return {
        "data set": run.config.get("dataset"),
        **{f"data: {_hyphened(name)}": value for name, value in _table(run.config.get("options")).items()},
        "model": run.model,
        "players": _players_text(run.config.get("players")),
        **{name: value for name, value in run.config.items() if name not in apart},
        **{f"training: {name}": value for name, value in training.items()},
        "checksum of the data": run.config.get("data"),
        **{f"version of {name}": version for name, version in _table(run.environment.get("versions")).items()},
    }


def setting_text(value: object) -> str:
    """Return a setting as text."""
    return {None: "-", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)


def comparison(one: RunSummary, other: RunSummary) -> Table:
    """Return the settings in which two runs differ, and all their figures."""
    first, second = settings_of(one), settings_of(other)
    rows: list[list[object]] = [
        [name, setting_text(first.get(name)), setting_text(second.get(name))]
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    ]
    rows += [["steps", one.steps, other.steps], ["validation agreement", one.agreement, other.agreement]]
    figures = [_labelled(run) for run in (one, other)]
    rows += [[name, *(run.get(name) for run in figures)] for name in dict.fromkeys([*figures[0], *figures[1]])]
    return ["", one.folder.name, other.folder.name], rows


def train_options(run: RunSummary) -> dict[str, object]:
    """Return the settings of a run as options of `dgl-lara train`, and some that have no option."""
    config, data, training = run.config, _table(run.config.get("options")), dict(run.training)
    options: dict[str, object] = {"dataset": config.get("dataset"), "source": data.get("source")}
    options |= {"data-dir": data.get("data_dir"), "data-seed": data.get("seed"), "nodes": data.get("nodes")}
    options |= {name: data.get(name.replace("-", "_")) or None for name in ("undirected", "leave-out")}
    options |= {name: data.get(name.replace("-", "_")) for name in ("target-type", "pairs", "relation")}
    files = {path.name: path.resolve() for path in run.files if path.parent == run.folder}
    if isinstance(config.get("model"), dict):
        options |= {"model": run.model, "weights": files.get("weights.pt")}
    else:
        options["target"] = files.get("target.pt")
    options |= {name: config.get(name) for name in ("hops", "value", "index", "preset")}
    rows = _player_rows(config.get("players"))
    if [row.get("name") for row in rows] not in ([], ["nodes"]):
        options["players"] = [row.get("name") for row in rows]
    for row in rows:
        options |= {name: row[key] for key, name in PLAYER_OPTIONS.items() if row.get(key)}
    options["feature-groups"] = files.get(FEATURE_GROUPS)
    training["batch_size"] = training.get("batch_size") or "all"
    return options | {_hyphened(name): value for name, value in training.items()}


def _labelled(run: RunSummary) -> dict[str, float]:
    """Return figures by name and number of targets. Figures over different targets are not comparable."""
    return {f"{name} ({count} targets)" if count else name: value for name, (value, count) in run.figures.items()}


def _players_text(players: object) -> str:
    """Return player sets with their options, such as "edges (directed no)"."""
    texts = []
    for row in _player_rows(players):
        options = {name: len(value) if isinstance(value, list) else value for name, value in row.items()}
        name = str(options.pop("name", "-"))
        details = ", ".join(f"{key} {setting_text(value)}" for key, value in options.items() if value is not None)
        texts.append(f"{name} ({details})" if details else name)
    return ", ".join(texts) or "nodes"


def _player_rows(players: object) -> list[dict[str, Any]]:
    return [row for row in players if isinstance(row, dict)] if isinstance(players, list) else []


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _hyphened(name: str) -> str:
    return name.replace("_", "-")

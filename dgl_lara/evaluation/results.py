"""Stored results of a benchmark: one file for each unit of work, and the explainers of LARA."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from dgl_lara import __version__
from dgl_lara._util.atomic import atomic_write, short_hash
from dgl_lara._util.notices import notice
from dgl_lara._util.schema import Check, maybe, table, text, validate, whole
from dgl_lara.baselines.common.method import Method
from dgl_lara.errors import LaraError
from dgl_lara.evaluation.lara_method import LaraMethod


def versioned_hash(identity: dict) -> str:
    """Return a hash of what results depend on, and of the version of the package."""
    return short_hash({**identity, "version": __version__})


def trained_explainers(folder: Path, seed: int) -> dict[str, Path]:
    """Return the explainers of LARA that units of this benchmark have trained, by their settings."""
    explainers = {}
    for path in sorted(folder.glob(f"lara*-{seed}.pt")):
        with suppress(OSError, ValueError, RecursionError, LaraError):  # damaged: its own unit reports it
            record = path.with_suffix(".json")
            content = validate(json.loads(record.read_text()), {"settings": maybe(table)}, record)
            explainers[settings_key(content["settings"])] = path
    return explainers


def settings_key(settings: dict | None) -> str:
    return json.dumps(settings, sort_keys=True)


def load_explainer(method: Method, weights: Path, code: str) -> bool:
    """Load an explainer. If it is damaged, print a notice and return False."""
    assert isinstance(method, LaraMethod)
    try:
        method.load(weights)
    except LaraError as damage:
        notice(code, problem=str(damage))
        return False
    return True


def speed_file(path: Path) -> Path:
    return path.with_name(f"{path.stem}-speed.json")


def write_record(path: Path, record: dict) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1))


def read_result(path: Path, settings: dict | None) -> dict | None:
    """Return the stored values if they were measured with these settings of LARA."""
    record = read_record(path, {"method": text, "label": text, "seed": whole()})
    return record if record is not None and record.get("settings") == settings else None


def read_record(path: Path, fields: dict[str, Check]) -> dict | None:
    """Return a stored record, or None if there is none or it is damaged."""
    if not path.exists():
        return None
    try:
        return validate(json.loads(path.read_text()), fields, path)
    except (ValueError, RecursionError, LaraError) as damage:
        notice("benchmark.damaged", path=path, problem=str(damage))
        return None

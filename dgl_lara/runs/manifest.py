"""What a training depends on. It is stored with the results of the training and compared when they are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dgl_lara._util.notices import notice
from dgl_lara._util.schema import abbreviated
from dgl_lara._util.settings import to_dict
from dgl_lara.blackbox.identity import identity
from dgl_lara.errors import LaraError
from dgl_lara.game.player_specs import PlayerSpec
from dgl_lara.runs.config import RunConfig


def build_manifest(config: RunConfig, model: Callable, players: PlayerSpec) -> dict[str, Any]:
    """Return data, model, players and settings of a training as plain values."""
    return {
        **identity(model, config.model.function if config.model else ""),
        "data": config.data,
        "hops": config.hops,
        "value": config.value,
        "index": config.index,
        "players": to_dict(players),
        "training": asdict(config.training),
    }


def flattened(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest with the training settings next to the other entries."""
    return {**manifest, **manifest["training"]} if isinstance(manifest.get("training"), dict) else manifest


def check_manifest(stored: dict[str, Any], current: dict[str, Any], folder: Path) -> None:
    """Compare the manifest of a training with that of the run now.

    Changed code of the model is only noted, because its weights decide what it returns.

    Args:
        stored: Manifest that was stored with a checkpoint or an explainer.
        current: Manifest of the run as it is now.
        folder: Folder of the run.

    Raises:
        LaraError: "run.changed" for the first entry that differs.
    """
    before, now = flattened(stored), flattened(current)
    for name in [name for name in now if name in before and name != "training"]:
        if before[name] == now[name] or "" in (before[name], now[name]):  # a function has no weights and no file
            continue
        if name == "code":
            notice("run.other_code", folder=folder)
            continue
        fields = {"name": name, "then": abbreviated(before[name]), "now": abbreviated(now[name])}
        raise LaraError("run.changed", folder=folder, **fields)

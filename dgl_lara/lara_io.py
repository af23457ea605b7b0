"""Files of a trained `LARA`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dgl_lara._util.notices import notice
from dgl_lara._util.settings import from_dict, to_dict
from dgl_lara.attribution.shared_samples import SharedSamples
from dgl_lara.blackbox.identity import identity, is_other
from dgl_lara.errors import InputError, LaraError
from dgl_lara.explainer.network import Explainer, load_explainer, save_explainer
from dgl_lara.game.index import Index, as_index
from dgl_lara.game.player_specs import PlayerSpec, StoredPlayers
from dgl_lara.game.target_reader import TargetReader
from dgl_lara.inference.error_model import ErrorModel
from dgl_lara.inference.fitted import Fitted
from dgl_lara.training.config import TrainingConfig


def save_fitted(
    path: Path,
    fitted: Fitted,
    model: Callable,
    value: str,
    index: Index,
    players: PlayerSpec,
    pairs: Tensor | None,
    more: Mapping[str, float],
) -> None:
    """Write a trained explainer with everything that corrects its scores.

    Args:
        path: File to write.
        fitted: What was trained.
        model: The explained model, whose weights are noted.
        value: The explained value.
        index: What a score is.
        players: The player set.
        pairs: Pairs that the samples belong to, if targets are pairs.
        more: Further numbers to store.
    """
    save_explainer(
        fitted.explainer, path, **identity(model), value=value, index=index.name, players=to_dict(players), pairs=pairs,
        training=asdict(fitted.config), cost=fitted.cost, history=list(fitted.history),
        errors=fitted.errors.to_dict() if fitted.errors else None,
        samples=fitted.samples.to_dict() if fitted.samples else None, **more,
    )  # fmt: skip


def read_explainer(path: Path, device: torch.device) -> tuple[Explainer, dict[str, Any], dict[str, Any]]:
    """Read what `save_fitted` wrote.

    Args:
        path: The file.
        device: Device of the explainer.

    Returns:
        The explainer, the options of the `LARA` that saved it, and all else that the file holds.
    """
    explainer, stored = load_explainer(path, device)
    if not stored.keys() >= {"training", "value", "index", "players"}:
        raise LaraError("lara.file", path=path)
    options = {
        "players": from_dict(StoredPlayers, stored["players"], path),
        "value": stored["value"],
        "index": as_index(stored["index"]),
    }
    return explainer, {**options, "pairs": stored.get("pairs")}, stored


def fitted_from_file(
    explainer: Explainer, stored: dict[str, Any], device: torch.device, reader: TargetReader | None = None
) -> Fitted:
    """Return what a file holds besides the explainer.

    Args:
        explainer: The explainer of the file.
        stored: All else that the file holds.
        device: Device of the errors.
        reader: Reads the targets of the graph that is explained. Samples are put into their order.

    Raises:
        LaraError: If a part of it is damaged.
    """
    errors, samples = stored.get("errors"), stored.get("samples")
    fitted = Fitted(
        explainer, TrainingConfig(**stored["training"]), cost=stored.get("cost"), history=stored.get("history", ())
    )
    if errors is not None:
        distance = explainer.task.max_distance(explainer.config.hops)
        fitted = replace(fitted, errors=ErrorModel.from_dict(errors, distance, "errors").to(device))
    if samples is not None:
        gaps = explainer.task.min_valid_masks > 0
        shared = SharedSamples.from_dict(samples, "samples", gaps=gaps)
        fitted = replace(fitted, samples=_in_order(shared, stored.get("pairs"), reader))
    return fitted


def _in_order(samples: SharedSamples, pairs: Tensor | None, reader: TargetReader | None) -> SharedSamples | None:
    """Return the samples of the present pairs, None if they belong to another graph."""
    if pairs is None or reader is None:
        return samples
    if len(pairs) != len(samples.full):
        raise LaraError("samples.pairs", expected=len(pairs), got=len(samples.full))
    try:
        return samples.at(*reader.positions_among(pairs))
    except InputError:
        return None


def note_differences(stored: dict[str, Any], model: Callable, fitted: Fitted, num_targets: int) -> None:
    """Note if the model or the graph is not that of the training.

    Args:
        stored: Content of the file.
        model: The model now.
        fitted: What was read from the file.
        num_targets: Targets of the graph now.
    """
    if is_other("model", stored, identity(model)):
        notice("model.other_weights")
    if fitted.samples is not None and len(fitted.samples.full) != num_targets:
        task = fitted.explainer.task
        notice("samples.other_graph", task=task, then=len(fitted.samples.full), now=num_targets)

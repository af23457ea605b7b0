"""Open the folder of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dgl_lara import datasets
from dgl_lara._util.notices import notice
from dgl_lara._util.progress import status
from dgl_lara._util.settings import from_dict
from dgl_lara.blackbox.user_model import UserModelRef, find_model, open_model
from dgl_lara.errors import InputError, LaraError
from dgl_lara.gnns.checkpoint import load_gnn
from dgl_lara.lara_distributed import lara_on
from dgl_lara.runs.config import RunConfig
from dgl_lara.runs.folder import is_trained, not_trained
from dgl_lara.runs.run import Run, make_run

if TYPE_CHECKING:
    from dgl_lara.blackbox.call import Model


def open_run(
    folder: Path | str,
    device: torch.device | str = "cpu",
    memory: int | None = None,
    offload: bool = False,
    trust: bool | str = False,
    players: str | None = None,
    to_explain: bool = False,
) -> Run:
    """Open a run folder.

    Args:
        folder: The folder.
        device: Device to compute on.
        memory: Bytes of working memory. None means most of what is free.
        offload: Keep data in main memory and move batches to the device.
        trust: Whether to run the code of a user's model. True runs the code that the folder names, a text like
            "my_module:build_model" names it again.
        players: Player set to explain with. None means the first one of the run.
        to_explain: Raise an error before anything is loaded if there is no explainer.

    Returns:
        The run. `run.trained()` returns its `LARA`.

    Raises:
        InputError: If the folder is no run, or has no explainer for these players.
        LaraError: If a file of the run is damaged.
    """
    folder, device = Path(folder), torch.device(device)
    config = _read_config(folder)
    if to_explain and not is_trained(folder):
        raise not_trained(folder, config.model is not None)
    config = replace(config, model=_trusted_model(folder, config, trust))
    with status(f"reading {config.dataset}"):
        dataset = datasets.load(config.dataset, config.options).to(torch.device("cpu") if offload else device)
    model: Model
    if config.model:
        weights = folder / "weights.pt"
        own_weights = weights if weights.exists() else None
        model = open_model(config.model, own_weights, dataset.features, dataset.num_classes)
    else:
        model = load_gnn(folder / "target.pt", dataset)[0].to(dataset.device)
    compute_device = device if offload else None
    settings = (config.hops, config.value, config.training, memory, compute_device)
    run = make_run(
        folder, config, dataset, lara_on(dataset, model, *settings, players=config.players[0], index=config.index)
    )
    if players not in (None, config.players[0].name):
        known = {spec.name: spec for spec in config.players}
        if players not in known:
            raise InputError("run.players", folder=folder, known=" and ".join(known), got=players)
        run = run.part(known[players])
    if run.data_changed:
        notice("run.other_data", folder=folder, dataset=config.dataset)
    return run


def _read_config(folder: Path) -> RunConfig:
    path = folder / "config.json"
    if not path.is_file():
        raise InputError("run.no_folder", folder=folder)
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise LaraError("file.content", where=path, problem=error) from error
    return from_dict(RunConfig, content, path)


def _trusted_model(folder: Path, config: RunConfig, trust: bool | str) -> UserModelRef | None:
    """Return the user's model whose code may run. Anybody can have made a run folder, and it names code."""
    own = config.model
    if own is None:
        if isinstance(trust, str):
            raise InputError("run.shipped_model", folder=folder)
        return None
    if isinstance(trust, str):
        named = find_model(trust)
        if named.function != own.function:
            raise InputError("run.other_function", folder=folder, function=own.function, got=trust)
        return named
    if not trust:
        name = f"{own.module}:{own.function}"
        raise InputError("run.trust", folder=folder, function=own.function, file=own.file, name=name)
    return own

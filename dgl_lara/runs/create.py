"""Create the folder of a new run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgl_lara._util.atomic import atomic_write, locked, save_tensors
from dgl_lara._util.distributed import get_process_group
from dgl_lara._util.environment import environment
from dgl_lara._util.settings import to_dict
from dgl_lara.blackbox.identity import weights_of
from dgl_lara.game.player_specs import Features
from dgl_lara.gnns.base import ShippedModel
from dgl_lara.gnns.checkpoint import save_gnn
from dgl_lara.runs.folder import FEATURE_GROUPS, check_unused, new_folder
from dgl_lara.runs.run import Run, make_run

if TYPE_CHECKING:
    from dgl_lara.datasets.dataset import Dataset
    from dgl_lara.lara import LARA
    from dgl_lara.runs.config import RunConfig


def create_run(out: Path | None, config: RunConfig, dataset: Dataset, lara: LARA, details: dict) -> Run:
    """Create the folder of a new run.

    Args:
        out: The folder. None means runs/<dataset>-<time>.
        config: What identifies the run.
        dataset: Its data set.
        lara: The method with the first player set.
        details: What is stored with one of our models.

    Raises:
        InputError: If there is a run in the folder.
    """
    group = get_process_group()
    folder = Path(group.text_of_first(str(out or new_folder(dataset.name))))
    config = replace(config, data=dataset.fingerprint)
    if group.is_first:
        check_unused(folder)
        with locked(folder):
            check_unused(folder)  # another process may have been faster
            if isinstance(lara.user_model, ShippedModel):
                save_gnn(lara.user_model, folder / "target.pt", details)
            elif weights := weights_of(lara.model):
                save_tensors(weights, folder / "weights.pt")
            for players in config.players:
                if isinstance(players, Features) and players.groups:
                    _write_json(folder / FEATURE_GROUPS, dict(players.groups))
            _write_json(folder / "environment.json", environment())
            _write_json(folder / "config.json", to_dict(config))  # last, because a folder with a config is a run
    return make_run(folder, config, dataset, lara)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")

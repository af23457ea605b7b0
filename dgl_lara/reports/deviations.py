"""Deviations from the paper, read from `deviations.md`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from dgl_lara.game.task import Task
from dgl_lara.training.config import ALL, TrainingConfig

WITH_DISTANCES = {"D2", "D4", "D6", "D12"}  # about the neighbourhood of a target


@dataclass(frozen=True)
class _Deviation:
    """One row of the table."""

    number: str
    paper: str
    ours: str
    reason: str


@cache
def deviations() -> list[_Deviation]:
    """Return all deviations."""
    text = resources.files(__package__).joinpath("deviations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (D\d+) \| (.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    return [_Deviation(*row) for row in rows]


def deviations_of(config: TrainingConfig, task: Task) -> list[_Deviation]:
    """Return the deviations of a run with these settings."""
    off = {
        "D5": config.objective == "running-mean",
        "D6": config.gate == "none",
        "D7": config.inputs != "rich",
        "D8": not config.all_classes,
        "D9": config.encoder == "plain",
        "D10": config.batch_size != ALL,
        "D12": config.objective != "balanced",
        "D13": config.shared_pairs == 0,
    }
    never = set() if task.hop_names(1) else WITH_DISTANCES | ({"D13"} if config.shared_pairs is None else set())
    return [one for one in deviations() if one.number not in never and not off.get(one.number, False)]

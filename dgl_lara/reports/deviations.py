"""Deviations from the paper, read from `deviations.md`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from dgl_lara.game.task import Task
from dgl_lara.training.config import ALL, TrainingConfig


@dataclass(frozen=True)
class Deviation:
    """One row of the table."""

    number: str
    paper: str
    ours: str
    reason: str


@cache
def deviations() -> list[Deviation]:
    """Return all deviations."""
    text = resources.files(__package__).joinpath("deviations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (D\d+) \| (.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    return [Deviation(*row) for row in rows]


def deviations_of(config: TrainingConfig, task: Task) -> list[Deviation]:
    """Return the deviations of a run with these settings."""
    has_no_neighbourhood = not task.has_distances
    off = {
        "D2": has_no_neighbourhood,
        "D4": has_no_neighbourhood,
        "D5": config.objective == "running-mean",
        "D6": config.gate == "none" or has_no_neighbourhood,
        "D7": config.inputs == "features",
        "D8": not config.all_classes,
        "D9": config.encoder == "plain",
        "D10": config.batch_size != ALL,
        "D12": config.objective != "balanced" or has_no_neighbourhood,
        "D13": config.shared_pairs == 0 or (config.shared_pairs is None and has_no_neighbourhood),
    }
    return [deviation for deviation in deviations() if not off.get(deviation.number, False)]

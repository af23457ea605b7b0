"""The process that writes snapshots. It applies updates from the logs, and fills the caches while there are none."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

import numpy as np

from dgl_lara._util.notices import notice
from dgl_lara.errors import LaraError
from dgl_lara.serve.cache import UNKNOWN
from dgl_lara.serve.model import ServedModel

SECONDS_BETWEEN_POLLS = 0.01
SECONDS_AFTER_ERROR = 1
TARGETS_BETWEEN_POLLS = 64


def run_updater(models: Sequence[ServedModel], fill: bool = True, delay: float = 0.0) -> None:
    """Apply updates until SIGTERM, after `delay` seconds. If `fill`, compute missing explanations meanwhile."""
    is_stopped = False

    def stop(*_: object) -> None:
        nonlocal is_stopped
        is_stopped = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    parent = os.getppid()
    os.nice(5)
    start = time.monotonic() + delay
    problems: dict[ServedModel, str] = dict.fromkeys(models, "")
    applied_once = set[ServedModel]()
    while not is_stopped and os.getppid() == parent:
        is_busy = False
        for model in models if time.monotonic() >= start else ():
            try:
                model.apply_pending_updates()
                applied_once.add(model)
                is_busy |= fill and _fill_some(model)
                problems[model] = ""
            except (LaraError, OSError) as error:
                problem = str(error)
                if problems[model] != problem:  # reported once, however long it lasts
                    _report(model, error)
                problems[model] = problem
                if isinstance(error, LaraError) and model not in applied_once:
                    raise SystemExit(1) from error
                time.sleep(SECONDS_AFTER_ERROR)
        if not is_busy:
            time.sleep(SECONDS_BETWEEN_POLLS)


def _report(model: ServedModel, error: LaraError | OSError) -> None:
    if isinstance(error, LaraError):
        notice("updater.failed", model=model.name, problem=error)
    else:
        notice("updater.disk", model=model.name, folder=model.folder, problem=error.strerror or error)


def _fill_some(model: ServedModel) -> bool:
    """Compute some missing explanations, and return whether there were any."""
    snapshot = model.follow()
    for explainer in snapshot.explainers.values():
        missing = np.flatnonzero((explainer.cache.state == UNKNOWN) & ~snapshot.removed)[:TARGETS_BETWEEN_POLLS]
        if len(missing):
            explainer.fill_cache(missing)
            return True
    return False

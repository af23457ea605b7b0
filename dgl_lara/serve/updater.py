"""The one process that makes snapshots: it applies updates from the logs as they come, and fills the tables with
explanations of everybody while it has nothing else to do."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

import numpy as np

from dgl_lara._util.progress import log_info
from dgl_lara.errors import LaraError
from dgl_lara.serve.cache import UNKNOWN
from dgl_lara.serve.model import ServedModel

PAUSE = 0.01  # seconds between two looks at the logs
A_PIECE = 64  # targets, after which it looks at the logs again


def keep(models: Sequence[ServedModel], fill: bool = True, rest: float = 0.0) -> None:
    """Until SIGTERM, or until a log that it has never got through cannot be applied. `rest`: seconds before it begins,
    where the one before it died at once."""
    asked = False

    def stop(*_: object) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    parent = os.getppid()
    os.nice(5)
    begin, told, got_through = time.monotonic() + rest, dict.fromkeys(models, ""), set[ServedModel]()
    while not asked and os.getppid() == parent:
        busy = False
        for model in models if time.monotonic() >= begin else ():
            try:
                model.apply_pending_updates()
                got_through.add(model)
                busy |= fill and _fill_some(model)
                told[model] = ""
            except (LaraError, OSError) as error:
                why = str(error)
                if isinstance(error, OSError):
                    why = f"{model.folder} cannot be written ({error.strerror or error}); updates wait until it can."
                if told[model] != why:  # once, however long it lasts
                    log_info(f"{model.name}: {why}")
                told[model] = why
                if isinstance(error, LaraError) and model not in got_through:
                    raise SystemExit(1) from error
                time.sleep(1)
        if not busy:
            time.sleep(PAUSE)


def _fill_some(model: ServedModel) -> bool:
    """Whether there was anything left to fill."""
    snapshot = model.follow()
    for part in snapshot.parts.values():
        waiting = np.flatnonzero((part.table.state == UNKNOWN) & ~snapshot.gone_targets)[:A_PIECE]
        if len(waiting):
            part.compute(waiting)
            return True
    return False

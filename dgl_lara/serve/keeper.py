"""The one process that makes snapshots: it applies updates from the logs as they come, and fills the tables with
explanations of everybody while it has nothing else to do."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

import numpy as np

from dgl_lara.errors import LaraError
from dgl_lara.serve.served import ServedModel
from dgl_lara.serve.table import UNKNOWN
from dgl_lara.utils.progress import say

PAUSE = 0.01  # seconds between two looks at the logs
A_PIECE = 64  # targets, after which it looks at the logs again


def keep(models: Sequence[ServedModel], fill: bool = True) -> None:
    """Until SIGTERM."""
    asked = False

    def stop(*_: object) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    parent = os.getppid()
    os.nice(5)
    while not asked and os.getppid() == parent:
        for model in models:
            try:
                model.catch_up()
            except (LaraError, OSError) as error:
                say(f"{model.name}: {error}")
                time.sleep(1)
        filled = [_fill_some(model) for model in models] if fill else []
        if not any(filled):
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

"""No command is silent for long: where the work itself says nothing, the place it is at does."""

from __future__ import annotations

import sys
import threading

from dgl_lara._util import progress

SILENCE = 2.0  # seconds after which a word is due
PLACES = {  # where the main thread is -> what it is at, in words
    "numba": "loading compiled code",
    "matplotlib": "drawing",
    "dgl_lara.explanation.plot": "drawing",
    "dgl_lara.datasets": "preparing the data",
    "dgl_lara.blackbox": "asking the model",
    "dgl_lara.game": "finding players and asking the model about them",
    "dgl_lara.gnns": "preparing the model",
    "dgl_lara.training": "training the explainer",
    "dgl_lara.attribution": "working out attributions",
    "dgl_lara.explainer": "running the explainer",
    "dgl_lara.inference": "explaining",
    "dgl_lara.metrics": "evaluating",
    "dgl_lara.evaluation": "evaluating",
    "dgl_lara.baselines": "explaining with a rival",
    "dgl_lara.reports": "putting together what is shown",
    "dgl_lara.runs.run": "reading or writing the run",
}


def watch(over: threading.Event) -> None:
    """Until it is over, in a thread of its own. What the reader was told once comes again only now and then."""
    progress.told.clear()
    while not over.wait(SILENCE / 8):
        what, tell = (*progress.going_on, (place(), None))[0]
        often = 1.5 * progress.SECONDS_BETWEEN_LINES  # whoever says so by itself comes first
        if progress.silence() > (often if what in progress.told else SILENCE):
            progress.told.add(what)
            tell() if tell else progress.log_info(f"{what} ...")
        del tell  # may be the last to hold what the work was on


def place() -> str:
    """What the main thread is at, by the modules on its stack."""
    frame, modules = sys._current_frames().get(threading.main_thread().ident or 0), []
    while frame is not None:
        modules.append(frame.f_globals.get("__name__") or "")
        frame = frame.f_back
    if any(module.startswith("importlib.") for module in modules):
        return "loading libraries"
    if "numba.core.compiler_machinery" in modules:
        return "compiling (once, the result is kept)"
    for module in modules:
        for where, words in PLACES.items():
            if module == where or module.startswith(where + "."):
                return words
    return "working"

"""What a command prints, and how much.

A reader who has had enough (`| head -1`) ends the printing, not the work: files that were asked for are still written.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from dgl_lara.messages import message

LOADING = 2.0  # seconds after which a word is due
WATCHER = "watcher"
PATIENT = 5.0  # for the one who watches to be done, unless it cannot write


def echo(text: str = "", err: bool = False) -> None:
    progress = sys.modules.get("dgl_lara._util.progress")
    if progress:
        progress.heard()
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(text: str) -> None:
    """Why a command ends; of several processes that work as one, one says it."""
    if may_tell():
        echo(text, err=True)


def warn_about(run: Path) -> None:
    """Print notices about a run whose training was stopped, or whose explainer has learned little."""
    from dgl_lara._util.notices import notice
    from dgl_lara.explanation.trust import notice_low_agreement
    from dgl_lara.runs.overview import RunSummary

    summary = RunSummary(run)
    if summary.stopped and summary.is_being_trained:
        notice("run.in_training", done=summary.stopped)
    elif summary.stopped:
        notice("run.stopped", done=summary.stopped, command=summary.resume_command)
    notice_low_agreement(summary.agreement)


def may_tell() -> bool:
    ranks = sys.modules.get("dgl_lara._util.distributed")
    return ranks is None or ranks.get_process_group().may_tell()


class UsageError(click.UsageError):
    """Raised for options that do not fit together (exit code 2).

    Args:
        code: Key of the text in the catalogue.
        fields: Values of its placeholders.
    """

    def __init__(self, code: str, **fields: object) -> None:
        self.code, self.fields = code, fields
        super().__init__(f"{message(code, **fields)} [{code}]")


def width() -> int:
    """Letters that a line may have: a terminal's, and as many as it takes in a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def speak_as_usual() -> None:
    """Several commands may run in one process; each begins anew."""
    progress = sys.modules.get("dgl_lara._util.progress")  # not loaded: nothing to undo, and --help stays light
    if progress:
        progress.set_loudness(progress.USUAL)


@contextmanager
def never_silent() -> Iterator[None]:
    """Whoever waits for a command hears what it is at, from the loading of torch to the last file."""
    over = threading.Event()

    def after_a_while() -> None:
        if not over.wait(LOADING):
            from dgl_lara.cli.heartbeat import watch  # not before: --help stays light

            watch(over)

    watcher = threading.Thread(target=after_a_while, name=WATCHER, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        # whoever lets a tensor go while the interpreter ends aborts the process: this one must have ended before
        watcher.join(PATIENT)


def _quiet(context: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        from dgl_lara._util.progress import QUIET, set_loudness

        set_loudness(QUIET)


def _verbose(context: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        from dgl_lara._util.progress import VERBOSE, set_loudness

        set_loudness(VERBOSE)


LOUDNESS = [
    click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, callback=_quiet, help="Results and errors only."),
    click.Option(["-v", "--verbose"], is_flag=True, expose_value=False, callback=_verbose,
                 help="Also what is done in between, and how long it took."),
]  # fmt: skip

"""Output of commands.

If the reader of the output ends (`| head -1`), the printing stops and the work goes on, so that files are complete.
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

from dgl_lara.errors import message

SILENCE = 2.0  # seconds after which a command reports what it does
JOIN_SECONDS = 5.0
WATCHER = "watcher"


class UsageError(click.UsageError):
    """Raised for options that do not fit together (exit code 2).

    Args:
        code: Key of the text in the catalogue.
        fields: Values of its placeholders.
    """

    def __init__(self, code: str, **fields: object) -> None:
        self.code, self.fields = code, fields
        super().__init__(f"{message(code, **fields)} [{code}]")


def echo(text: str = "", err: bool = False) -> None:
    """Print a line."""
    progress = sys.modules.get("dgl_lara._util.progress")
    if progress:
        progress.mark_output()
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_error(text: str) -> None:
    """Print why a command ends. Only one of several processes prints it."""
    if may_report():
        echo(text, err=True)


def may_report() -> bool:
    """Return whether this process prints the error that several processes meet."""
    distributed = sys.modules.get("dgl_lara._util.distributed")
    return distributed is None or distributed.get_process_group().may_report()


def note_run(folder: Path | None) -> Path:
    """Return the run of --run, or the newest run after a notice about it."""
    from dgl_lara._util.notices import notice
    from dgl_lara._util.progress import detail
    from dgl_lara.runs.folder import newest_run

    if folder is not None:
        detail(f"run {folder}")
        return folder
    notice("run.newest", folder=(newest := newest_run()))
    return newest


def warn_about(folder: Path) -> None:
    """Print notices about a run whose training was stopped, or whose explainer has learned little."""
    from dgl_lara._util.notices import notice
    from dgl_lara.explanation.trust import notice_low_agreement
    from dgl_lara.runs.overview import RunSummary

    run = RunSummary(folder)
    if run.stopped and run.is_being_trained:
        notice("run.in_training", done=run.stopped)
    elif run.stopped:
        notice("run.stopped", done=run.stopped, command=run.resume_command)
    notice_low_agreement(run.agreement)


def width() -> int:
    """Return the columns of the terminal. A file has no limit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def reset_loudness() -> None:
    """Undo -q and -v of an earlier command in this process."""
    progress = sys.modules.get("dgl_lara._util.progress")  # if it is not loaded there is nothing to undo
    if progress:
        progress.set_loudness(progress.USUAL)


@contextmanager
def never_silent() -> Iterator[None]:
    """Report what a command does whenever it is silent for long, from the first import to the last file."""
    over = threading.Event()

    def watch() -> None:
        if not over.wait(SILENCE):
            from dgl_lara._util.progress import report_silence  # not before, to keep --help light

            report_silence(over)

    watcher = threading.Thread(target=watch, name=WATCHER, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(JOIN_SECONDS)  # freeing a tensor during interpreter shutdown aborts the process


def _loudness_option(names: list[str], level: str, help: str) -> click.Option:
    def set_level(context: click.Context, option: click.Parameter, is_set: bool) -> None:
        if is_set:
            from dgl_lara._util import progress

            progress.set_loudness(getattr(progress, level))

    return click.Option(names, is_flag=True, expose_value=False, callback=set_level, help=help)


LOUDNESS = [
    _loudness_option(["-q", "--quiet"], "QUIET", "Print results and errors only."),
    _loudness_option(["-v", "--verbose"], "VERBOSE", "Print each step and its time."),
]

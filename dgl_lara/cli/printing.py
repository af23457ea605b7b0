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

import click

LOADING = 2.0  # seconds after which a word is due


def echo(text: str = "", err: bool = False) -> None:
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def width() -> int:
    """Letters that a line may have: a terminal's, and as many as it takes in a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def speak_as_usual() -> None:
    """Several commands may run in one process; each begins anew."""
    progress = sys.modules.get("dgl_lara.utils.progress")  # not loaded: nothing to undo, and --help stays light
    if progress:
        progress.set_loudness(progress.USUAL)


@contextmanager
def word_while_loading() -> Iterator[None]:
    """torch and dgl can take long to load on a busy machine; whoever waits for them is told so."""

    def act() -> None:
        if not hasattr(sys.modules.get("dgl"), "DGLGraph"):
            from dgl_lara.utils.progress import say

            say("loading torch and dgl ...")

    timer = threading.Timer(LOADING, act)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _quiet(context: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        from dgl_lara.utils.progress import QUIET, set_loudness

        set_loudness(QUIET)


def _verbose(context: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        from dgl_lara.utils.progress import VERBOSE, set_loudness

        set_loudness(VERBOSE)


LOUDNESS = [
    click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, callback=_quiet, help="Results and errors only."),
    click.Option(["-v", "--verbose"], is_flag=True, expose_value=False, callback=_verbose,
                 help="Also what is done in between, and how long it took."),
]  # fmt: skip

"""`--processes N`: the same command in N processes that work as one, and one that looks after them.

Each is told its number as torchrun does it. They find each other through a file, and end together: one that dies is
missed by the others, which say so, keep what is done and end; whoever does not is ended from here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dgl_lara.cli.console import echo

if TYPE_CHECKING:
    from dgl_lara._util.distributed import ProcessGroup

MEETING = "DGL_LARA_MEETING"  # as in `_util/distributed.py`, which is too heavy to load here
GRACE = 30.0  # seconds that the others have to keep what is done, once one has failed
INTERRUPTED = 130


def is_a_child() -> bool:
    """Started by `run_together`. Under torchrun the number of processes is torchrun's affair."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise click.UsageError("torchrun says how many processes there are; leave out --processes.")
    return MEETING in os.environ


def run_together(count: int) -> int:
    """Starts them, waits for them and returns the code to end with."""
    from dgl_lara._util.progress import QUIET, set_loudness

    set_loudness(QUIET)  # what there is to say, the first of them says
    with tempfile.TemporaryDirectory(prefix="dgl-lara-") as folder:
        children: list[subprocess.Popen] = []
        try:
            for rank in range(count):
                children.append(_start(rank, count, Path(folder) / "meeting"))
            return _await(children)
        except KeyboardInterrupt:
            return _interrupt(children)
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
                    child.wait()


def _start(rank: int, count: int, meeting: Path) -> subprocess.Popen:
    """In a session of its own: Ctrl-C comes here, and is passed on once."""
    threads = str(max(1, (os.cpu_count() or 1) // count))
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, MEETING: meeting}
    given = {"OMP_NUM_THREADS": threads, **os.environ, **{name: str(value) for name, value in place.items()}}
    words = [sys.executable, "-m", "dgl_lara", *sys.argv[1:]]
    return subprocess.Popen(words, env=given, stdin=subprocess.DEVNULL, start_new_session=True)


def _await(children: list[subprocess.Popen]) -> int:
    deadline = float("inf")
    while True:
        codes = [child.poll() for child in children]
        if all(code is not None for code in codes):
            break
        if any(codes):
            deadline = min(deadline, time.monotonic() + GRACE)
        if time.monotonic() > deadline:
            for child in children:
                child.kill()
        time.sleep(0.05)
    failed = [code for code in codes if code]
    told = [code for code in failed if code > 0]
    if failed and not told:
        rank = next(rank for rank, code in enumerate(codes) if code)
        echo(f"Error: process {rank} was ended by {signal.Signals(-failed[0]).name}, and the others with it.", err=True)
    return told[0] if told else int(bool(failed))


def _interrupt(children: list[subprocess.Popen]) -> int:
    """They finish their step and keep it; a second Ctrl-C does not wait."""
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
    try:
        for child in children:
            child.wait()
    except KeyboardInterrupt:
        pass
    return INTERRUPTED


def joined_ranks(device: str) -> ProcessGroup:
    """The processes that this one works with. All but the first print nothing but errors."""
    from dgl_lara._util.distributed import join
    from dgl_lara.cli.options import choose_device

    ranks = join(choose_device(device).type)
    if not ranks.is_first:
        sys.stdout.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ranks


def shared_memory(ranks: ProcessGroup, memory: int | None, device: str) -> int | None:
    """Bytes for each process: what was asked for, or its part of what is free. All must decide alike what fits."""
    if memory is not None or ranks.count == 1:
        return memory
    from dgl_lara._util.memory import free_memory
    from dgl_lara.cli.options import choose_device

    return int(ranks.text_of_first(str(free_memory(choose_device(device)) // ranks.nearby)))

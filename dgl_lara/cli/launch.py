"""Option `--processes N`. Run the command in N processes that work as one, and watch over them.

The processes get their rank in the way of torchrun and find each other through a file. If one of them dies, the others
notice, save their work and end. Those that do not end are killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dgl_lara.cli.console import UsageError, print_error
from dgl_lara.errors import message

if TYPE_CHECKING:
    from dgl_lara._util.distributed import ProcessGroup

MEETING = "DGL_LARA_MEETING"  # as in `_util/distributed.py`, which takes long to import
GRACE_SECONDS = 30.0  # to save work after another process has failed
INTERRUPTED = 130


def is_child() -> bool:
    """Return whether `run_processes` started this process."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise UsageError("processes.torchrun")
    return MEETING in os.environ


def run_processes(count: int) -> int:
    """Start processes and wait for them.

    Args:
        count: Number of processes.

    Returns:
        The exit code of the command.
    """
    from dgl_lara._util.progress import QUIET, set_loudness

    set_loudness(QUIET)  # the first process prints
    with tempfile.TemporaryDirectory(prefix="dgl-lara-") as folder:
        children: list[subprocess.Popen] = []
        try:
            for rank in range(count):
                children.append(_start(rank, count, Path(folder) / "meeting"))
            return _wait(children)
        except KeyboardInterrupt:
            return _interrupt(children)
        finally:
            for child in children:
                if child.poll() is None:
                    child.kill()
                    child.wait()


def _start(rank: int, count: int, meeting: Path) -> subprocess.Popen:
    """Start a process in its own session, so that Ctrl-C reaches only this one, which passes it on."""
    threads = max(1, (os.cpu_count() or 1) // count)
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, MEETING: meeting}
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
    environment |= {name: str(value) for name, value in place.items()}
    command = [sys.executable, "-m", "dgl_lara", *sys.argv[1:]]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)


def _wait(children: Sequence[subprocess.Popen]) -> int:
    deadline = float("inf")
    while None in (codes := [child.poll() for child in children]):
        if any(codes) and deadline == float("inf"):
            deadline = time.monotonic() + GRACE_SECONDS
        if time.monotonic() > deadline:
            for child in children:
                child.kill()
        time.sleep(0.05)
    failed = [(rank, code) for rank, code in enumerate(codes) if code]
    reported = [code for _, code in failed if code > 0]  # these processes have printed an error
    if failed and not reported:
        rank, code = failed[0]
        name = signal.Signals(-code).name
        print_error(f"Error: {message('processes.killed', rank=rank, signal=name)} [processes.killed]")
    return reported[0] if reported else int(bool(failed))


def _interrupt(children: Sequence[subprocess.Popen]) -> int:
    """Let the processes finish and save their step. A second Ctrl-C does not wait."""
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
    try:
        for child in children:
            child.wait()
    except KeyboardInterrupt:
        pass
    return INTERRUPTED


def join_processes(device: str) -> ProcessGroup:
    """Join the group of processes. All but the first print nothing but errors."""
    from dgl_lara._util.distributed import join
    from dgl_lara.cli.options import choose_device

    group = join(choose_device(device).type)
    if not group.is_first:
        sys.stdout.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return group


def memory_share(group: ProcessGroup, memory: int | None, device: str) -> int | None:
    """Return the bytes for each process. They are equal, so that all processes agree on what fits."""
    if memory is not None or group.count == 1:
        return memory
    from dgl_lara._util.memory import free_memory
    from dgl_lara.cli.options import choose_device

    return int(group.text_of_first(str(free_memory(choose_device(device)) // group.nearby)))

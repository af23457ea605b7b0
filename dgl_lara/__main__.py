"""The command from its first instant to its last: Ctrl-C, and what Slurm and Kubernetes send, never end in a traceback.

Light on purpose: until this module has run, nobody listens.
"""

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType

INTERRUPTED = 130  # what shells expect of a command that was ended by Ctrl-C
IS_FIRST = os.environ.get("RANK", "0") == "0"  # of several processes that are interrupted together, one says so


def stop(number: int, frame: FrameType | None) -> None:
    """KeyboardInterrupt where the command is at work; within an import nothing has begun that could be lost, and
    modules that are half loaded answer an exception with one of their own."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            os.write(2, b"Interrupted.\n" * IS_FIRST)
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def ask_again(lost: "sys.UnraisableHookArgs") -> None:
    """An interrupt while Python cleans something up would be printed and forgotten; it is sent once more instead."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.01)  # not at once: it would be lost in here
    else:
        sys.__unraisablehook__(lost)


def leave(code: int) -> None:
    """All is written. What waits for the end of a process has its turn; that Python takes torch, dgl and numba apart
    would cost a second more, and aborts the process where a thread of theirs still lets go of something."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed, or its reader has had enough
            stream.flush()
    os._exit(code)


def install_signal_handlers(answer: "signal._HANDLER") -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, answer)


def open_all() -> None:
    """Python has no stream where its descriptor is closed (`>&-`); libraries expect one."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def run() -> None:
    try:
        open_all()
        sys.unraisablehook = ask_again
        install_signal_handlers(stop)
        code = 0
        try:
            from dgl_lara.cli import main

            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        install_signal_handlers(signal.SIG_IGN)  # all is written: too late to be interrupted
    except KeyboardInterrupt:
        install_signal_handlers(signal.SIG_IGN)
        os.write(2, b"Interrupted.\n" * IS_FIRST)
        code = INTERRUPTED
    leave(code)


if __name__ == "__main__":
    run()

"""The command from its first instant to its last: Ctrl-C, and what Slurm and Kubernetes send, never end in a traceback.

Light on purpose: until this module has run, nobody listens.
"""

import os
import signal
import sys
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


def run() -> None:
    sys.unraisablehook = ask_again
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, stop)
    code: object = 1
    try:
        from dgl_lara.cli import main

        main()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        os.write(2, b"Interrupted.\n" * IS_FIRST)
        code = INTERRUPTED
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)  # all is written: too late to be interrupted
    sys.exit(code)  # type: ignore[arg-type]


if __name__ == "__main__":
    run()

"""Entry point of the command. Ctrl-C and the signals of Slurm and Kubernetes never end in a traceback.

The module is light, because signals are handled only after it has run.
"""

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType

INTERRUPTED = 130  # exit code after Ctrl-C
IS_FIRST = os.environ.get("RANK", "0") == "0"  # of several processes


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or exit at once within an import.

    Nothing can be lost there, and half-loaded modules raise other exceptions.
    """
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            os.write(2, b"Interrupted.\n" * IS_FIRST)
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _resend(lost: "sys.UnraisableHookArgs") -> None:
    """Send an interrupt again that arrived during cleanup. Python would print and forget it."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.01)  # a little later, because it would be lost in here
    else:
        sys.__unraisablehook__(lost)


def _exit(code: int) -> None:
    """Run exit handlers and exit without interpreter shutdown.

    Taking torch, dgl and numba apart costs a second, and aborts the process if one of their threads frees something.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed
            stream.flush()
    os._exit(code)


def _handle_signals(handler: "signal._HANDLER") -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, handler)


def _open_streams() -> None:
    """Open streams whose descriptors are closed (`>&-`), because libraries expect them."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def run() -> None:
    """Run the command and exit."""
    try:
        _open_streams()
        sys.unraisablehook = _resend
        _handle_signals(_interrupt)
        code = 0
        try:
            from dgl_lara.cli import main

            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        _handle_signals(signal.SIG_IGN)  # all is written
    except KeyboardInterrupt:
        _handle_signals(signal.SIG_IGN)
        os.write(2, b"Interrupted.\n" * IS_FIRST)
        code = INTERRUPTED
    _exit(code)


if __name__ == "__main__":
    run()

"""Ctrl-C, or SIGTERM where the command listens to it, at a moment when nothing is half done."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

ECHO = 1.0  # seconds in which a second signal is the first one again: launchers pass on what a terminal sends to all


@contextmanager
def held_back_interrupts() -> Iterator[list]:
    """Ctrl-C waits for the end of the step, so that what is stored is whole; a second one does not wait."""
    asked: list[int] = []
    since = 0.0

    def note(number: int, frame: object) -> None:
        nonlocal since
        if asked and time.monotonic() - since > ECHO:
            raise KeyboardInterrupt
        since = since or time.monotonic()
        asked.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    # a program that does not listen to SIGTERM itself is ended by it, as ever
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    held = [number for number, handler in before.items() if callable(handler)]
    for number in held:
        signal.signal(number, note)
    try:
        yield asked
    finally:
        for number in held:
            signal.signal(number, before[number])

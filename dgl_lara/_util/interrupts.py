"""Ctrl-C and SIGTERM at moments when no step is half done."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

ECHO_SECONDS = 1.0  # a second signal within them is the first one again, passed on by a launcher


@contextmanager
def held_back_interrupts() -> Iterator[list]:
    """Delay Ctrl-C until the end of a step, so that stored files are complete. A second one is not delayed.

    Yields:
        The signals so far, a list that grows.
    """
    received: list[int] = []
    since = 0.0

    def note(number: int, frame: object) -> None:
        nonlocal since
        if received and time.monotonic() - since > ECHO_SECONDS:
            raise KeyboardInterrupt
        since = since or time.monotonic()
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    # a program without a handler for SIGTERM is ended by it
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    caught = [number for number, handler in before.items() if callable(handler)]
    for number in caught:
        signal.signal(number, note)
    try:
        yield received
    finally:
        for number in caught:
            signal.signal(number, before[number])

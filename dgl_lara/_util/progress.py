"""Progress of long work on stderr: a bar on a terminal, a line now and then elsewhere.

Work shorter than a second prints nothing. Longer work shows its label, how far it is and how much time is left.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from tqdm import tqdm

from dgl_lara._util.tables import shortened

T = TypeVar("T")
DELAY, INTERVAL = 1.0, 15.0  # seconds of silence before the first line, and between two lines
QUIET, USUAL, VERBOSE = -1, 0, 1
FIGURE_COLUMNS = 50  # of a bar, besides its label

_loudness = USUAL
_last_output = 0.0
_stack: list[_Status | Progress] = []  # work that goes on, the innermost last
_prefix: ContextVar[str] = ContextVar("prefix", default="")


def set_loudness(level: int) -> None:
    """Set what is printed: QUIET (no progress and no notices), USUAL or VERBOSE (details too)."""
    global _loudness
    _loudness = level


def is_quiet() -> bool:
    return _loudness == QUIET


def mark_output() -> None:
    """Note that something was printed, so that the next line of progress can wait."""
    global _last_output
    _last_output = time.monotonic()


def log_info(text: str) -> None:
    """Print a line to stderr, unless -q is set."""
    mark_output()
    if _loudness > QUIET:
        tqdm.write(text, file=sys.stderr)


def detail(text: str) -> None:
    """Print a line to stderr if -v is set."""
    if _loudness >= VERBOSE:
        log_info(text)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Put a name before the labels of the work inside."""
    token = _prefix.set(name)
    try:
        yield
    finally:
        _prefix.reset(token)


@contextmanager
def status(label: str, as_prefix: bool = True) -> Iterator[None]:
    """Report work that has no count.

    Args:
        label: What is done.
        as_prefix: Put the label before those of the work inside.
    """
    work = _Status(_titled(label))
    with phase(work.label if as_prefix else _prefix.get()), _reported(work):
        yield
    detail(f"{work.label}: {time.monotonic() - work.started:.1f} s")


@contextmanager
def idle() -> Iterator[None]:
    """Report nothing about the work inside, such as a service that waits for requests."""
    with _reported(_Status("")):
        yield


def report_silence(over: threading.Event, own: _Status | Progress | None = None) -> None:
    """Print what is done when nothing was printed for a while, until an event is set.

    Args:
        over: The event.
        own: Work whose thread this is. None means report only if no other work is known.
    """
    work, patience = _Status("working") if own is None else own, DELAY
    while not over.wait(DELAY / 4):
        is_mine = not _stack if own is None else bool(_stack) and _stack[0] is own
        if is_mine and min(_silence(), time.monotonic() - work.started) >= patience:
            (_stack[-1] if _stack else work).show()
            patience = INTERVAL


class _Status:
    """Work without a count.

    Args:
        label: What is done. Empty: nothing is printed.
    """

    def __init__(self, label: str) -> None:
        self.label, self.started, self._shown = label, time.monotonic(), False

    def show(self) -> None:
        """Print the label, and from the second time on how long it has taken."""
        if self.label:
            log_info(f"{self.label} ..." + f" {duration(time.monotonic() - self.started)}" * self._shown)
        self._shown = True


class Progress(Generic[T]):
    """Work with a count: an iterable, or a context manager with calls of `advance`.

    Args:
        items: Items to iterate over.
        label: What is done.
        total: Number of steps. Default: the number of items.
        done: Steps done before.
        unit: Name of a step.
        weight: Steps that an item counts for.
    """

    def __init__(
        self,
        items: Iterable[T] = (),
        label: str = "",
        total: int | None = None,
        done: int = 0,
        unit: str = "it",
        weight: Any = lambda item: 1,
    ) -> None:
        self._items, self.label, self.done, self._weight = items, _titled(label), done, weight
        self.total = total if total is not None else len(items) + done  # type: ignore[arg-type]
        self.started, self._initial, self._figures = time.monotonic(), done, ""
        self._on_terminal, (columns, lines) = sys.stderr.isatty(), shutil.get_terminal_size()
        self._bar = tqdm(
            total=self.total, initial=done, desc=shortened(self.label, max(columns - FIGURE_COLUMNS, 12)), unit=unit,
            leave=False, delay=DELAY, disable=not self._on_terminal or is_quiet(), ncols=columns - 1, nrows=lines,
        )  # fmt: skip

    def note(self, *words: str, **figures: Any) -> None:
        """Show words and figures next to the count."""
        texts = (
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in figures.items()
        )
        self._figures = ", ".join([*words, *texts])
        self._bar.set_postfix_str(self._figures, refresh=False)

    def __enter__(self) -> Progress[T]:
        self._report = _reported(self)
        self._report.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._report.__exit__(None, None, None)
        self._bar.close()

    def __iter__(self) -> Iterator[T]:
        items, self._items = self._items, ()  # the reporting thread must not hold the last item
        with self:
            for item in items:
                yield item
                self.advance(self._weight(item))

    def advance(self, count: int = 1) -> None:
        """Count steps as done."""
        self.done += count
        self._bar.update(count)

    def show(self) -> None:
        """Draw the bar, or print a line."""
        if self._on_terminal:
            self._bar.refresh()
            mark_output()
        else:
            log_info(self.line(time.monotonic() - self.started))

    def line(self, elapsed: float) -> str:
        """Return a line such as "asking f: 60/300 after 15 s, about 60 s left, loss 0.2"."""
        text = f"{self.label}: {self.done:,}{f'/{self.total:,}' if self.total else ''} after {duration(elapsed)}"
        if self.total > self.done > self._initial:
            left = elapsed / (self.done - self._initial) * (self.total - self.done)
            text += f", about {duration(left)} left"
        return text + (f", {self._figures}" if self._figures else "")


def duration(seconds: float) -> str:
    """Return seconds as "8 s", "12 min" or "1.5 h"."""
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def _reported(work: _Status | Progress) -> Iterator[None]:
    """Keep work on the stack. A thread reports it, unless there is one for work around it."""
    over = threading.Event()
    if not _stack:
        threading.Thread(target=report_silence, args=(over, work), daemon=True).start()
    _stack.append(work)
    try:
        yield
    finally:
        over.set()
        _stack.remove(work)


def _silence() -> float:
    return time.monotonic() - _last_output


def _titled(label: str) -> str:
    return f"{_prefix.get()}: {label}" if _prefix.get() else label

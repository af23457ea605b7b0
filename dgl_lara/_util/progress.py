"""Whoever waits for more than a second is told what for, how far it is and how long it will take.

By a bar on a terminal, by a line now and then elsewhere; on stderr, so that stdout stays clean for tables and files.
"""

from __future__ import annotations

import math
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from tqdm import tqdm

from dgl_lara._util.tables import shortened

T = TypeVar("T")
PATIENCE = 1.0  # seconds of silence that nobody minds
SECONDS_BETWEEN_LINES = 15.0
LINES_OF_PACE = 4  # what is left is told from the pace over so many of them
QUIET, USUAL, VERBOSE = -1, 0, 1

_loudness = USUAL
_heard = 0.0  # when something was said last
told: set[str] = set()  # what the reader knows to be going on
going_on: list[tuple[str, Callable[[], None]]] = []  # outermost first, and how each says how far it is
_phase: ContextVar[str] = ContextVar("phase", default="")
_goes: ContextVar[tuple[int, dict[str, Progress]]] = ContextVar("goes")  # how many, and the bar of each label
_bars: list[Progress] = []  # that are shown, the innermost last
NARROW = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{left}{postfix}]"
WITH_RATE = NARROW.replace("{left}", "{left}, {rate_fmt}")
WIDE = 110  # columns from which on a bar also has room for the rate
FIGURES = 50  # columns that everything but the label and the bar itself takes


def set_loudness(level: int) -> None:
    """QUIET: neither progress nor notices. VERBOSE: details too."""
    global _loudness
    _loudness = level


def is_quiet() -> bool:
    return _loudness == QUIET


def heard() -> None:
    """Something was said, wherever."""
    global _heard
    _heard = time.monotonic()


def silence() -> float:
    """Seconds since something was said."""
    return time.monotonic() - _heard


def log_info(text: str) -> None:
    """One line for the reader."""
    heard()
    if _loudness > QUIET:
        tqdm.write(text, file=sys.stderr)


def detail(text: str) -> None:
    """One line for a reader who asked for more (-v)."""
    if _loudness >= VERBOSE:
        log_info(text)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """What the work inside is for; stands before whatever is shown of it."""
    before = _phase.set(name)
    try:
        yield
    finally:
        _phase.reset(before)


@contextmanager
def repeat(count: int) -> Iterator[None]:
    """The work inside is done so many times over: what would be a bar each time is one, with one total. Within each
    other they multiply."""
    times, bars = _goes.get((1, {}))
    before = _goes.set((times * count, bars))
    try:
        yield
    finally:
        _goes.reset(before)
        if times == 1:
            for bar in bars.values():
                bar.close()


@contextmanager
def working(on: str) -> Iterator[None]:
    """For work that cannot say how far it is: what it is, once it takes longer than anyone waits for gladly. What is
    done within it may know."""
    title, started, outside, again = _titled(on), time.monotonic(), len(_bars), list[bool]()

    def tell() -> None:
        if len(_bars) > outside:
            _bars[-1].show()
        else:  # who is told a second time is told how long it has been
            log_info(f"{title} ..." + (f" for {duration(time.monotonic() - started)}" if again else ""))
            again.append(True)

    with phase(title), _at_it(title, tell):
        yield
    detail(f"{title}: {time.monotonic() - started:.1f} s")


@contextmanager
def with_status(title: str) -> Iterator[None]:
    """Work whose first parts may each be too short to speak of: who waits hears after a second what they are for."""
    started = time.monotonic()

    def tell() -> None:
        if silence() > time.monotonic() - started:
            log_info(f"{title} ...")

    timer = threading.Timer(PATIENCE, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def resting() -> Iterator[None]:
    """Nobody waits for what is done here, a service that nobody asks: nothing is said of it."""
    going_on.insert(0, ("", heard))
    try:
        yield
    finally:
        going_on.remove(("", heard))


@contextmanager
def _at_it(title: str, tell: Callable[[], None]) -> Iterator[None]:
    """`tell` is called after a while, by the clock, and again where a command stays silent (`cli/heartbeat.py`)."""

    def first_word() -> None:
        told.add(title)
        tell()

    timer = threading.Timer(PATIENCE, first_word)
    timer.daemon = True
    timer.start()
    going_on.append((title, tell))
    try:
        yield
    finally:
        timer.cancel()
        going_on.remove((title, tell))


def _titled(label: str) -> str:
    return f"{_phase.get()}: {label}" if _phase.get() else label


def duration(seconds: float) -> str:
    """'8 s', '12 min', '1.5 h': as exact as a guess may be."""
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Bar(tqdm):
    """tqdm's; `left` is what is left with what is done besides the items."""

    beside = 0.0  # seconds
    known_left: Callable[[], float | None] | None = None  # where the pace of the items does not tell it

    @property
    def format_dict(self) -> dict[str, Any]:
        known = super().format_dict
        if self.known_left:
            left = self.known_left()
            return {**known, "left": "?" if left is None else self.format_interval(left)}
        pace = 1 / known["rate"] if known["rate"] else known["elapsed"] / max(self.n - self.initial, 1)
        left = pace * ((self.total or self.n) - self.n) + self.beside
        return {**known, "left": self.format_interval(left) if self.n > self.initial else "?"}


class Progress(Generic[T]):
    """Iterate over `items` and show how far; `note(loss=...)` adds figures to what is shown, or words.

    Where the work is not a walk over items: `with Progress(total=n, label=...) as bar`, then `bar.advance(k)`.
    """

    def __init__(
        self,
        items: Iterable[T] = (),
        label: str = "",
        total: int | None = None,
        done: int = 0,
        unit: str = "it",
        weight: Callable[[T], int] = lambda item: 1,
        left: Callable[[], float | None] | None = None,
    ):
        self.items, self.label, self.done, self.weight = items, _titled(label), done, weight
        self.total = total if total is not None else len(items) + done  # type: ignore[arg-type]
        self.figures = ""
        times, bars = _goes.get((1, {}))
        self.total, self.whole = self.total * times, bars.get(self.label)
        self.on_terminal, (columns, lines) = sys.stderr.isatty(), shutil.get_terminal_size()
        self.bar = Bar(
            total=self.total, initial=done, desc=shortened(self.label, max(columns - FIGURES, 12)), unit=unit,
            leave=False, delay=PATIENCE, disable=not self.on_terminal or _loudness == QUIET or self.whole is not None,
            ncols=columns - 1, nrows=lines, bar_format=NARROW if columns < WIDE else WITH_RATE,
        )  # fmt: skip
        self.bar.known_left = self.left = left
        self.is_open, self.stays_open = False, times > 1
        self.started = self.last = time.monotonic()
        self.told_at = -math.inf
        self.marks = deque([(self.started, done)], maxlen=LINES_OF_PACE)
        if times > 1 and self.whole is None:
            bars[self.label] = self  # last: who is interrupted before it has nothing to close

    def note(self, *words: str, **figures: Any) -> None:
        texts = (
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in figures.items()
        )
        self.figures = ", ".join([*words, *texts])
        self.bar.set_postfix_str(self.figures, refresh=False)

    def __enter__(self) -> Progress[T]:
        if self.whole is None:
            self.at_it = _at_it(self.label, self.show)
            self.at_it.__enter__()
            _bars.append(self)
            self.is_open = True
        return self

    def __exit__(self, *failure: object) -> None:
        if not self.stays_open:
            self.close()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.at_it.__exit__(None, None, None)
            _bars.remove(self)
        self.bar.close()

    def __iter__(self) -> Iterator[T]:
        items, self.items = self.items, ()  # another thread that tells how far it is must not hold the last of them
        with self:
            for item in items:
                yield item
                self.advance(self.weight(item))

    def advance(self, count: int = 1) -> None:
        if self.whole is not None:
            self.whole.advance(count)
            return
        self.done += count
        self.bar.update(count)
        if time.monotonic() - self.last > SECONDS_BETWEEN_LINES and not self.on_terminal:
            self.show()

    @contextmanager
    def aside(self, more: int) -> Iterator[None]:
        """For work that is none of the items, so that their pace does not tell of it; the same again `more` times."""
        began = time.monotonic()
        yield
        spent = time.monotonic() - began
        self.marks = deque(((at + spent, done) for at, done in self.marks), maxlen=LINES_OF_PACE)
        self.bar.beside = more * spent
        if not self.bar.disable:
            self.bar.last_print_t += spent

    def show(self) -> None:
        """The bar, or a line in its place; not two lines within a second, where several clocks ask for one."""
        now = time.monotonic()
        if self.on_terminal:
            self.bar.refresh()
            heard()
        elif now - self.told_at >= min(PATIENCE, SECONDS_BETWEEN_LINES):
            self.told_at = now
            log_info(self.line(now - self.started))
            self.marks.append((now, self.done))
        self.last = now

    def line(self, elapsed: float) -> str:
        """'asking the model: 1,200/30,000 after 15 s, about 6 min left, loss 0.2'."""
        of = f"/{self.total:,}" if self.total else ""
        text = f"{self.label}: {self.done:,}{of} after {duration(elapsed)}"
        since, before = self.marks[0]  # a slow beginning does not count for ever
        if self.left:
            known = self.left()
            text += "" if known is None else f", about {duration(known)} left"
        elif self.total > self.done > before:
            pace = (self.started + elapsed - since) / (self.done - before)
            text += f", about {duration(pace * (self.total - self.done) + self.bar.beside)} left"
        return text + (f", {self.figures}" if self.figures else "")


def progress_by_group(
    items: Sequence[T], kind: Callable[[T], str], label: str, done: int = 0, unit: str = "it"
) -> Iterator[T]:
    """Items of several kinds, one of which may take a thousand times as long as another: what is left is told once
    each kind has been timed, and told anew where one turns out slower."""
    took: dict[str, float] = {}
    place, began = 0, time.monotonic()

    def left() -> float | None:
        rest = [kind(item) for item in items[place:]]
        if not set(rest) <= set(took):
            return None
        spent = time.monotonic() - began
        slowest = {**took, rest[0]: max(took[rest[0]], spent)}
        return sum(slowest[each] for each in rest) - spent

    bar = Progress(items, label, done=done, unit=unit, left=left)
    for place, item in enumerate(bar):  # noqa: B007
        bar.note(kind(item))
        began = time.monotonic()
        yield item
        took[kind(item)] = max(took.get(kind(item), 0), time.monotonic() - began)

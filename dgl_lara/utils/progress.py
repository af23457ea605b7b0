"""Progress of long work: a bar on a terminal, a quiet log line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from tqdm import tqdm

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 15.0


class Progress(Generic[T]):
    """Iterate over `items` and show how far; `note(loss=...)` adds figures to what is shown."""

    def __init__(
        self,
        items: Iterable[T],
        label: str,
        total: int | None = None,
        done: int = 0,
        unit: str = "it",
        weight: Callable[[T], int] = lambda item: 1,
    ):
        self.items, self.label, self.done, self.weight = items, label, done, weight
        self.total = total if total is not None else len(items) + done  # type: ignore[arg-type]
        self.on_terminal = sys.stderr.isatty()
        self.bar = tqdm(
            total=self.total, initial=done, desc=label, unit=unit, leave=False, disable=not self.on_terminal
        )
        self.figures = ""

    def note(self, **figures: Any) -> None:
        texts = (
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in figures.items()
        )
        self.figures = ", ".join(texts)
        self.bar.set_postfix_str(self.figures, refresh=False)

    def __iter__(self) -> Iterator[T]:
        started = last = time.monotonic()
        try:
            for item in self.items:
                yield item
                self.done += self.weight(item)
                self.bar.update(self.weight(item))
                now = time.monotonic()
                if not self.on_terminal and now - last > SECONDS_BETWEEN_LINES:
                    last = now
                    detail = f", {self.figures}" if self.figures else ""
                    say(f"{self.label}: {self.done}/{self.total} after {now - started:.0f} s{detail}")
        finally:
            self.bar.close()


def say(text: str) -> None:
    """One line for the reader on stderr, so that stdout stays clean for tables and files."""
    tqdm.write(text, file=sys.stderr)

"""Graph updates on disk: one line each, written and synchronised before anybody is told that it counts."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from dgl_lara.errors import LaraError

Entry = dict[str, Any]


class UpdateLog:
    """Numbers its entries from 1 and seals each. Several processes may append; a last line that a crash has cut short
    never counted, and is cut off by the next one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._entries: list[Entry] = []
        self._read = 0  # bytes
        self._one = threading.Lock()

    def entries(self) -> list[Entry]:
        """All of them; what was read before is not read again."""
        with self._one:
            if self.path.stat().st_size > self._read:
                with self.path.open("rb") as file:
                    file.seek(self._read)
                    text = file.read()
                whole = text[: text.rfind(b"\n") + 1]
                for line in whole.splitlines():
                    self._entries.append(self._parsed(line))
                self._read += len(whole)
            return self._entries

    def _parsed(self, line: bytes) -> Entry:
        number = len(self._entries) + 1
        try:
            entry = orjson.loads(line)
            seal = entry.pop("seal")
            if entry["sequence"] != number:
                raise ValueError(f"entry {entry['sequence']} stands where {number} is due")
            if seal != _seal(entry):
                raise ValueError("it is not as it was written")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LaraError(f"{self.path} is damaged at entry {number} ({error}); updates cannot go on.") from error
        return entry

    def append(self, make: Callable[[list[Entry]], Entry]) -> Entry:
        """What `make` makes, knowing all that came before; on disk when this returns."""
        with self._locked() as file:
            before = self.entries()
            entry = {"sequence": len(before) + 1, **make(before)}
            file.truncate(self._read)
            file.seek(self._read)
            file.write(orjson.dumps({**entry, "seal": _seal(entry)}) + b"\n")
            file.flush()
            os.fsync(file.fileno())
            return entry

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        with self.path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def _seal(entry: Entry) -> str:
    return hashlib.sha256(orjson.dumps(entry)).hexdigest()[:12]

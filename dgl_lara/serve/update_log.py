"""Log of graph updates, one line each. An entry is synchronised to disk before it is acknowledged."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from dgl_lara.errors import LaraError

Entry = dict[str, Any]


class UpdateLog:
    """Entries with sequence numbers from 1 and a checksum each.

    Several processes may append. A last line that a crash has truncated does not count, and the next entry replaces it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._entries: list[Entry] = []
        self._bytes_read = 0
        self._lock = threading.Lock()

    def entries(self) -> list[Entry]:
        """Return all entries. Only what is new since the last call is read."""
        with self._lock:
            if self.path.stat().st_size > self._bytes_read:
                with self.path.open("rb") as file:
                    file.seek(self._bytes_read)
                    text = file.read()
                complete = text[: text.rfind(b"\n") + 1]
                for line in complete.splitlines():
                    self._entries.append(self._parse(line))
                self._bytes_read += len(complete)
            return self._entries

    def _parse(self, line: bytes) -> Entry:
        expected = len(self._entries) + 1
        try:
            entry = orjson.loads(line)
            checksum = entry.pop("seal")
            if entry["sequence"] != expected:
                raise ValueError(f"its number is {entry['sequence']}")
            if checksum != _checksum(entry):
                raise ValueError("its checksum is wrong")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LaraError("update_log.damaged", path=self.path, entry=expected, problem=error) from error
        return entry

    def append(self, make: Callable[[list[Entry]], Entry]) -> Entry:
        """Append the entry that `make` returns, given all earlier ones, and return it when it is on disk."""
        with self.path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            earlier = self.entries()
            entry = {"sequence": len(earlier) + 1, **make(earlier)}
            file.truncate(self._bytes_read)
            file.seek(self._bytes_read)
            file.write(orjson.dumps({**entry, "seal": _checksum(entry)}) + b"\n")
            file.flush()
            os.fsync(file.fileno())
            return entry


def _checksum(entry: Entry) -> str:
    return hashlib.sha256(orjson.dumps(entry)).hexdigest()[:12]

"""The files of a graph in parts are what was written: their checksums, looked at once on every machine.

A folder whose files have been looked at says so in `.checked`: size, time and place on disk of each. Whoever finds them
so again need not read them; a copy has another place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dgl_lara._util.atomic import atomic_write, checksum
from dgl_lara._util.progress import status
from dgl_lara.errors import LaraError

STAMP = ".checked"


def check(folder: Path, sums: Mapping[str, object]) -> None:
    """The arrays of a folder, by name. LaraError if one is missing or was changed."""
    try:
        if _stamp(folder, sums) == (folder / STAMP).read_text():
            return
    except OSError:
        pass  # never looked at here, or a file is missing
    with status(f"checking {folder}"):
        for name, expected in sums.items():
            path = folder / f"{name}.npy"
            if not path.is_file() or checksum(path) != expected:
                raise LaraError(
                    f"{path} is missing, truncated or damaged (it is not what was written); partition the graph again."
                )
    mark(folder, sums)


def mark(folder: Path, sums: Mapping[str, object]) -> None:
    """These were looked at, or written right now."""
    with suppress(OSError), atomic_write(folder / STAMP) as temporary:  # where nothing can be written: again next time
        temporary.write_text(_stamp(folder, sums))


def _stamp(folder: Path, sums: Mapping[str, object]) -> str:
    states = {name: (folder / f"{name}.npy").stat() for name in sums}
    content = {name: [sums[name], s.st_size, s.st_mtime_ns, s.st_ino, s.st_dev] for name, s in states.items()}
    return json.dumps(content) + "\n"

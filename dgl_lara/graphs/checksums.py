"""Checksums of the files of a partitioned graph, read once on every machine.

A checked folder has a file `.checked` with size, time and inode of each array. While these are unchanged the arrays are
not read again. A copied folder has other inodes and is checked.
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
    """Check the arrays of a folder.

    Args:
        folder: The folder.
        sums: Checksum of each array, by name.

    Raises:
        LaraError: "partition.damaged" if an array is missing or changed.
    """
    try:
        if _stamp(folder, sums) == (folder / STAMP).read_text():
            return
    except OSError:
        pass  # never checked here, or a file is missing
    with status(f"checking {folder}"):
        for name, expected in sums.items():
            path = folder / f"{name}.npy"
            if not path.is_file() or checksum(path) != expected:
                raise LaraError("partition.damaged", path=path, cause="its checksum differs")
    mark(folder, sums)


def mark(folder: Path, sums: Mapping[str, object]) -> None:
    """Mark the arrays of a folder as checked."""
    with (
        suppress(OSError),
        atomic_write(folder / STAMP) as temporary,
    ):  # a folder may be read-only
        temporary.write_text(_stamp(folder, sums))


def _stamp(folder: Path, sums: Mapping[str, object]) -> str:
    states = {name: (folder / f"{name}.npy").stat() for name in sums}
    content = {name: [sums[name], s.st_size, s.st_mtime_ns, s.st_ino, s.st_dev] for name, s in states.items()}
    return json.dumps(content) + "\n"

"""The format of a partitioned graph: one folder with one folder per part.

meta.json            the graph, its partition and a checksum of every file, written last
train.npy, val.npy, test.npy   the splits, ids of nodes
place.npy            the position of every node in the order of the parts, left out if that is its id
part-0000/
    indptr.npy       (nodes + 1,) the first in-edge of each node
    sources.npy      (edges,) their source nodes
    features.npy     (nodes, columns) float32 or float16
    labels.npy       (nodes,)
    original.npy     (nodes,) the id of each node, ascending, left out if place.npy is

A part is a range of positions. Files contain node ids of the user's graph.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dgl_lara._util.atomic import short_hash
from dgl_lara._util.schema import flag, rows_of, table, text, validation_error, whole, word
from dgl_lara.errors import InputError, LaraError

META = "meta.json"
FORMAT = "dgl-lara parts 1"
METHODS = ("metis", "random", "order")
SPLITS = ("train", "val", "test")
PART = {"nodes": whole(), "edges": whole(), "files": table}
FIELDS = {
    "format": word(FORMAT), "name": text, "source": text, "nodes": whole(1), "edges": whole(1), "columns": whole(1),
    "classes": whole(), "method": word(*METHODS), "loops": flag, "all_loops": flag, "parts": rows_of(PART),
    "versions": table, "key": table, "files": table, "fingerprint": text,
}  # fmt: skip


@dataclass(frozen=True)
class _Meta:
    """Content of meta.json."""

    name: str
    source: str  # source of the graph, in words
    nodes: int
    edges: int
    columns: int
    classes: int
    method: str
    loops: bool  # a node has an edge to itself
    all_loops: bool  # every node has
    parts: list[dict[str, Any]]
    versions: dict[str, str]
    key: dict[str, Any]
    files: dict[str, str]  # checksums of the files next to meta.json
    fingerprint: str

    @property
    def firsts(self) -> np.ndarray:
        """Return (num_parts + 1,) the first position of each part, and the end."""
        return np.concatenate([[0], np.cumsum([part["nodes"] for part in self.parts])]).astype(np.int64)


def is_in_parts(folder: Path) -> bool:
    return (folder / META).is_file()


def part_folder(folder: Path, number: int) -> Path:
    return folder / f"part-{number:04d}"


def read_meta(folder: Path) -> _Meta:
    """Return the validated description of a partitioned graph.

    Raises:
        InputError: "partition.missing" if the folder is no partitioned graph.
        LaraError: "partition.meta" or "partition.changed" if meta.json is damaged.
    """
    path = folder / META
    if not path.is_file():
        raise InputError("partition.missing", folder=folder, meta=META)
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise LaraError("partition.meta", path=path, cause=error) from error
    if wrong := validation_error(content, FIELDS):
        raise LaraError("partition.meta", path=path, cause=wrong)
    meta = _Meta(**{name: content[name] for name in FIELDS if name != "format"})
    if meta.firsts[-1] != meta.nodes or sum(part["edges"] for part in meta.parts) != meta.edges:
        raise LaraError("partition.meta", path=path, cause="its parts do not add up to the graph")
    if fingerprint(content) != meta.fingerprint:
        raise LaraError("partition.changed", path=path)
    return meta


def fingerprint(content: dict[str, Any]) -> str:
    """Return a hash of the graph and its partition that does not depend on where and with what it was written."""
    return short_hash({name: content[name] for name in FIELDS if name not in ("format", "versions", "fingerprint")})


def mapped_array(path: Path, kinds: str, *shape: int) -> np.ndarray:
    """Return the array of a file as a memory map. `kinds` are kinds of NumPy, "i" or "f"."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        found = f"{array.dtype} {array.shape}"
        wrong = array.dtype.kind not in kinds or array.shape != shape
    except (OSError, ValueError, EOFError) as error:
        raise LaraError("partition.damaged", path=path, cause=str(error).splitlines()[0]) from error
    if wrong:
        raise LaraError("partition.damaged", path=path, cause=f"expected shape {shape}, got {found}")
    return array

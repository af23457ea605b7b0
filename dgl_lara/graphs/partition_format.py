"""The format of a graph in parts: one folder, and in it one folder a part.

meta.json            what the graph is, how it was cut, a checksum of every file; written last
train.npy, val.npy, test.npy   the splits, numbers of nodes
place.npy            the place of every node in the order of the parts; left out where that is its own number
part-0000/
    indptr.npy       (nodes + 1,) where the in-edges of each node of the part begin
    sources.npy      (edges,) where they come from
    features.npy     (nodes, columns) float32 or float16
    labels.npy       (nodes,)
    original.npy     (nodes,) which node of the graph each is, rising; left out where place.npy is

A part is a range of places. Nodes are known by the numbers that the user's graph has, in every file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dgl_lara._util.atomic import short_hash
from dgl_lara._util.schema import flag, rows_of, table, text, validate, whole, word
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
class Meta:
    """What meta.json says."""

    name: str
    source: str  # in words: where the graph comes from
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
    files: dict[str, str]  # the sums of those beside meta.json
    fingerprint: str

    @property
    def firsts(self) -> np.ndarray:
        """(parts + 1,) the first place of each part, and the end."""
        return np.concatenate([[0], np.cumsum([part["nodes"] for part in self.parts])]).astype(np.int64)


def is_in_parts(folder: Path) -> bool:
    return (folder / META).is_file()


def part_folder(folder: Path, number: int) -> Path:
    return folder / f"part-{number:04d}"


def read_meta(folder: Path) -> Meta:
    path = folder / META
    if not path.is_file():
        raise InputError(f"'{folder}' is not a graph in parts (it has no {META}); make one with: dgl-lara partition")
    try:
        content = validate(json.loads(path.read_text()), FIELDS, path)
    except (OSError, ValueError, RecursionError) as error:
        raise LaraError(f"{path} cannot be understood ({error}).") from error
    meta = Meta(**{name: content[name] for name in FIELDS if name != "format"})
    if meta.firsts[-1] != meta.nodes or sum(part["edges"] for part in meta.parts) != meta.edges:
        raise LaraError(f"{path} cannot be understood (its parts do not add up to the graph).")
    if fingerprint(content) != meta.fingerprint:
        raise LaraError(f"{path} is not as it was written; partition the graph again.")
    return meta


def fingerprint(content: dict[str, Any]) -> str:
    """Of the graph and its cut, wherever and with whatever it was made."""
    return short_hash({name: content[name] for name in FIELDS if name not in ("format", "versions", "fingerprint")})


def mapped_array(path: Path, kinds: str, *shape: int) -> np.ndarray:
    """The array of a file, read where it is looked at. `kinds`: of NumPy, 'i' or 'f'."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        found = f"{array.dtype} {array.shape}"
        wrong = array.dtype.kind not in kinds or array.shape != shape
    except (OSError, ValueError, EOFError) as error:
        raise LaraError(
            f"{path} is missing, truncated or damaged ({str(error).splitlines()[0]}); partition the graph again."
        ) from error
    if wrong:
        raise LaraError(f"{path} is not as {META} says (expected shape {shape}, got {found}); partition again.")
    return array

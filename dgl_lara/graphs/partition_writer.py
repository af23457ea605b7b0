"""Writing a graph in parts, one part at a time. A folder without its meta.json is not one: that comes last."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dgl_lara._util.atomic import atomic_write, checksum, locked
from dgl_lara._util.numba_threads import kernel
from dgl_lara.errors import InputError
from dgl_lara.graphs.checksums import mark
from dgl_lara.graphs.partition_format import FORMAT, META, SPLITS, fingerprint, is_in_parts, part_folder


@dataclass(frozen=True, eq=False)
class PartitionData:
    """One part."""

    nodes: np.ndarray | None  # rising; None: the next ones in the graph's own order
    indptr: np.ndarray
    sources: np.ndarray
    labels: np.ndarray
    features: Iterable[np.ndarray]  # blocks of rows, one after the other


@dataclass(frozen=True, eq=False)
class GraphInfo:
    """The graph that is written."""

    name: str
    source: str
    nodes: int
    columns: int
    classes: int
    key: dict[str, Any]
    splits: Mapping[str, np.ndarray]
    method: str  # how it was cut
    versions: dict[str, str]


def check_free(folder: Path) -> None:
    if is_in_parts(folder):
        raise InputError(f"{folder} holds a graph in parts already; name another --out.")


def write_parts(folder: Path, about: GraphInfo, contents: Iterable[PartitionData], kind: str = "float32") -> None:
    """`kind`: of the features, float32 or float16, which takes half of the room."""
    check_free(folder)
    small = np.int32 if about.nodes < 2**31 else np.int64
    with locked(folder):
        check_free(folder)  # somebody else may have been faster
        place = None if about.method == "order" else np.empty(about.nodes, small)
        parts: list[dict[str, Any]] = []
        first, loops = 0, 0
        for number, content in enumerate(contents):
            inner = part_folder(folder, number)
            inner.mkdir(exist_ok=True)
            count = len(content.indptr) - 1
            arrays = {"indptr": content.indptr.astype(np.int64), "sources": content.sources.astype(small, copy=False)}
            arrays["labels"] = content.labels.astype(np.int32)
            if place is not None and content.nodes is not None:
                arrays["original"] = content.nodes.astype(small)
                place[content.nodes] = np.arange(first, first + count)
            nodes = np.arange(first, first + count) if content.nodes is None else content.nodes
            loops += _own_loops(nodes.astype(np.int64), content.indptr, content.sources)
            sums = {name: _save(inner / f"{name}.npy", array) for name, array in arrays.items()}
            sums["features"] = _save_rows(inner / "features.npy", content.features, (count, about.columns), kind)
            mark(inner, sums)
            parts.append({"nodes": count, "edges": len(content.sources), "files": sums})
            first += count
        files = {name: _save(folder / f"{name}.npy", about.splits[name].astype(small)) for name in SPLITS}
        if place is not None:
            files["place"] = _save(folder / "place.npy", place)
        mark(folder, files)
        said = {
            "name": about.name, "source": about.source, "nodes": about.nodes, "columns": about.columns,
            "edges": sum(part["edges"] for part in parts), "classes": about.classes, "method": about.method,
            "loops": loops > 0, "all_loops": loops == about.nodes, "parts": parts, "versions": about.versions,
            "key": about.key, "files": files,
        }  # fmt: skip
        with atomic_write(folder / META) as temporary:
            signed = {"format": FORMAT, **said, "fingerprint": fingerprint(said)}
            temporary.write_text(json.dumps(signed, indent=1) + "\n")


def _save(path: Path, array: np.ndarray) -> str:
    """Returns its checksum."""
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)
    return checksum(path)


def _save_rows(path: Path, blocks: Iterable[np.ndarray], shape: tuple[int, int], kind: str) -> str:
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(kind)), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype=kind).data)
    return checksum(path)


@kernel()
def _own_loops(nodes, indptr, sources):  # type: ignore[no-untyped-def]
    """How many of the nodes have an edge to themselves."""
    count = 0
    for row in range(len(nodes)):
        for edge in range(indptr[row], indptr[row + 1]):
            if sources[edge] == nodes[row]:
                count += 1
                break
    return count

"""Writing a partitioned graph part by part. meta.json comes last, so an unfinished folder is not opened."""

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
    """One part.

    Attributes:
        nodes: Ids of its nodes, ascending. None means the next ones in the order of the graph.
        indptr: First in-edge of each node.
        sources: Their source nodes.
        labels: Labels of the nodes.
        features: Consecutive blocks of rows.
    """

    nodes: np.ndarray | None  # rising; None: the next ones in the graph's own order
    indptr: np.ndarray
    sources: np.ndarray
    labels: np.ndarray
    features: Iterable[np.ndarray]  # blocks of rows, one after the other


@dataclass(frozen=True, eq=False)
class GraphInfo:
    """Description of the graph that is written. `method` is the name of the partition method."""

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
    """Raise an error if a folder already contains a partitioned graph."""
    if is_in_parts(folder):
        raise InputError("partition.exists", folder=folder)


def write_parts(folder: Path, info: GraphInfo, contents: Iterable[PartitionData], dtype: str = "float32") -> None:
    """Write a partitioned graph.

    Args:
        folder: An empty or new folder.
        about: The graph.
        contents: The parts.
        kind: Type of the features, "float32" or "float16", which takes half of the space.
    """
    check_free(folder)
    small = np.int32 if info.nodes < 2**31 else np.int64
    with locked(folder):
        check_free(folder)  # another process may have been faster
        positions = None if info.method == "order" else np.empty(info.nodes, small)
        parts: list[dict[str, Any]] = []
        first, loops = 0, 0
        for number, content in enumerate(contents):
            inner = part_folder(folder, number)
            inner.mkdir(exist_ok=True)
            count = len(content.indptr) - 1
            arrays = {"indptr": content.indptr.astype(np.int64), "sources": content.sources.astype(small, copy=False)}
            arrays["labels"] = content.labels.astype(np.int32)
            if positions is not None and content.nodes is not None:
                arrays["original"] = content.nodes.astype(small)
                positions[content.nodes] = np.arange(first, first + count)
            nodes = np.arange(first, first + count) if content.nodes is None else content.nodes
            loops += _own_loops(nodes.astype(np.int64), content.indptr, content.sources)
            sums = {name: _save(inner / f"{name}.npy", array) for name, array in arrays.items()}
            sums["features"] = _save_rows(inner / "features.npy", content.features, (count, info.columns), dtype)
            mark(inner, sums)
            parts.append({"nodes": count, "edges": len(content.sources), "files": sums})
            first += count
        files = {name: _save(folder / f"{name}.npy", info.splits[name].astype(small)) for name in SPLITS}
        if positions is not None:
            files["place"] = _save(folder / "place.npy", positions)
        mark(folder, files)
        meta = {
            "name": info.name, "source": info.source, "nodes": info.nodes, "columns": info.columns,
            "edges": sum(part["edges"] for part in parts), "classes": info.classes, "method": info.method,
            "loops": loops > 0, "all_loops": loops == info.nodes, "parts": parts, "versions": info.versions,
            "key": info.key, "files": files,
        }  # fmt: skip
        with atomic_write(folder / META) as temporary:
            signed = {"format": FORMAT, **meta, "fingerprint": fingerprint(meta)}
            temporary.write_text(json.dumps(signed, indent=1) + "\n")


def _save(path: Path, array: np.ndarray) -> str:
    """Write an array and return its checksum."""
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)
    return checksum(path)


def _save_rows(path: Path, blocks: Iterable[np.ndarray], shape: tuple[int, int], dtype: str) -> str:
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype=dtype).data)
    return checksum(path)


@kernel()
def _own_loops(nodes, indptr, sources):  # type: ignore[no-untyped-def]
    """Count the nodes that have a self-loop."""
    count = 0
    for row in range(len(nodes)):
        for edge in range(indptr[row], indptr[row + 1]):
            if sources[edge] == nodes[row]:
                count += 1
                break
    return count

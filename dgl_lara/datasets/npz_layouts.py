"""The layouts in which others keep graphs in .npz files, turned into ours: src, dst, x, y, masks; and names.

edge_index             (2, edges) in the place of src and dst, as PyTorch Geometric has it
adj_data, adj_indices, adj_indptr, adj_shape    a sparse adjacency matrix, and attr_... likewise sparse features: the
                       Amazon and Coauthor benchmarks; also "adj_matrix.data" and so on
feat, features, ...    other words for x; label, labels, ... for y
node_names, class_names, feature_names          arrays of texts; or "<stem>.names.json" beside the file, with lists
                       under "nodes", "classes" and "features"
"""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dgl_lara._util.memory import free_memory
from dgl_lara._util.progress import log_info
from dgl_lara.datasets.cache import DAMAGE, Arrays, damaged
from dgl_lara.datasets.file_fields import TEXT_ENCODING
from dgl_lara.errors import InputError

WORDS = {
    "x": ("x", "feat", "features", "node_features", "attr_matrix"),
    "y": ("y", "label", "labels", "node_labels"),
}
ADJACENCY, ATTRIBUTES = ("adj", "adj_matrix", "adjacency"), ("attr", "attr_matrix", "features")
NAMES = {
    "nodes": ("node_names",),
    "classes": ("class_names", "label_names"),
    "features": ("feature_names", "attr_names"),
}
Names = dict[str, Any]  # tuples of texts; of the nodes of several types: by type


def read_layout(path: Path) -> tuple[Arrays, Names]:
    """The arrays in our layout, as far as they are there, and whatever names the file holds."""
    found, skipped = _read(path)
    arrays = dict(found)
    adjacency, attributes = _sparse(path, found, ADJACENCY), _sparse(path, found, ATTRIBUTES)
    _check_said_once(path, found, adjacency is not None, attributes is not None)
    if "edge_index" in arrays:
        edges = arrays["edge_index"]
        if edges.ndim != 2 or len(edges) != 2:
            raise InputError(f"{path}: edge_index must have two rows, sources and targets (got shape {edges.shape}).")
        arrays["src"], arrays["dst"] = edges
    if adjacency is not None:
        arrays["src"], arrays["dst"] = _edges_of(path, adjacency)
    if attributes is not None:
        rows, columns = attributes.shape
        if (needed := 8.0 * rows * columns) > free_memory():
            raise InputError(f"{path}: {rows:,} rows of {columns:,} features would take {needed / 2**30:,.0f} GB.")
        arrays["x"] = attributes.toarray()
    for ours, theirs in WORDS.items():
        name = next((name for name in theirs if name in arrays), None)
        if name is not None:
            arrays[ours] = arrays[name]
    _check_complete(path, arrays, [*found, *skipped])
    names = {
        of: tuple(found[name].astype(str).tolist())
        for of, words in NAMES.items()
        for name in words
        if name in found and found[name].dtype.kind in "US"
    }
    return arrays, names


def _check_said_once(path: Path, held: Arrays, has_adjacency: bool, has_attributes: bool) -> None:
    """Edges, features and labels in one way each: of two that differ nobody could tell which was meant."""

    def differing(words: tuple[str, ...]) -> list[str]:
        first, *others = [name for name in words if name in held] or [""]
        return [first] * bool(first) + [name for name in others if not np.array_equal(held[name], held[first])]

    lists = [name for name in ("src", "edge_index") if name in held]
    if len(lists) == 2 and "dst" in held and np.array_equal(held["edge_index"], [held["src"], held["dst"]]):
        lists.pop()
    ways = {
        "edges": lists + ["a sparse adjacency"] * has_adjacency,
        "features": differing(WORDS["x"]) + ["sparse attributes"] * has_attributes,
        "labels": differing(WORDS["y"]),
    }
    for what, found in ways.items():
        if len(found) > 1:
            raise InputError(f"{path} holds different {what} as {' and as '.join(found)}; leave all but one out.")


def _read(path: Path) -> tuple[Arrays, list[str]]:
    """All arrays but those of Python objects, which only a pickle could hold; their names."""
    skipped: list[str] = []
    arrays: Arrays = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for name in file.files:
                try:
                    arrays[name] = file[name]
                except ValueError as error:
                    if "Object arrays" not in str(error):
                        raise
                    skipped.append(name)
    except (*DAMAGE, EOFError, KeyError, AttributeError, TypeError, MemoryError) as error:
        raise damaged(path, error) from error
    return arrays, skipped


def _sparse(path: Path, arrays: Arrays, words: tuple[str, ...]) -> sp.csr_matrix | None:
    """The matrix whose parts are called <word>_data or <word>.data, and so on."""
    for word in words:
        for mark in "_.":
            parts = [f"{word}{mark}{part}" for part in ("data", "indices", "indptr", "shape")]
            if all(part in arrays for part in parts):
                data, indices, indptr, shape = (arrays[part] for part in parts)
                try:
                    matrix = sp.csr_matrix((data, indices, indptr), shape=tuple(int(size) for size in shape))
                    matrix.check_format(full_check=True)
                except (ValueError, TypeError, IndexError, OverflowError) as error:
                    raise InputError(f"{path}: {', '.join(parts)} are no sparse matrix ({error}).") from error
                return matrix
    return None


def _edges_of(path: Path, adjacency: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    if adjacency.shape[0] != adjacency.shape[1]:
        raise InputError(f"{path}: the adjacency matrix must be square (got {adjacency.shape}).")
    present = adjacency != 0
    if (present != present.T).nnz:
        log_info(
            f"{path.name}: its adjacency matrix is not symmetric, an entry (i, j) is an edge from i to j; "
            "--undirected takes every edge in both directions, as DGL and PyTorch Geometric do with such files"
        )
    return present.tocoo().row.astype(np.int64), present.tocoo().col.astype(np.int64)


def _check_complete(path: Path, arrays: Arrays, held: list[str]) -> None:
    missing = [name for name in ("src", "dst", "x") if name not in arrays]
    if missing:
        has = ", ".join(held) or "none"
        has += ", a scipy sparse matrix alone" if {"indices", "indptr", "shape"} <= set(held) else ""
        raise InputError(
            f"{path} lacks the array(s) {', '.join(missing)}; it must hold src, dst and x, or edge_index, or a sparse "
            f"adjacency (adj_data, adj_indices, adj_indptr, adj_shape), and y if there are labels (it has {has})."
        )


def names_beside(path: Path) -> Names:
    """Of "<stem>.names.json", where there is such a file: DGL's .bin files cannot hold texts."""
    beside = path.with_suffix(".names.json")
    if not beside.is_file():
        return {}
    try:
        content = json.loads(beside.read_text(TEXT_ENCODING))
    except (ValueError, OSError, RecursionError) as error:
        raise InputError(f"{beside} must be a JSON file ({error}).") from error
    if not isinstance(content, dict) or not set(content) <= set(NAMES):
        raise InputError(f"{beside} must hold lists under {', '.join(NAMES)}, and nothing else.")
    return {of: _texts(beside, of, names) for of, names in content.items()}


def _texts(beside: Path, of: str, names: Any) -> Any:
    """A list of texts; of the nodes also one for each type."""
    if of == "nodes" and isinstance(names, dict):
        return {kind: _texts(beside, f"nodes of {kind}", own) for kind, own in names.items()}
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{beside}: '{of}' must be a list of texts.")
    return tuple(names)


def check_names(path: Path, names: Names, counts: dict[str, Any]) -> Names:
    """A name for each of them, no more and no fewer, unless nobody knows how many there are (None). Counts by type ask
    for names by type, of some types or all."""
    for of, given in names.items():
        if of not in counts or isinstance(given, dict) != isinstance(counts[of], dict):
            kind = "lists by node type" if isinstance(counts.get(of), dict) else "one list"
            wanted = f"must be {kind}" if of in counts else "have a name only where there is one type of nodes"
            raise InputError(f"{path}: the names of {of} {wanted}.")
        if isinstance(given, dict):
            unknown = [kind for kind in given if kind not in counts[of]]
            if unknown:
                raise InputError(f"{path}: there are names of '{unknown[0]}' (the types are {', '.join(counts[of])}).")
            check_names(path, given, counts[of])
        elif counts[of] is not None and len(given) != counts[of]:
            raise InputError(f"{path}: there must be a name for each of the {counts[of]} {of} (got {len(given)}).")
        elif (bad := next((name for name in map(str, given) if not is_text(name)), None)) is not None:
            raise InputError(f"{path}: names of {of} must be plain text on one line (got {ascii(bad)[:60]}).")
    return names


def is_text(name: str) -> bool:
    """Without line breaks, and what else a terminal would obey or no file can hold."""
    return name.isprintable() or not any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in name)

"""Graphs in .npz files.

src, dst               edges, or edge_index (2, edges) as in PyTorch Geometric, or a sparse adjacency matrix: adj_data,
                       adj_indices, adj_indptr, adj_shape (also "adj_matrix.data" and so on)
x                      node features, also feat, features or sparse attr_data, attr_indices, ...
y                      labels, if there are any, also label or labels, -1 for unknown
train_mask, ...        train_mask, val_mask and test_mask, or none
graph                  the graph of each node, 0, 1, 2, ... for graph classification, then y has a row for each graph
node_names, ...        node_names, class_names and feature_names, arrays of texts, or "<stem>.names.json"
"""

from __future__ import annotations

from pathlib import Path

import dgl
import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from dgl_lara._util.memory import free_memory
from dgl_lara._util.notices import notice
from dgl_lara.datasets.cache import Arrays, read_arrays
from dgl_lara.datasets.dataset import SPLITS
from dgl_lara.datasets.graph_data import GraphData, build_graph, whole_numbers
from dgl_lara.errors import InputError

FEATURES = ("x", "feat", "features", "node_features", "attr_matrix")
LABELS = ("y", "label", "labels", "node_labels")
ADJACENCY, ATTRIBUTES = ("adj", "adj_matrix", "adjacency"), ("attr", "attr_matrix", "features")
NAMES = {
    "nodes": ("node_names",),
    "classes": ("class_names", "label_names"),
    "features": ("feature_names", "attr_names"),
}


def read_npz(path: Path) -> GraphData:
    """Read and check a file."""
    arrays = read_arrays(path, skip_objects=True)
    edges, features = _edges(path, arrays), _features(path, arrays)
    if edges is None or features is None:
        missing = [what for what, value in (("edges", edges), ("features", features)) if value is None]
        raise InputError("npz.missing", path=path, missing=" and ".join(missing), got=", ".join(arrays) or "no arrays")
    if features.dim() != 2:
        raise InputError("data.features_shape", name=path, of="", rows="num_nodes", got=tuple(features.shape))
    graph = build_graph(path, {("_N", "_E", "_N"): edges}, {"_N": len(features)})
    if "graph" in arrays:
        _set_batch(path, graph, whole_numbers(path, "graph", _numbers(path, "graph", arrays["graph"])))
    return GraphData(
        path,
        graph,
        {"_N": features},
        task="graph" if "graph" in arrays else "node",
        labels=_only(path, "labels", {name: _numbers(path, name, arrays[name]) for name in LABELS if name in arrays}),
        masks={split: _numbers(path, name, arrays[name]) for split in SPLITS if (name := f"{split}_mask") in arrays},
        names={
            kind: tuple(arrays[name].astype(str).tolist())
            for kind, names in NAMES.items()
            for name in names
            if name in arrays and arrays[name].dtype.kind in "US"
        },
    )


def _numbers(path: Path, name: str, array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "biuf":
        raise InputError("npz.not_numbers", path=path, name=name, got=array.dtype)
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InputError("npz.too_large", path=path, name=name, got=int(array.max()))
    return torch.as_tensor(array.astype(np.float64 if array.dtype.kind == "f" else np.int64))


def _only(path: Path, what: str, found: dict[str, Tensor]) -> Tensor | None:
    """Return the one value that is stored under several names. Raise InputError if they differ."""
    values = list(found.values())
    if any(not torch.equal(values[0], value) for value in values[1:]):
        raise InputError("npz.ambiguous", path=path, what=what, names=" and as ".join(found))
    return values[0] if values else None


def _edges(path: Path, arrays: Arrays) -> tuple[Tensor, Tensor] | None:
    found = {}
    if {"src", "dst"} <= arrays.keys():
        src, dst = (whole_numbers(path, name, _numbers(path, name, arrays[name])) for name in ("src", "dst"))
        if src.dim() != 1 or src.shape != dst.shape:
            raise InputError("npz.edges_shape", path=path, src=tuple(src.shape), dst=tuple(dst.shape))
        found["src"] = torch.stack([src, dst])
    if "edge_index" in arrays:
        found["edge_index"] = whole_numbers(path, "edge_index", _numbers(path, "edge_index", arrays["edge_index"]))
        if found["edge_index"].dim() != 2 or len(found["edge_index"]) != 2:
            raise InputError("npz.edge_index_shape", path=path, got=tuple(found["edge_index"].shape))
    if (adjacency := _sparse(path, arrays, ADJACENCY)) is not None:
        found["a sparse adjacency"] = _edges_of(path, adjacency)
    edges = _only(path, "edges", found)
    return None if edges is None else (edges[0], edges[1])


def _edges_of(path: Path, adjacency: sp.csr_matrix) -> Tensor:
    if adjacency.shape[0] != adjacency.shape[1]:
        raise InputError("npz.adjacency_shape", path=path, got=adjacency.shape)
    present = adjacency != 0
    if (present != present.T).nnz:
        notice("npz.not_symmetric", file=path.name)
    return torch.as_tensor(np.stack([present.tocoo().row, present.tocoo().col]).astype(np.int64))


def _features(path: Path, arrays: Arrays) -> Tensor | None:
    found = {name: _numbers(path, name, arrays[name]) for name in FEATURES if name in arrays}
    if (attributes := _sparse(path, arrays, ATTRIBUTES)) is not None:
        rows, columns = attributes.shape
        if (needed := 8.0 * rows * columns) > free_memory():
            raise InputError("npz.memory", path=path, rows=rows, columns=columns, gigabytes=needed / 2**30)
        found["sparse attributes"] = _numbers(path, "sparse attributes", attributes.toarray())
    return _only(path, "features", found)


def _sparse(path: Path, arrays: Arrays, names: tuple[str, ...]) -> sp.csr_matrix | None:
    """Return the matrix stored as <name>_data or <name>.data, and so on."""
    for prefix in (f"{name}{mark}" for name in names for mark in "_."):
        parts = [f"{prefix}{part}" for part in ("data", "indices", "indptr", "shape")]
        if all(part in arrays for part in parts):
            data, indices, indptr, shape = (arrays[part] for part in parts)
            try:
                matrix = sp.csr_matrix((data, indices, indptr), shape=tuple(int(size) for size in shape))
                matrix.check_format(full_check=True)
            except (ValueError, TypeError, IndexError, OverflowError) as error:
                raise InputError("npz.not_sparse", path=path, names=", ".join(parts), cause=error) from error
            return matrix
    return None


def _set_batch(path: Path, graph: dgl.DGLGraph, graph_of_node: Tensor) -> None:
    count = graph.num_nodes()
    steps = graph_of_node.diff()
    is_valid = graph_of_node.shape == (count,) and not bool((steps < 0).any() or (steps > 1).any())
    if not is_valid or graph_of_node[:1].any():
        raise InputError("npz.graph", path=path, count=count)
    src, dst = graph.edges()
    if bool((graph_of_node[src] != graph_of_node[dst]).any()):
        raise InputError("npz.edge_between_graphs", path=path)
    sizes = torch.bincount(graph_of_node)
    graph.set_batch_num_nodes(sizes)
    graph.set_batch_num_edges(torch.bincount(graph_of_node[src], minlength=len(sizes)))

"""A graph of the user's own: an .npz file of arrays, or a .bin file written by `dgl.save_graphs`.

.npz: src, dst (edges), x (node features), y (labels, if there are any; -1: nobody knows); optional train_mask,
      val_mask, test_mask; optional graph (the graph each node belongs to, 0, 1, 2, ...): then the task is graph
      classification and y has a row a graph.
      Other layouts, and names of nodes, classes and features: `npz_layouts.py`.
.bin: one graph with ndata x or feat, optional y or label, optional masks; or many graphs, with the graph labels stored
      under y, label or labels. Edge data stay. Several node types: `typed_files.py`.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import sys
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import psutil
import torch
from torch import Tensor

from dgl_lara.datasets import Options
from dgl_lara.datasets.dataset import Dataset, checked
from dgl_lara.datasets.file_fields import (
    PARTS,
    check_edges,
    content_of,
    labels_and_splits,
    labels_in,
    numbers_of,
    pick,
    whole_numbers,
)
from dgl_lara.datasets.hetero_files import read_typed
from dgl_lara.datasets.link_files import link_dataset
from dgl_lara.datasets.npz_layouts import Names, check_names, names_beside, read_layout
from dgl_lara.errors import InputError, LaraError

SLOWEST_READ = 10 * 2**20  # bytes a second
USED = ("src", "dst", "x", "y", "graph", *(f"{part}_mask" for part in PARTS))


def load_file(path: Path, options: Options) -> Dataset:
    if not os.path.isfile(path):  # also of a name that no file can have
        raise InputError(f"the data set file '{path}' does not exist.")
    if path.suffix not in READERS:
        arrays = "np.savez('my_graph.npz', edge_index=data.edge_index, x=data.x, y=data.y)"
        hint = f"; of PyTorch Geometric's Data: {arrays}" if path.suffix in (".pt", ".pth") else ""
        raise InputError(f"'{path}' must be an .npz or a DGL .bin file (got '{path.suffix or 'no ending'}'){hint}.")
    dataset = READERS[path.suffix](path, options)
    return dataset.to_undirected() if options.undirected else dataset


def load_graph(path: Path) -> tuple[dgl.DGLGraph, Any]:
    """A graph and its features alone, of one node type or several: to be explained, not to be learned from."""
    if not os.path.isfile(path):
        raise InputError(f"the graph file '{path}' does not exist.")
    if path.suffix == ".npz":
        read, _ = read_layout(path)
        src, dst = (whole_numbers(path, name, _tensor(path, name, read[name])) for name in ("src", "dst"))
        x = _tensor(path, "x", read["x"])
        check_edges(path, src, dst, len(x))
        return dgl.graph((src, dst), num_nodes=len(x)), x.float()
    if not _readable(path):
        raise LaraError(f"{path} is truncated or not a DGL .bin file (dgl cannot read it).")
    graphs, _ = dgl.load_graphs(str(path))
    graph = graphs[0] if len(graphs) == 1 else dgl.batch(graphs)
    found = {
        kind: pick(path, f"features of '{kind}'", graph.nodes[kind].data, ("x", "feat")).float()
        for kind in graph.ntypes
    }
    for kind in graph.ntypes:
        graph.nodes[kind].data.clear()
    return graph, found[graph.ntypes[0]] if graph.is_homogeneous else found


def _assemble(
    path: Path,
    task: str,
    graph: dgl.DGLGraph,
    x: Tensor,
    y: Tensor | None,
    masks: dict,
    seed: int,
    names: Names | None = None,
) -> Dataset:
    count = graph.batch_size if task == "graph" else graph.num_nodes()
    y, splits, how = labels_and_splits(path, task, y, count, masks, seed)
    parts = (
        *graph.edges(),
        graph.batch_num_nodes(),
        y,
        *splits.values(),
        x.double(),
        *numbers_of(graph.edata).values(),
    )
    num_classes = int(y.max()) + 1 if len(y) else 0
    counts = {"nodes": graph.num_nodes(), "classes": num_classes or None, "features": x.shape[-1]}
    return checked(
        Dataset(
            name=path.stem,
            task=task,
            graph=graph,
            features=x.float(),
            labels=y,
            num_classes=num_classes,
            display_names=check_names(path, {**(names or {}), **names_beside(path)}, counts),
            source=f"file {path.name}{how}",
            key={"dataset": path.stem, "content": content_of(*parts)},
            **splits,
        ),
        path,
    )


def _read_npz(path: Path, options: Options) -> Dataset:
    read, names = read_layout(path)
    arrays = {name: _tensor(path, name, array) for name, array in read.items() if name in USED}
    src, dst = (whole_numbers(path, name, arrays[name]) for name in ("src", "dst"))
    x, y = arrays["x"], arrays.get("y")
    if src.dim() != 1 or src.shape != dst.shape:
        raise InputError(
            f"{path}: src and dst must be two lists of one length (got {tuple(src.shape)} and {tuple(dst.shape)})."
        )
    if x.dim() != 2:
        raise InputError(f"{path}: x must have one row a node and one column a feature (got shape {tuple(x.shape)}).")
    check_edges(path, src, dst, len(x))
    graph = dgl.graph((src, dst), num_nodes=len(x))
    task = "graph" if "graph" in arrays else "node"
    if "graph" in arrays:
        _set_batch(path, graph, whole_numbers(path, "graph", arrays["graph"]))
    masks = {part: arrays.get(f"{part}_mask") for part in PARTS}
    return _assemble(path, task, graph, x, y, masks, options.seed, names)


def _tensor(path: Path, name: str, array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "biuf":
        raise InputError(f"{path}: the array {name} must hold numbers (got {array.dtype}).")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InputError(f"{path}: the array {name} holds numbers beyond 2^63 (got {int(array.max())}).")
    return torch.as_tensor(array.astype(np.float64 if array.dtype.kind == "f" else np.int64))


def _set_batch(path: Path, graph: dgl.DGLGraph, graph_of_node: Tensor) -> None:
    if graph_of_node.shape != (graph.num_nodes(),) or bool((graph_of_node.diff() < 0).any()):
        raise InputError(
            f"{path}: the array graph must name, in rising order, the graph of each of the {graph.num_nodes()} nodes."
        )
    src, dst = graph.edges()
    if bool((graph_of_node[src] != graph_of_node[dst]).any()):
        raise InputError(f"{path}: an edge joins nodes of two different graphs.")
    if graph_of_node[:1].any() or bool((graph_of_node.diff() > 1).any()):
        raise InputError(f"{path}: the array graph must number the graphs 0, 1, 2, ..., each with at least one node.")
    sizes = torch.bincount(graph_of_node)
    graph.set_batch_num_nodes(sizes)
    graph.set_batch_num_edges(torch.bincount(graph_of_node[src], minlength=len(sizes)))


def _read_bin(path: Path, options: Options) -> Dataset:
    if not _readable(path):
        raise LaraError(f"{path} is truncated or not a DGL .bin file (dgl cannot read it).")
    graphs, labels = dgl.load_graphs(str(path))
    if options.pairs is not None:
        if len(graphs) != 1:
            raise InputError(f"{path}: links are explained in one graph (got {len(graphs)}).")
        asked = (options.pairs, options.relation, options.leave_out, options.seed)
        return link_dataset(path, graphs[0], *asked)
    if any(not graph.is_homogeneous for graph in graphs):
        return read_typed(path, graphs, options)
    if options.target_type is not None:
        raise InputError(f"{path} has nodes of one type only; leave out --target-type.")
    try:
        graph = graphs[0] if len(graphs) == 1 else dgl.batch(graphs)
    except dgl.DGLError as error:
        raise InputError(
            f"{path}: all graphs must have the same node and edge data (names, shapes and types)."
        ) from error
    task = "node" if len(graphs) == 1 else "graph"
    x = pick(path, "node features", graph.ndata, ("x", "feat"))
    holder = graph.ndata if len(graphs) == 1 else labels
    y = labels_in(holder)
    masks = {part: holder.get(f"{part}_mask") for part in PARTS}
    src, dst = (ends.long() for ends in graph.edges())
    check_edges(path, src, dst, graph.num_nodes())
    bare = dgl.graph((src, dst), num_nodes=graph.num_nodes())
    bare.set_batch_num_nodes(graph.batch_num_nodes().long())  # dgl 2 wants the types of sizes and ids to agree
    bare.set_batch_num_edges(graph.batch_num_edges().long())
    bare.edata.update(numbers_of(graph.edata))
    return _assemble(path, task, bare, x, y, masks, options.seed)


def _readable(path: Path) -> bool:
    """Whether a child process can read the file: on a truncated one dgl may end in a segmentation fault."""
    child = multiprocessing.get_context("fork").Process(target=_read_quietly, args=(path,))
    child.start()
    child.join(timeout=30 + path.stat().st_size / SLOWEST_READ)
    if child.is_alive():
        child.kill()
        child.join()
    return child.exitcode == 0


def _read_quietly(path: Path) -> None:
    faulthandler.disable()
    # a damaged size may ask for any amount of memory
    room = psutil.Process().memory_info().vms + 8 * path.stat().st_size + 2**30
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    torch.set_num_threads(1)  # OpenMP threads do not survive a fork
    try:
        dgl.load_graphs(str(path))
    except Exception:  # dgl raises whatever its C++ reader meets
        sys.exit(1)


READERS = {".npz": _read_npz, ".bin": _read_bin}

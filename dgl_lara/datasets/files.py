"""A graph of the user's own: an .npz file of arrays, or a .bin file written by `dgl.save_graphs`.

.npz: src, dst (edges), x (node features), y (labels); optional train_mask, val_mask, test_mask; optional graph
      (the graph each node belongs to, 0, 1, 2, ...): then the task is graph classification and y has a row a graph.
.bin: one graph with ndata x or feat, y or label, optional masks; or many graphs, with the graph labels stored
      under y, label or labels.
"""

from __future__ import annotations

from pathlib import Path

import dgl
import numpy as np
import torch
from torch import Tensor

from dgl_lara.datasets import Options
from dgl_lara.datasets.dataset import Dataset, checked, random_split
from dgl_lara.datasets.storage import checksum, read_arrays
from dgl_lara.errors import InputError, LaraError

PARTS = ("train", "val", "test")


def load_file(path: Path, options: Options) -> Dataset:
    if not path.is_file():
        raise InputError(f"the data set file '{path}' does not exist.")
    if path.suffix not in READERS:
        raise InputError(f"'{path}' must be an .npz or a DGL .bin file (got '{path.suffix or 'no ending'}').")
    dataset = READERS[path.suffix](path, options.seed)
    return dataset.to_undirected() if options.undirected else dataset


def _assemble(path: Path, task: str, graph: dgl.DGLGraph, x: Tensor, y: Tensor, masks: dict, seed: int) -> Dataset:
    if y.is_floating_point() and not bool((y == y.round()).all()):
        raise InputError(f"{path}: labels must be whole numbers, one class each (got fractions).")
    y = y.flatten() if y.dim() == 2 and y.shape[1] == 1 else y
    given = {part: mask for part, mask in masks.items() if mask is not None}
    if given and len(given) < 3:
        raise InputError(f"{path}: give train_mask, val_mask and test_mask, or none (got {', '.join(given)} only).")
    for part, mask in given.items():
        if mask.shape != y.shape:
            raise InputError(
                f"{path}: {part}_mask must have the shape of y, {tuple(y.shape)} (got {tuple(mask.shape)})."
            )
    if given:
        splits = {part: mask.bool().nonzero().flatten() for part, mask in given.items()}
    else:
        splits = dict(zip(PARTS, random_split(len(y), seed), strict=True))
    src, dst = graph.edges()
    labels = y.long()
    return checked(
        Dataset(
            name=path.stem,
            task=task,
            graph=graph,
            features=x.float(),
            labels=labels,
            num_classes=int(labels.max()) + 1 if len(labels) else 0,
            source=f"file {path.name}" + ("" if given else f", random split, seed {seed}"),
            key={"dataset": path.stem, "content": checksum(src.numpy(), dst.numpy(), labels.numpy())[:12]},
            **splits,
        )
    )


def _read_npz(path: Path, seed: int) -> Dataset:
    arrays = {name: torch.as_tensor(array) for name, array in _numeric(read_arrays(path), path).items()}
    missing = [name for name in ("src", "dst", "x", "y") if name not in arrays]
    if missing:
        raise InputError(f"{path} lacks the array(s) {', '.join(missing)}; it must hold src, dst, x and y.")
    src, dst, x, y = arrays["src"].long(), arrays["dst"].long(), arrays["x"], arrays["y"]
    if src.dim() != 1 or src.shape != dst.shape:
        raise InputError(
            f"{path}: src and dst must be two lists of one length (got {tuple(src.shape)} and {tuple(dst.shape)})."
        )
    if x.dim() != 2:
        raise InputError(f"{path}: x must have one row a node and one column a feature (got shape {tuple(x.shape)}).")
    _check_edges(path, src, dst, len(x))
    graph = dgl.graph((src, dst), num_nodes=len(x))
    task = "graph" if "graph" in arrays else "node"
    if task == "graph":
        _set_batch(path, graph, arrays["graph"].long())
    return _assemble(path, task, graph, x, y, {part: arrays.get(f"{part}_mask") for part in PARTS}, seed)


def _numeric(arrays: dict[str, np.ndarray], path: Path) -> dict[str, np.ndarray]:
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise InputError(f"{path}: the array {name} must hold numbers (got {array.dtype}).")
    return arrays


def _check_edges(path: Path, src: Tensor, dst: Tensor, nodes: int) -> None:
    outside = ((src < 0) | (src >= nodes) | (dst < 0) | (dst >= nodes)).nonzero().flatten()
    if len(outside):
        edge = int(outside[0])
        raise InputError(
            f"{path}: edges must join nodes 0..{nodes - 1} (x has {nodes} rows); {len(outside)} do not, "
            f"first: edge {edge}, {int(src[edge])} -> {int(dst[edge])}."
        )


def _set_batch(path: Path, graph: dgl.DGLGraph, graph_of_node: Tensor) -> None:
    if graph_of_node.shape != (graph.num_nodes(),) or bool((graph_of_node.diff() < 0).any()):
        raise InputError(
            f"{path}: the array graph must name, in rising order, the graph of each of the {graph.num_nodes()} nodes."
        )
    src, dst = graph.edges()
    if bool((graph_of_node[src] != graph_of_node[dst]).any()):
        raise InputError(f"{path}: an edge joins nodes of two different graphs.")
    sizes = torch.bincount(graph_of_node)
    if bool((sizes == 0).any()):
        raise InputError(f"{path}: graph {int((sizes == 0).nonzero()[0])} has no nodes; number the graphs 0, 1, 2, ...")
    graph.set_batch_num_nodes(sizes)
    graph.set_batch_num_edges(torch.bincount(graph_of_node[src], minlength=len(sizes)))


def _pick(path: Path, what: str, data: dict, names: tuple[str, ...]) -> Tensor:
    for name in names:
        if name in data:
            return data[name]
    raise InputError(f"{path}: {what} must be stored as {' or '.join(names)} (found: {', '.join(data) or 'nothing'}).")


def _read_bin(path: Path, seed: int) -> Dataset:
    try:
        graphs, labels = dgl.load_graphs(str(path))
    except Exception as error:  # dgl raises whatever its C++ reader meets
        raise LaraError(f"{path} is truncated or not a DGL .bin file ({str(error).splitlines()[0]}).") from error
    if any(not graph.is_homogeneous for graph in graphs):
        raise InputError(
            f"{path}: the graph must have one kind of node and one of edge (dgl.to_homogeneous makes it so)."
        )
    graph = graphs[0] if len(graphs) == 1 else dgl.batch(graphs)
    task = "node" if len(graphs) == 1 else "graph"
    x = _pick(path, "node features", graph.ndata, ("x", "feat"))
    y = _pick(path, "labels", graph.ndata if task == "node" else labels, ("y", "label", "labels"))
    holder = graph.ndata if task == "node" else labels
    masks = {part: holder.get(f"{part}_mask") for part in PARTS}
    bare = dgl.graph(graph.edges(), num_nodes=graph.num_nodes())
    bare.set_batch_num_nodes(graph.batch_num_nodes())
    bare.set_batch_num_edges(graph.batch_num_edges())
    return _assemble(path, task, bare, x, y, masks, seed)


READERS = {".npz": _read_npz, ".bin": _read_bin}

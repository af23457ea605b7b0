"""Graphs in .bin files of `dgl.save_graphs`.

One graph with node data x or feat, perhaps y or label, and train_mask, val_mask, test_mask. Or many graphs with graph
labels under y, label or labels. Or one heterogeneous graph with features for each node type; the targets are the type
with labels, or --target-type. Numeric edge data are kept. Names stand in "<stem>.names.json".
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

import dgl
import psutil
import torch
from torch import Tensor

from dgl_lara.datasets import Options
from dgl_lara.datasets.dataset import SPLITS
from dgl_lara.datasets.graph_data import GraphData, build_graph, numeric_edge_data
from dgl_lara.errors import InputError, LaraError

SLOWEST_READ = 10 * 2**20  # bytes per second
FEATURES, LABELS = ("x", "feat"), ("y", "label", "labels")


def read_bin(path: Path, options: Options) -> GraphData:
    """Read and check a file."""
    graphs, graph_labels = _load(path)
    is_hetero = any(not graph.is_homogeneous for graph in graphs)
    if len(graphs) > 1 and (is_hetero or options.pairs):
        raise InputError("bin.several_graphs", path=path, got=len(graphs))
    if options.target_type is not None and not is_hetero:
        raise InputError("bin.homogeneous", path=path)
    stored = _batch(path, graphs)
    graph, features = _without_node_data(path, stored), _node_features(path, stored)
    if options.pairs:
        return GraphData(path, graph, features, task="link")
    target_type = _target_type(path, stored, options.target_type) if is_hetero else None
    data = stored.nodes[target_type or stored.ntypes[0]].data if len(graphs) == 1 else graph_labels
    task, masks = "node" if len(graphs) == 1 else "graph", {split: data.get(f"{split}_mask") for split in SPLITS}
    return GraphData(path, graph, features, task, target_type, _labels(data), masks)


def read_bin_graph(path: Path) -> GraphData:
    """Read graph and features without labels."""
    stored = _batch(path, _load(path)[0])
    return GraphData(path, _without_node_data(path, stored), _node_features(path, stored))


def _load(path: Path) -> tuple[list[dgl.DGLGraph], dict[str, Tensor]]:
    if not _is_readable(path):
        raise LaraError("bin.damaged", path=path)
    return dgl.load_graphs(str(path))


def _batch(path: Path, graphs: list[dgl.DGLGraph]) -> dgl.DGLGraph:
    try:
        return graphs[0] if len(graphs) == 1 else dgl.batch(graphs)
    except dgl.DGLError as error:
        raise InputError("bin.unlike_graphs", path=path) from error


def _without_node_data(path: Path, stored: dgl.DGLGraph) -> dgl.DGLGraph:
    """Return the edges as int64 with their numeric data, and the batch sizes."""
    edges = {
        relation: tuple(end.long() for end in stored.edges(etype=relation)) for relation in stored.canonical_etypes
    }
    graph = build_graph(path, edges, {node_type: stored.num_nodes(node_type) for node_type in stored.ntypes})
    for relation in edges:
        graph.edges[relation].data.update(numeric_edge_data(stored.edges[relation].data))
    if stored.is_homogeneous:
        graph.set_batch_num_nodes(stored.batch_num_nodes().long())  # dgl 2: sizes have the type of ids
        graph.set_batch_num_edges(stored.batch_num_edges().long())
    return graph


def _node_features(path: Path, stored: dgl.DGLGraph) -> dict[str, Tensor]:
    features = {}
    for node_type in stored.ntypes:
        data = stored.nodes[node_type].data
        name = next((name for name in FEATURES if name in data), None)
        if name is None:
            expected, got = " or ".join(FEATURES), ", ".join(data) or "no data"
            raise InputError("bin.no_features", path=path, type=node_type, expected=expected, got=got)
        features[node_type] = data[name]
    return features


def _labels(data: Mapping[str, Tensor]) -> Tensor | None:
    return next((data[name] for name in LABELS if name in data), None)


def _target_type(path: Path, graph: dgl.DGLGraph, target_type: str | None) -> str:
    types = ", ".join(graph.ntypes)
    if target_type is None:
        labelled = [name for name in graph.ntypes if _labels(graph.nodes[name].data) is not None]
        if len(labelled) == 1:
            return labelled[0]
        raise InputError("bin.target_type", path=path, types=types, labelled=" and ".join(labelled) or "no type")
    if target_type not in graph.ntypes:
        raise InputError("bin.unknown_target_type", path=path, types=types, got=target_type)
    return target_type


def _is_readable(path: Path) -> bool:
    """Read the file in a child process, because dgl may crash on a truncated one."""
    child = multiprocessing.get_context("fork").Process(target=_try_to_read, args=(path,))
    child.start()
    child.join(timeout=30 + path.stat().st_size / SLOWEST_READ)
    if child.is_alive():
        child.kill()
        child.join()
    return child.exitcode == 0


def _try_to_read(path: Path) -> None:
    faulthandler.disable()
    limit = psutil.Process().memory_info().vms + 8 * path.stat().st_size + 2**30  # a damaged size may be any number
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    torch.set_num_threads(1)  # OpenMP threads do not survive a fork
    try:
        dgl.load_graphs(str(path))
    except Exception:  # dgl raises whatever its C++ reader meets
        sys.exit(1)

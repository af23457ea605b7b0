"""Graph files of users: an .npz file of arrays (`npz_files.py`) or a .bin file of DGL (`bin_files.py`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dgl

from dgl_lara.datasets import Options
from dgl_lara.datasets.bin_files import read_bin, read_bin_graph
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.datasets.npz_files import read_npz
from dgl_lara.errors import InputError


def load_file(path: Path, options: Options) -> Dataset:
    """Return the data set in a file."""
    _check_file(path)
    data = read_npz(path) if path.suffix == ".npz" else read_bin(path, options)
    if options.pairs is not None:
        dataset = data.pair_dataset(options.pairs, options.relation, options.leave_out, options.seed)
    else:
        dataset = data.labelled_dataset(options.seed)
    return dataset.to_undirected() if options.undirected else dataset


def load_graph(path: Path) -> tuple[dgl.DGLGraph, Any]:
    """Return the graph and the node features in a file, without labels."""
    _check_file(path)
    data = read_npz(path) if path.suffix == ".npz" else read_bin_graph(path)
    return data.graph, data.node_features


def _check_file(path: Path) -> None:
    if not os.path.isfile(path):  # also for names that no file can have
        raise InputError("graph_file.missing", path=path)
    if path.suffix in (".pt", ".pth"):
        raise InputError("graph_file.torch_file", path=path)
    if path.suffix not in (".npz", ".bin"):
        raise InputError("graph_file.suffix", path=path, got=path.suffix or "no ending")

"""Cora, Citeseer and PubMed with Planetoid's splits. Features are bags of words, divided by their sum.

The published files are pickles. The reader unpickles arrays and nothing else.
"""

from __future__ import annotations

import collections
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from dgl_lara.datasets import DATASETS, Options
from dgl_lara.datasets.cache import cache_dir, checksum, download, find_files, how_to_get
from dgl_lara.datasets.dataset import Dataset, undirected_graph
from dgl_lara.datasets.validate import validate_dataset
from dgl_lara.errors import LaraError

URL = "https://github.com/kimiyoung/planetoid/raw/master/data"
CHECKSUMS = {  # of edges, labels, features (bits) and test nodes
    "cora": "0d9f8a285e79925a22d19e66f5c970d696a5a9619a75133a811b4a412ea5cd8a",
    "citeseer": "9d5eab7fc215559e4b6ee17e5b0a3c292d05b2350c6d9814e624beb046d937bf",
    "pubmed": "3fdd722c58432e3f6b39cd430dd01fe902a30f4667c5c8fb51ee0f453382d598",
}
CLASSES = {
    "cora": (
        "theory", "reinforcement learning", "genetic algorithms", "neural networks", "probabilistic methods",
        "case-based", "rule learning",
    ),
    "citeseer": (
        "AI", "machine learning", "information retrieval", "databases", "agents", "human-computer interaction",
    ),
    "pubmed": ("experimental diabetes", "type 1 diabetes", "type 2 diabetes"),
}  # fmt: skip


def build(name: str, options: Options) -> Dataset:
    files = DATASETS[name].files
    folder = find_files(files, options.data_dir)
    if folder is None:
        folder = cache_dir()
        for file in files:
            if not (folder / file).is_file():  # an interrupted download continues
                download(f"{URL}/{Path(file).name}", folder / file, how_to_get(name))
    return _read(name, {file.rsplit(f"{name}.", 1)[1]: folder / file for file in files})


def _read(name: str, paths: dict[str, Path]) -> Dataset:
    try:
        parts = ("x", "tx", "allx", "y", "ty", "ally", "graph")
        _, tx, allx, y, ty, ally, neighbours = (_unpickle(paths[part]) for part in parts)
        test = np.array([int(line) for line in paths["test.index"].read_text().split()])
    except (pickle.UnpicklingError, EOFError, ValueError, AttributeError, KeyError, IndexError) as error:
        raise LaraError("dataset.unreadable", name=name, folder=paths["x"].parent, cause=error) from error
    # test rows have an order of their own, and rows without a test row (Citeseer's isolated nodes) stay zero
    nodes = int(max(test.max() + 1, len(ally) + len(ty)))
    features, labels = np.zeros((nodes, allx.shape[1]), np.float32), np.zeros(nodes, np.int64)
    features[: len(ally)], labels[: len(ally)] = allx.toarray(), ally.argmax(1)
    features[test], labels[test] = tx.toarray(), ty.argmax(1)
    bits = features.view(np.int32).copy()
    total = features.sum(1, keepdims=True)
    features /= np.where(total == 0, 1, total)
    pairs = np.array([(one, other) for one, others in neighbours.items() for other in others])
    one, other = torch.as_tensor(pairs.T.copy())
    graph = undirected_graph(one, other, nodes)
    src, dst = graph.edges()
    if checksum(src.numpy(), dst.numpy(), labels, bits, np.sort(test)) != CHECKSUMS[name]:
        raise LaraError("dataset.not_published", name=name, folder=paths["x"].parent)
    return validate_dataset(
        Dataset(
            name=name,
            task="node",
            graph=graph,
            features=torch.as_tensor(features),
            labels=torch.as_tensor(labels),
            train=torch.arange(len(y)),
            val=torch.arange(len(y), len(y) + 500),
            test=torch.as_tensor(np.sort(test)),
            num_classes=y.shape[1],
            source="Planetoid",
            key={"dataset": name},
            display_names={"classes": CLASSES[name]},
        )
    )


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that only knows the classes of these files."""

    ALLOWED = {
        "_reconstruct": np.empty(0).__reduce__()[0],  # numpy has moved it from module to module
        "ndarray": np.ndarray,
        "dtype": np.dtype,
        "csr_matrix": sp.csr_matrix,
        "defaultdict": collections.defaultdict,
        "list": list,
    }

    def find_class(self, module: str, name: str) -> Any:
        if name not in self.ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of an array")
        return self.ALLOWED[name]


def _unpickle(path: Path) -> Any:
    with path.open("rb") as file:
        return _ArraysOnly(file, encoding="latin1").load()

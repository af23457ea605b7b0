"""ogbn-arxiv, read by the `ogb` package: 169,343 papers and 1,166,243 directed citations."""

from __future__ import annotations

import os
import sys
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import dgl
import torch

from dgl_lara._util.atomic import load_tensors, save_tensors, short_hash
from dgl_lara._util.notices import notice
from dgl_lara.datasets import ARXIV_FILES, Options
from dgl_lara.datasets.cache import cache_dir, checksum, locate
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.datasets.validate import validate_dataset
from dgl_lara.errors import LaraError

URL = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
CHECKSUM = "1e8bd6eee5967dc17ea0653344f1bcfa72147f95f0174ef364408f378cea3662"  # of edges and labels
SPLIT_CHECKSUM = "df02a4bbdb3fdbb9e86816a3bcd6c3ce9d54e6fc75f7b1410a24e4a816188b09"
PARTS = ("train", "valid", "test")
REAL_DEVIATION = 0.5  # above that of the published features, which are averaged word vectors


def build(name: str, options: Options) -> Dataset:
    folder = locate(name, options.data_dir, URL, "ogbn_arxiv") / "ogbn_arxiv"
    graph, labels, split = _read(_linked_folder(folder))
    features = graph.ndata["feat"].float()
    source, target = graph.edges()
    if (
        checksum(source.numpy(), target.numpy(), labels.numpy()) != CHECKSUM
        or checksum(*(split[part].numpy() for part in PARTS)) != SPLIT_CHECKSUM
    ):
        raise LaraError("dataset.not_published", name=name, folder=folder)
    is_real = bool(features.std() < REAL_DEVIATION)
    return validate_dataset(
        Dataset(
            name=name,
            task="node",
            graph=dgl.graph((source, target), num_nodes=graph.num_nodes()),
            features=features,
            labels=labels,
            train=split["train"],
            val=split["valid"],
            test=split["test"],
            num_classes=40,
            source="Open Graph Benchmark" if is_real else "ogbn-arxiv graph, substitute features",
            # the checksum does not cover features, because substitutes exist
            key={"dataset": name, "features": f"{features.double().sum():.3f}"},
        )
    )


def _linked_folder(raw: Path) -> Path:
    """Return a folder in the cache with links to the raw files, where ogb may write.

    The user's folder may be read-only. The new one has the release note without which ogb would ask on stdin. Its name
    depends on size and time of each file, so changed files are read again.
    """
    files = ARXIV_FILES
    stamps = {file: [(raw.parent / file).stat().st_size, (raw.parent / file).stat().st_mtime_ns] for file in files}
    root = cache_dir() / f"ogb-{short_hash({'raw': str(raw.resolve()), 'version': 2, **stamps})}"
    folder = root / "ogbn_arxiv"
    try:
        (folder / "mapping").mkdir(parents=True, exist_ok=True)
        # only these files of the split, because ogb would unpickle a split_dict.pt next to them
        for part in ("ogbn_arxiv/raw", *(file for file in files if "/split/" in file)):
            link = root / part
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                os.symlink((raw.parent / part).resolve(), link)
        (folder / "RELEASE_v1.txt").touch()
    except OSError as error:
        raise LaraError("arxiv.cache", folder=cache_dir(), cause=error.strerror) from error
    return root


def _read(root: Path) -> tuple[dgl.DGLGraph, torch.Tensor, dict[str, torch.Tensor]]:
    """Read what an earlier call of ogb returned, without importing ogb, which takes seconds."""
    path = root / "read.pt"
    if path.exists():
        with suppress(LaraError, KeyError, dgl.DGLError):  # a damaged file is read again
            content = load_tensors(path)
            graph = dgl.graph((content["source"], content["target"]), num_nodes=len(content["features"]))
            graph.ndata["feat"] = content["features"]
            return graph, content["labels"], {part: content[part] for part in PARTS}
    graph, labels, split = _load_through_ogb(root)
    source, target = graph.edges()
    content = {"source": source, "target": target, "features": graph.ndata["feat"], "labels": labels}
    with suppress(OSError):  # a full disk costs time only
        save_tensors({**content, **{part: split[part] for part in PARTS}}, path)
    return graph, labels, split


def _load_through_ogb(root: Path) -> tuple[dgl.DGLGraph, torch.Tensor, dict[str, torch.Tensor]]:
    processed = root / "ogbn_arxiv" / "processed" / "dgl_data_processed"
    if not processed.exists():
        notice("arxiv.first_read")
    for last_try in (False, True):
        try:
            with _quiet():
                dataset = _ogb_reader()("ogbn-arxiv", root=str(root))
                graph, labels = dataset[0]
                return graph, labels.flatten(), dataset.get_idx_split()
        except (OSError, EOFError, ValueError, RuntimeError, zlib.error, dgl.DGLError) as error:
            if last_try or not processed.exists():
                raise LaraError("dataset.unreadable", name="ogbn-arxiv", folder=root, cause=error) from error
            processed.unlink()  # left over from an interrupted run
    raise AssertionError("unreachable")


def _ogb_reader() -> type:
    """Import ogb's reader without the module `outdated`, by which ogb would ask the network for its newest version."""
    before = sys.modules.get("outdated")
    sys.modules["outdated"] = None  # type: ignore[assignment]
    try:
        from ogb.nodeproppred import DglNodePropPredDataset
    finally:
        if before is None:
            del sys.modules["outdated"]
        else:
            sys.modules["outdated"] = before
    return DglNodePropPredDataset


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence ogb, which prints to stdout and draws progress bars."""
    with (
        open(os.devnull, "w") as null,
        redirect_stdout(null),
        redirect_stderr(null),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield

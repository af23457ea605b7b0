"""ogbn-arxiv through the `ogb` package: 169,343 papers, 1,166,243 citations, directed as published."""

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
from dgl_lara._util.progress import log_info
from dgl_lara.datasets import DATASETS, Options
from dgl_lara.datasets.cache import cache_dir, checksum, fetch, find_files, how_to_get
from dgl_lara.datasets.dataset import Dataset, checked
from dgl_lara.errors import LaraError

URL = "https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"
CHECKSUM = "1e8bd6eee5967dc17ea0653344f1bcfa72147f95f0174ef364408f378cea3662"  # of edges and labels
SPLIT_CHECKSUM = "df02a4bbdb3fdbb9e86816a3bcd6c3ce9d54e6fc75f7b1410a24e4a816188b09"
PARTS = ("train", "valid", "test")
REAL_SPREAD = 0.5  # the published features are averaged word vectors, well within it; figures of others must say so


def build(name: str, options: Options) -> Dataset:
    files = DATASETS[name].files
    folder = find_files(files, options.data_dir)
    if folder is None:
        folder = cache_dir()
        fetch(URL, folder / "ogbn_arxiv", files, how_to_get(name, files, DATASETS[name].stand_in))
    raw = folder / "ogbn_arxiv"
    graph, labels, split = _kept(_linked(raw, files))
    features = graph.ndata["feat"].float()
    source, target = graph.edges()
    if (
        checksum(source.numpy(), target.numpy(), labels.numpy()) != CHECKSUM
        or checksum(*(split[part].numpy() for part in PARTS)) != SPLIT_CHECKSUM
    ):
        raise LaraError(
            f"the files in {raw} are not ogbn-arxiv as published (edges, labels or split differ); remove the "
            "folder and run again to download it."
        )
    return checked(
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
            source="Open Graph Benchmark" if features.std() < REAL_SPREAD else "ogbn-arxiv graph, substitute features",
            # features are not covered by the checksum (stand-ins exist), so they tell the variants apart
            key={"dataset": name, "features": f"{features.double().sum():.3f}"},
        )
    )


def _linked(raw: Path, files: tuple[str, ...]) -> Path:
    """A folder of links to the raw files in the cache, where ogb may write what it makes of them.

    The user's folder stays untouched (it may be read-only), and ogb finds the release note whose absence would
    make it ask on stdin. The name holds size and time of each file, so changed files are read anew.
    """
    stamps = {file: [(raw.parent / file).stat().st_size, (raw.parent / file).stat().st_mtime_ns] for file in files}
    root = cache_dir() / f"ogb-{short_hash({'raw': str(raw.resolve()), 'version': 2, **stamps})}"
    folder = root / "ogbn_arxiv"
    try:
        (folder / "mapping").mkdir(parents=True, exist_ok=True)
        # of the split these files and no others: ogb would unpickle a split_dict.pt that lies beside them
        for part in ("ogbn_arxiv/raw", *(file for file in files if "/split/" in file)):
            link = root / part
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                os.symlink((raw.parent / part).resolve(), link)
        (folder / "RELEASE_v1.txt").touch()
    except OSError as error:
        raise LaraError(
            f"ogb needs a cache it can write to, and {cache_dir()} is not one ({error.strerror}); "
            "name another folder with DGL_LARA_CACHE."
        ) from error
    return root


def _kept(root: Path) -> tuple[dgl.DGLGraph, torch.Tensor, dict[str, torch.Tensor]]:
    """What ogb has read before, without ogb: to import it takes seconds, since it brings other libraries along."""
    path = root / "read.pt"
    if path.exists():
        with suppress(LaraError, KeyError, dgl.DGLError):  # damaged: read anew
            content = load_tensors(path)
            graph = dgl.graph((content["source"], content["target"]), num_nodes=len(content["features"]))
            graph.ndata["feat"] = content["features"]
            return graph, content["labels"], {part: content[part] for part in PARTS}
    graph, labels, split = _load_through_ogb(root)
    source, target = graph.edges()
    content = {"source": source, "target": target, "features": graph.ndata["feat"], "labels": labels}
    with suppress(OSError):  # a full disk costs time the next time, nothing else
        save_tensors({**content, **{part: split[part] for part in PARTS}}, path)
    return graph, labels, split


def _load_through_ogb(root: Path) -> tuple[dgl.DGLGraph, torch.Tensor, dict[str, torch.Tensor]]:
    processed = root / "ogbn_arxiv" / "processed" / "dgl_data_processed"
    if not processed.exists():
        log_info("reading ogbn-arxiv (about 15 seconds, once) ...")
    for last_try in (False, True):
        try:
            with _quiet():
                dataset = _ogb_reader()("ogbn-arxiv", root=str(root))
                graph, labels = dataset[0]
                return graph, labels.flatten(), dataset.get_idx_split()
        except (OSError, EOFError, ValueError, RuntimeError, zlib.error, dgl.DGLError) as error:
            if last_try or not processed.exists():
                raise LaraError(f"the files behind {root} cannot be read ({error}); they may be truncated.") from error
            processed.unlink()  # left over from an interrupted run
    raise AssertionError("unreachable")


def _ogb_reader() -> type:
    """ogb's reader. On import ogb asks the network for its newest version, unless `outdated` is missing."""
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
    """ogb prints to stdout, where our tables go, and draws bars of its own."""
    with (
        open(os.devnull, "w") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield

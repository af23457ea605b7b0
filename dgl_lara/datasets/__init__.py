"""The registry of data sets, without loading torch. `load("ba-shapes")` imports the module that builds the data set."""

from __future__ import annotations

import difflib
import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dgl_lara.errors import InputError

if TYPE_CHECKING:
    from dgl_lara.datasets.dataset import Dataset

SOURCES = ("auto", "generated", "original")
BOND, BONDS = "bond", ("single", "double", "triple")  # edge data of mutag, and its columns


@dataclass(frozen=True)
class DatasetInfo:
    """A data set and the figures it must have, None if they vary.

    Args:
        module: dgl_lara.datasets.<module>.build(name, options) builds it.
        task: "node", "graph" or "link".
        graphs: Number of graphs.
        nodes: Number of nodes.
        edges: Number of edges, an undirected edge counts twice.
        labels: Number of classes.
        features: Number of feature columns.
        truth: Ground truth, "-" for none.
        origin: Its source.
        generated: It can be generated offline from a seed.
        files: Original files in a data folder, all of them needed.
        stand_in: Generated data set to use instead.
        download: The original can be downloaded.
    """

    module: str
    task: str
    graphs: int | None
    nodes: int | None
    edges: int | None
    labels: int
    features: int | None
    truth: str
    origin: str
    generated: bool = False
    files: tuple[str, ...] = ()
    stand_in: str | None = None
    download: bool = True


@dataclass(frozen=True)
class Options:
    """What selects one variant of a data set. Every field is part of the cache key.

    Args:
        source: "auto", "generated" or "original".
        seed: Of generated data and random splits.
        undirected: Store every edge in both directions.
        nodes: Size of `citation`.
        data_dir: Folder with original files.
        target_type: Node type to explain in a heterogeneous graph of a file.
        pairs: File of links to explain in a graph of a file.
        relation: What the pairs stand for in a heterogeneous graph.
        leave_out: Remove edges between the ends of pairs from the graph.
    """

    source: str = "auto"
    seed: int = 0
    undirected: bool = False
    nodes: int | None = None
    data_dir: Path | None = None
    target_type: str | None = None
    pairs: Path | None = None
    relation: str | None = None
    leave_out: bool = False


def _files(pattern: str, *parts: str) -> tuple[str, ...]:
    return tuple(pattern.format(part) for part in parts)


def _planetoid(name: str, nodes: int, edges: int, labels: int, features: int) -> DatasetInfo:
    files = _files(f"planetoid/raw/ind.{name}.{{}}", "x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return DatasetInfo("planetoid", "node", 1, nodes, edges, labels, features, "-", "Planetoid", files=files)


MUTAG_FILES = _files("Mutagenicity/Mutagenicity_{}.txt", "A", "graph_indicator", "graph_labels", "node_labels")
ARXIV_FILES = _files(
    "ogbn_arxiv/{}.csv.gz",
    "raw/edge", "raw/node-feat", "raw/node-label", "raw/num-node-list", "raw/num-edge-list",
    "split/time/train", "split/time/valid", "split/time/test",
)  # fmt: skip
DBLP_FILES = _files(
    "dblp_four_area/{}.txt",
    "author_label", "paper_author", "paper_term", "paper_conf", "author", "paper", "term", "conf",
)  # fmt: skip
MOVIELENS_FILES = _files("ml-100k/{}", "ua.base", "ua.test", "u.item", "u.user")

DATASETS: dict[str, DatasetInfo] = {
    "ba-shapes": DatasetInfo(
        "synthetic", "node", 1, 700, 4_110, 4, 10, "house", "generated, or GNNExplainer's file", True,
        ("synthetic/ba_shapes.npz",),
    ),
    "ba-community": DatasetInfo(
        "synthetic", "node", 1, 1_400, 8_920, 8, 10, "house", "generated, or GNNExplainer's file", True,
        ("synthetic/ba_community.npz",),
    ),
    "tree-cycles": DatasetInfo(
        "synthetic", "node", 1, 871, 1_950, 2, 10, "6-cycle", "generated, or GNNExplainer's file", True,
        ("synthetic/tree_cycles.npz",),
    ),
    "ba-2motifs": DatasetInfo(
        "synthetic", "graph", 1_000, 25_000, 51_000, 2, 10, "house or 5-cycle",
        "generated, or PGExplainer's file", True, ("ba_2motifs/ba2motifs.npz",),
    ),
    "mutag": DatasetInfo(
        "mutagenicity", "graph", 4_337, 131_488, 266_894, 2, 14, "NO2, NH2", "TU Mutagenicity", False,
        MUTAG_FILES, "molecules",
    ),
    "ogbn-arxiv": DatasetInfo(
        "ogbn_arxiv", "node", 1, 169_343, 1_166_243, 40, 128, "-", "Open Graph Benchmark", False,
        ARXIV_FILES, "citation",
    ),
    "cora": _planetoid("cora", 2_708, 10_556, 7, 1_433),
    "citeseer": _planetoid("citeseer", 3_327, 9_228, 6, 3_703),
    "pubmed": _planetoid("pubmed", 19_717, 88_651, 3, 500),
    "dblp": DatasetInfo(
        "dblp", "node", 1, 27_303, 296_492, 4, None, "-", "DBLP four area, 4 node types", files=DBLP_FILES,
        download=False,
    ),
    "movielens": DatasetInfo(
        "movielens", "link", 1, 2_625, 181_140, 1, None, "-", "MovieLens 100K, users and films",
        files=MOVIELENS_FILES, download=False,
    ),
    "molecules": DatasetInfo(
        "molecules", "graph", 1_000, None, None, 2, 14, "NO2, NH2 on a ring", "generated stand-in for mutag", True,
    ),
    "citation": DatasetInfo(
        "synthetic_citation", "node", 1, None, None, 40, 128, "-", "generated stand-in for ogbn-arxiv", True,
    ),
}  # fmt: skip


def load(name: str, options: Options = Options()) -> Dataset:  # noqa: B008 (frozen, so a shared default is safe)
    """Load a data set.

    Args:
        name: A name in DATASETS, a file (.npz or .bin) or the folder of a partitioned graph.
        options: The variant.

    Raises:
        InputError: If the name is unknown, an option does not fit it, or a file is invalid.
        LaraError: If original files are missing or damaged.
    """
    _check(name, options)
    if name not in DATASETS and os.path.isfile(os.path.join(name, "meta.json")):
        from dgl_lara.datasets.partitioned import PartitionedDataset

        return cast("Dataset", PartitionedDataset(Path(name), options))
    if is_path(name):
        from dgl_lara.datasets.user_files import load_file

        return load_file(Path(name), options)
    module = importlib.import_module(f"dgl_lara.datasets.{DATASETS[name].module}")
    dataset: Dataset = module.build(name, options)
    return dataset.to_undirected() if options.undirected else dataset


def is_path(name: str) -> bool:
    """Return whether a name is a file or folder and not a registered data set."""
    return name not in DATASETS and (name.endswith((".npz", ".bin")) or "/" in name or os.path.exists(name))


def check_name(name: str) -> str:
    """Return the name. Raise InputError if it is neither registered nor looks like a file."""
    if name in DATASETS or is_path(name):
        return name
    close = difflib.get_close_matches(name, DATASETS, n=1, cutoff=0.4)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    raise InputError("dataset.unknown", got=name, hint=hint, known=", ".join(DATASETS))


def _check(name: str, options: Options) -> None:
    check_name(name)
    is_file = is_path(name)
    if options.source not in SOURCES:
        raise InputError("dataset.source", known=", ".join(SOURCES), got=options.source)
    if options.data_dir is not None and not os.path.isdir(options.data_dir):
        raise InputError("dataset.data_dir", got=options.data_dir)
    if options.nodes is not None and name != "citation":
        raise InputError("dataset.fixed_size", name=name)
    if is_file and (options.source != "auto" or options.data_dir is not None):
        raise InputError("dataset.file_options", name=name)
    if options.target_type is not None and (not is_file or name.endswith(".npz")):
        raise InputError("dataset.target_type_option", name=name)
    if options.pairs is None and (options.relation is not None or options.leave_out):
        raise InputError("dataset.relation_option")
    if options.pairs is not None and not name.endswith(".bin"):
        raise InputError("dataset.pairs_option", name=name)
    if options.pairs is not None and options.target_type is not None:
        raise InputError("dataset.pairs_and_target_type")
    info = DATASETS.get(name)
    if info and options.source == "generated" and not info.generated:
        raise InputError("dataset.not_generated", name=name, hint=f" Use {info.stand_in}." if info.stand_in else "")
    if options.source == "original" and not (info and info.files):
        raise InputError("dataset.no_original", name=name)

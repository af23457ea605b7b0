"""The registry of data sets. Light on purpose: the command line reads it without loading torch.

`load("ba-shapes")` gives a `Dataset`; the module that builds it is imported only then.
"""

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


@dataclass(frozen=True)
class Entry:
    """One row of `dgl-lara datasets`; the figures are what a loaded set must have (None: varies or not stated)."""

    module: str  # dgl_lara.datasets.<module>.build(name, options) makes it
    task: str
    graphs: int | None
    nodes: int | None
    edges: int | None
    labels: int
    features: int | None
    truth: str
    origin: str
    generated: bool  # can be made offline from a seed
    files: tuple[str, ...] = ()  # relative to a data folder; the original needs all of them
    stand_in: str | None = None  # what to use where the original cannot be had
    download: bool = True  # where it is not at hand; some may not be passed on


@dataclass(frozen=True)
class Options:
    """What selects one variant of a data set. Every field is part of the cache key."""

    source: str = "auto"
    seed: int = 0
    undirected: bool = False
    nodes: int | None = None
    data_dir: Path | None = None
    target_type: str | None = None  # of a file's graph of several node types: whose nodes are explained
    pairs: Path | None = None  # of a file's graph: the links to explain
    relation: str | None = None  # what they stand for, on a graph of several types
    leave_out: bool = False  # whether edges between their ends are taken out of the graph


MUTAG_FILES = tuple(
    f"Mutagenicity/Mutagenicity_{part}.txt" for part in ("A", "graph_indicator", "graph_labels", "node_labels")
)
BOND, BONDS = "bond", ("single", "double", "triple")  # its edge data, and what the columns stand for
ARXIV_FILES = tuple(
    f"ogbn_arxiv/{part}.csv.gz"
    for part in (
        "raw/edge", "raw/node-feat", "raw/node-label", "raw/num-node-list", "raw/num-edge-list",
        "split/time/train", "split/time/valid", "split/time/test",
    )
)  # fmt: skip

DBLP_FILES = tuple(
    f"dblp_four_area/{part}.txt"
    for part in (
        "author_label", "paper_author", "paper_term", "paper_conf", "author", "paper", "term", "conf",
    )
)  # fmt: skip
MOVIELENS_FILES = tuple(f"ml-100k/{part}" for part in ("ua.base", "ua.test", "u.item", "u.user"))


def _planetoid(name: str) -> tuple[str, ...]:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return tuple(f"planetoid/raw/ind.{name}.{part}" for part in parts)


# The edge counts are those of the generated sets; each undirected edge is stored in both directions.
DATASETS: dict[str, Entry] = {
    "ba-shapes": Entry(
        "synthetic", "node", 1, 700, 4_110, 4, 10, "house", "generated, or GNNExplainer's file", True,
        ("synthetic/ba_shapes.npz",),
    ),
    "ba-community": Entry(
        "synthetic", "node", 1, 1_400, 8_920, 8, 10, "house", "generated, or GNNExplainer's file", True,
        ("synthetic/ba_community.npz",),
    ),
    "tree-cycles": Entry(
        "synthetic", "node", 1, 871, 1_950, 2, 10, "6-cycle", "generated, or GNNExplainer's file", True,
        ("synthetic/tree_cycles.npz",),
    ),
    "ba-2motifs": Entry(
        "synthetic", "graph", 1_000, 25_000, 51_000, 2, 10, "house or 5-cycle",
        "generated, or PGExplainer's file", True, ("ba_2motifs/ba2motifs.npz",),
    ),
    "mutag": Entry(
        "mutagenicity", "graph", 4_337, 131_488, 266_894, 2, 14, "NO2, NH2", "TU Mutagenicity", False,
        MUTAG_FILES, "molecules",
    ),
    "ogbn-arxiv": Entry(
        "ogbn_arxiv", "node", 1, 169_343, 1_166_243, 40, 128, "-", "Open Graph Benchmark", False,
        ARXIV_FILES, "citation",
    ),
    **{
        name: Entry("planetoid", "node", 1, nodes, edges, labels, features, "-", "Planetoid", False, _planetoid(name))
        for name, nodes, edges, labels, features in (
            ("cora", 2_708, 10_556, 7, 1_433), ("citeseer", 3_327, 9_228, 6, 3_703), ("pubmed", 19_717, 88_651, 3, 500),
        )
    },
    "dblp": Entry(
        "dblp", "node", 1, 27_303, 296_492, 4, None, "-", "DBLP four area, 4 node types", False, DBLP_FILES,
        download=False,
    ),
    "movielens": Entry(
        "movielens", "link", 1, 2_625, 181_140, 1, None, "-", "MovieLens 100K, users and films", False,
        MOVIELENS_FILES, download=False,
    ),
    "molecules": Entry(
        "molecules", "graph", 1_000, None, None, 2, 14, "NO2, NH2 on a ring", "generated stand-in for mutag", True,
    ),
    "citation": Entry(
        "synthetic_citation", "node", 1, None, None, 40, 128, "-", "generated stand-in for ogbn-arxiv", True,
    ),
}  # fmt: skip


def load(name: str, options: Options = Options()) -> Dataset:  # noqa: B008 (frozen, so a shared default is safe)
    """The data set of that name, or the one in that file (.npz or .bin) or folder (a graph in parts)."""
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
    return name not in DATASETS and (name.endswith((".npz", ".bin")) or "/" in name or os.path.exists(name))


def check_name(name: str) -> str:
    """The name itself, if it is a registered set or looks like a file; otherwise the list and the closest match."""
    if name in DATASETS or is_path(name):
        return name
    close = difflib.get_close_matches(name, DATASETS, n=1, cutoff=0.4)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    raise InputError(
        f"unknown data set '{name}'.{hint} Known: {', '.join(DATASETS)}; or give the path of a .npz or .bin file."
    )


def _check(name: str, options: Options) -> None:
    check_name(name)
    if options.source not in SOURCES:
        raise InputError(f"source must be one of {', '.join(SOURCES)} (got '{options.source}').")
    if options.data_dir is not None and not os.path.isdir(options.data_dir):
        raise InputError(f"--data-dir must be a folder (got '{options.data_dir}', which is not one).")
    if options.nodes is not None and name != "citation":
        raise InputError(f"--nodes sets the size of the data set 'citation' only ('{name}' has a fixed size).")
    if is_path(name) and (options.source != "auto" or options.data_dir is not None):
        raise InputError(f"--source and --data-dir are for data sets that go by a name; '{name}' is read where it is.")
    if options.target_type is not None and (not is_path(name) or name.endswith(".npz")):
        raise InputError(f"--target-type is for a .bin file with several node types ('{name}' has its own targets).")
    if options.pairs is None and (options.relation is not None or options.leave_out):
        raise InputError("--relation and --leave-out go with --pairs, the links to explain.")
    if options.pairs is not None and not name.endswith(".bin"):
        raise InputError(f"--pairs is for a graph in a .bin file ('{name}' is none).")
    if options.pairs is not None and options.target_type is not None:
        raise InputError("give --pairs (links are explained) or --target-type (nodes are), not both.")
    entry = DATASETS.get(name)
    if entry and options.source == "generated" and not entry.generated:
        instead = f" The generated stand-in is --dataset {entry.stand_in}." if entry.stand_in else ""
        raise InputError(f"'{name}' cannot be generated: it is real data.{instead}")
    if options.source == "original" and not (entry and entry.files):
        raise InputError(f"'{name}' has no original: it is generated. Leave --source out.")

"""DBLP "four area": authors, papers, terms and venues. The class of an author is the area of research.

It holds the authors with an area, their papers, and the terms and venues of those. Features: a constant and the number
of papers (authors), a constant (papers), leading directions of the table of papers and terms (terms), one-hot (venues).
The licence allows academic and educational use and no redistribution, so the files are never downloaded.
"""

from __future__ import annotations

import csv
import html
from pathlib import Path

import dgl
import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from torch import Tensor

from dgl_lara.datasets import DBLP_FILES, Options
from dgl_lara.datasets.cache import locate, text_checksum
from dgl_lara.datasets.dataset import Dataset, random_split
from dgl_lara.datasets.svd_features import svd_features
from dgl_lara.datasets.validate import validate_dataset
from dgl_lara.errors import LaraError

AREAS = ("database", "data mining", "AI", "information retrieval")
CHECKSUM = "fe63383a03552f7b064e55aa8cc39bdd9f3ff64942c4e0ea4ee39431b5a274ca"
TERM_DIM = 64
FILES = {"venue": "conf"}  # type -> file name, if they differ
# names of the relation from papers to another type, and back
RELATIONS = {
    "author": ("written by", "writes"),
    "term": ("contains", "occurs in"),
    "venue": ("published at", "publishes"),
}


def build(name: str, options: Options) -> Dataset:
    root = locate(name, options.data_dir)
    folder = root / "dblp_four_area"
    if text_checksum(*(root / file for file in DBLP_FILES)) != CHECKSUM:
        raise LaraError("dataset.not_published", name="DBLP four area", folder=folder)
    return _read(folder, options.seed)


def _table(path: Path, *columns: str) -> pd.DataFrame:
    """Read a tab-separated file. Titles hold quotation marks and a few Chinese code points (GBK)."""
    dtypes = {column: str if column == "name" else np.int64 for column in columns}
    return pd.read_csv(
        path, sep="\t", header=None, names=list(columns), usecols=range(len(columns)), dtype=dtypes,
        quoting=csv.QUOTE_NONE, keep_default_na=False, encoding="gbk", encoding_errors="replace",
    )  # fmt: skip


def _read(folder: Path, seed: int) -> Dataset:
    areas = _table(folder / "author_label.txt", "id", "area", "name")
    links = {name: _table(folder / f"paper_{FILES.get(name, name)}.txt", "paper", name) for name in RELATIONS}
    areas = areas.sort_values("id")
    ids = {"author": areas.id.to_numpy()}
    written = links["author"] = links["author"][links["author"].author.isin(ids["author"])]
    ids["paper"] = np.unique(written.paper)
    for name in ("term", "venue"):
        links[name] = links[name][links[name].paper.isin(ids["paper"])]
        ids[name] = np.unique(links[name][name])
    edges = {}
    for name, (forth, back) in RELATIONS.items():
        ends = [torch.as_tensor(np.searchsorted(ids[end], links[name][end])) for end in ("paper", name)]
        edges["paper", forth, name], edges[name, back, "paper"] = (ends[0], ends[1]), (ends[1], ends[0])
    graph = dgl.heterograph(edges, {name: len(type_ids) for name, type_ids in ids.items()})
    train, val, test = random_split(len(areas), seed)
    return validate_dataset(
        Dataset(
            name="dblp",
            task="node",
            graph=graph,
            features=_features(graph),
            labels=torch.tensor(areas.area.to_numpy()),
            train=train,
            val=val,
            test=test,
            num_classes=len(AREAS),
            source=f"DBLP four area, split seed {seed}",
            key={"dataset": "dblp", "seed": seed},
            display_names={"nodes": _names(folder, ids), "classes": AREAS},
            target_type="author",
        )
    )


def _features(graph: dgl.DGLGraph) -> dict[str, Tensor]:
    papers = graph.in_degrees(etype="written by").float()
    paper, term = (ends.numpy() for ends in graph.edges(etype="contains"))
    shape = graph.num_nodes("paper"), graph.num_nodes("term")
    counts = sp.csr_matrix((np.ones(len(term)), (paper, term)), shape)
    rarity = np.log(shape[0] / np.bincount(term, minlength=shape[1]))  # common words such as "the" get little weight
    return {
        "author": torch.stack([torch.ones_like(papers), papers.log()], dim=1),
        "paper": torch.ones(graph.num_nodes("paper"), 1),
        "term": svd_features(counts @ sp.diags(rarity), TERM_DIM),
        "venue": torch.eye(graph.num_nodes("venue")),
    }


def _names(folder: Path, ids: dict[str, np.ndarray]) -> dict[str, tuple[str, ...]]:
    names = {}
    for node_type, type_ids in ids.items():
        table = _table(folder / f"{FILES.get(node_type, node_type)}.txt", "id", "name").set_index("id").name
        texts = table.reindex(type_ids, fill_value=f"unnamed {node_type}")
        names[node_type] = tuple(html.unescape(text).strip() for text in texts)
    return names

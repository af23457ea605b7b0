"""DBLP, "four area": authors, papers, terms and venues; the class of an author is the area of research.

Kept are the authors with an area, the papers they wrote, and the terms and venues of those. Nobody carries the answer:
an author is a constant and the number of papers, a paper is a constant, a term is what it occurs with (leading
directions of the table of papers and terms), a venue is itself (one-hot). The files may be used for academic and
educational purposes and not passed on: they are read where they lie, and never downloaded.
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

from dgl_lara.datasets import DATASETS, Options
from dgl_lara.datasets.cache import find_files, how_to_get, text_checksum
from dgl_lara.datasets.dataset import Dataset, checked, random_split
from dgl_lara.datasets.svd_features import leading_directions
from dgl_lara.errors import LaraError

AREAS = ("database", "data mining", "AI", "information retrieval")
CHECKSUM = "fe63383a03552f7b064e55aa8cc39bdd9f3ff64942c4e0ea4ee39431b5a274ca"
TERM_DIM = 64
# a link file joins papers to others: what a paper is to them, and they to a paper
RELATIONS = {
    "author": ("written by", "writes"),
    "term": ("contains", "occurs in"),
    "venue": ("published at", "publishes"),
}


def build(name: str, options: Options) -> Dataset:
    files = DATASETS[name].files
    folder = find_files(files, options.data_dir)
    if folder is None:
        raise LaraError(f"{name} is not here, and may not be passed on. {how_to_get(name, files, None)}")
    if text_checksum(*(folder / file for file in files)) != CHECKSUM:
        raise LaraError(
            f"the files in {folder / 'dblp_four_area'} are not DBLP four area as published (truncated or changed)."
        )
    return _read(folder / "dblp_four_area", options.seed)


def _table(path: Path, *columns: str) -> pd.DataFrame:
    """Tab-separated; titles hold quotation marks and a few Chinese code points (GBK), which ASCII is part of."""
    kinds = {column: str if column == "name" else np.int64 for column in columns}
    return pd.read_csv(
        path, sep="\t", header=None, names=list(columns), usecols=range(len(columns)), dtype=kinds,
        quoting=csv.QUOTE_NONE, keep_default_na=False, encoding="gbk", encoding_errors="replace",
    )  # fmt: skip


def _read(folder: Path, seed: int) -> Dataset:
    areas = _table(folder / "author_label.txt", "id", "area", "name")
    links = {
        kind: _table(folder / f"paper_{'conf' if kind == 'venue' else kind}.txt", "paper", kind) for kind in RELATIONS
    }
    areas = areas.sort_values("id")
    ids = {"author": areas.id.to_numpy()}
    written = links["author"] = links["author"][links["author"].author.isin(ids["author"])]
    ids["paper"] = np.unique(written.paper)
    for kind in ("term", "venue"):
        links[kind] = links[kind][links[kind].paper.isin(ids["paper"])]
        ids[kind] = np.unique(links[kind][kind])
    edges = {}
    for kind, (forth, back) in RELATIONS.items():
        ends = [torch.as_tensor(np.searchsorted(ids[end], links[kind][end])) for end in ("paper", kind)]
        edges["paper", forth, kind], edges[kind, back, "paper"] = (ends[0], ends[1]), (ends[1], ends[0])
    graph = dgl.heterograph(edges, {kind: len(known) for kind, known in ids.items()})
    train, val, test = random_split(len(areas), seed)
    return checked(
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
    place, term = (ends.numpy() for ends in graph.edges(etype="contains"))
    shape = graph.num_nodes("paper"), graph.num_nodes("term")
    counts = sp.csr_matrix((np.ones(len(term)), (place, term)), shape)
    rarity = np.log(shape[0] / np.bincount(term, minlength=shape[1]))  # "the" says little
    return {
        "author": torch.stack([torch.ones_like(papers), papers.log()], dim=1),
        "paper": torch.ones(graph.num_nodes("paper"), 1),
        "term": leading_directions(counts @ sp.diags(rarity), TERM_DIM),
        "venue": torch.eye(graph.num_nodes("venue")),
    }


def _names(folder: Path, ids: dict[str, np.ndarray]) -> dict[str, tuple[str, ...]]:
    found = {}
    for kind, known in ids.items():
        table = _table(folder / f"{'conf' if kind == 'venue' else kind}.txt", "id", "name").set_index("id").name
        found[kind] = tuple(html.unescape(text).strip() for text in table.reindex(known, fill_value=f"unnamed {kind}"))
    return found

"""Pairs of nodes of a graph of the user's own: `--graph g.bin --pairs pairs.csv [--relation rates]`.

The graph is a .bin file with features (x or feat) of all its nodes, of one type or several; no labels are needed. The
pairs stand one a line, u and v, with a comma, blank or tab between them; a first line of words is passed over.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dgl
import torch
from torch import Tensor

from dgl_lara.datasets.dataset import Dataset, checked, random_split
from dgl_lara.datasets.file_fields import NODE_ID, PARTS, content_of, numbers_of, pick, read_lines
from dgl_lara.datasets.npz_layouts import check_names, names_beside
from dgl_lara.errors import InputError


def read_pairs(path: Path) -> Tensor:
    """(num_pairs, 2), each pair once, in the order of the file."""
    lines = [(place, line, re.split(r"[,\s]+", line)) for place, line in read_lines(path)]
    if not any(re.match(r"[-+.]?\d", word) for word in lines[0][2]):
        lines = lines[1:]  # a heading
    for place, line, words in lines:
        if len(words) != 2 or not all(re.fullmatch(NODE_ID, word) for word in words):
            raise InputError(f"{path} must hold a pair of node numbers a line, u,v (line {place} is '{line[:40]}').")
    if not lines:
        raise InputError(f"{path} holds a heading and no pairs.")
    return torch.tensor(list(dict.fromkeys((int(u), int(v)) for _, _, (u, v) in lines)))


def link_dataset(
    path: Path, graph: dgl.DGLGraph, pairs_file: Path, relation: str | None, leave_out: bool, seed: int
) -> Dataset:
    pairs = read_pairs(pairs_file)
    if len(pairs) < 3:
        raise InputError(
            f"{pairs_file}: three pairs or more are needed, to learn from and to judge by (got {len(pairs)})."
        )
    features = {
        kind: pick(path, f"features of type '{kind}'", graph.nodes[kind].data, ("x", "feat")).float()
        for kind in graph.ntypes
    }
    edges = {each: tuple(ends.long() for ends in graph.edges(etype=each)) for each in graph.canonical_etypes}
    plain = dgl.heterograph(edges, {kind: graph.num_nodes(kind) for kind in graph.ntypes})
    for each in edges:
        plain.edges[each].data.update(numbers_of(graph.edges[each].data))
    typed = not graph.is_homogeneous
    stands_for = _relation(path, graph, relation) if typed else None
    counts = (
        {"nodes": {kind: graph.num_nodes(kind) for kind in graph.ntypes}} if typed else {"nodes": graph.num_nodes()}
    )
    splits = dict(zip(PARTS, random_split(len(pairs), seed), strict=True))
    splits = {part: found if len(found) else splits["train"][-1:] for part, found in splits.items()}
    content = content_of(*(end for ends in edges.values() for end in ends), pairs, *features.values())
    return checked(
        Dataset(
            name=path.stem,
            task="link",
            graph=plain,
            features=features if typed else features[graph.ntypes[0]],
            labels=torch.zeros(len(pairs), dtype=torch.long),
            num_classes=1,
            display_names=check_names(path, names_beside(path), counts),
            source=f"file {path.name}, pairs of {pairs_file.name}, random split, seed {seed}",
            key={"dataset": path.stem, "content": content, "relation": stands_for, "leave_out": leave_out},
            pairs=pairs,
            relation=stands_for,
            leave_out=leave_out,
            **_apart(splits),
        ),
        path,
    )


def _apart(splits: dict[str, Tensor]) -> dict[str, Any]:
    """Of very few pairs, what one split lends to another it does not keep."""
    lent = torch.cat([splits["val"], splits["test"]])
    return {**splits, "train": splits["train"][~torch.isin(splits["train"], lent)]}


def _relation(path: Path, graph: dgl.DGLGraph, asked: str | None) -> tuple[str, str, str]:
    known = ", ".join(name for _, name, _ in graph.canonical_etypes)
    if asked is None:
        raise InputError(
            f"{path}: say with --relation what the pairs stand for, so that their types are known: {known}."
        )
    found = [each for each in graph.canonical_etypes if each[1] == asked]
    if len(found) != 1:
        raise InputError(f"{path}: --relation must be one of {known} (got '{asked}').")
    return found[0]

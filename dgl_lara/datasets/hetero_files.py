"""A graph of several node types in a .bin file of the user's own.

Each type has features, nodes[type].data x or feat. One type has labels, y or label, and optional masks: its nodes are
the targets. Where several have or none has, --target-type says which. Edge data stay. Names: "<stem>.names.json" beside
the file, with lists by type under "nodes".
"""

from __future__ import annotations

from pathlib import Path

import dgl
from torch import Tensor

from dgl_lara.datasets import Options
from dgl_lara.datasets.dataset import Dataset, checked
from dgl_lara.datasets.file_fields import PARTS, content_of, labels_and_splits, labels_in, numbers_of, pick
from dgl_lara.datasets.npz_layouts import check_names, names_beside
from dgl_lara.errors import InputError


def read_typed(path: Path, graphs: list[dgl.DGLGraph], options: Options) -> Dataset:
    if len(graphs) > 1:
        raise InputError(
            f"{path}: a file holds one graph of several node types, or many of one type (got {len(graphs)} graphs; "
            "dgl.to_homogeneous makes their types alike)."
        )
    stored, target_type = graphs[0], _target_type(path, graphs[0], options.target_type)
    features = {
        kind: pick(path, f"features of type '{kind}'", stored.nodes[kind].data, ("x", "feat")).float()
        for kind in stored.ntypes
    }
    graph = _bare(path, stored)
    data = stored.nodes[target_type].data
    masks = {part: data.get(f"{part}_mask") for part in PARTS}
    count = graph.num_nodes(target_type)
    y, splits, how = labels_and_splits(path, "node", labels_in(data), count, masks, options.seed)
    edges = [part for relation in graph.canonical_etypes for part in _parts_of(graph, relation)]
    num_classes = int(y.max()) + 1 if len(y) else 0
    counts = {"nodes": {kind: graph.num_nodes(kind) for kind in graph.ntypes}, "classes": num_classes or None}
    return checked(
        Dataset(
            name=path.stem,
            task="node",
            graph=graph,
            features=features,
            labels=y,
            num_classes=num_classes,
            display_names=check_names(path, names_beside(path), counts),
            source=f"file {path.name}{how}",
            key={
                "dataset": path.stem,
                "content": content_of(*edges, y, *splits.values(), *features.values()),
                "target_type": target_type,
            },
            target_type=target_type,
            **splits,
        ),
        path,
    )


def _target_type(path: Path, graph: dgl.DGLGraph, asked: str | None) -> str:
    known = ", ".join(graph.ntypes)
    if asked is not None:
        if asked not in graph.ntypes:
            raise InputError(f"{path}: --target-type must name a type of nodes, one of {known} (got '{asked}').")
        return asked
    labelled = [kind for kind in graph.ntypes if labels_in(graph.nodes[kind].data) is not None]
    if len(labelled) == 1:
        return labelled[0]
    held = f"nodes of {' and '.join(labelled)} have labels" if labelled else f"none of the types {known} has labels"
    raise InputError(f"{path}: {held}; say with --target-type which is meant.")


def _bare(path: Path, stored: dgl.DGLGraph) -> dgl.DGLGraph:
    """The relations and their data, without node data."""
    edges = {}
    for start, name, end in stored.canonical_etypes:
        src, dst = (ends.long() for ends in stored.edges(etype=(start, name, end)))
        for ends, kind in ((src, start), (dst, end)):
            if len(ends) and (int(ends.min()) < 0 or int(ends.max()) >= stored.num_nodes(kind)):
                raise InputError(f"{path}: edges of '{name}' must join nodes that there are ('{kind}' has fewer).")
        edges[start, name, end] = (src, dst)
    graph = dgl.heterograph(edges, {kind: stored.num_nodes(kind) for kind in stored.ntypes})
    for relation in edges:
        graph.edges[relation].data.update(numbers_of(stored.edges[relation].data))
    return graph


def _parts_of(graph: dgl.DGLGraph, relation: tuple[str, str, str]) -> list[Tensor]:
    return [*graph.edges(etype=relation), *numbers_of(graph.edges[relation].data).values()]

"""BA-Shapes, BA-Community, Tree-Cycles (GNNExplainer) and BA-2Motifs (PGExplainer).

They are generated from a seed, or read from the authors' files (`--source original`). Generators return edges in both
directions, features, labels, and the motif of every node (-1 for none). An edge is true if both ends are in one motif.
"""

from __future__ import annotations

from collections.abc import Callable

import dgl
import networkx as nx
import numpy as np
import torch

from dgl_lara.datasets import DATASETS, Options
from dgl_lara.datasets.cache import Arrays, cached, locate, read_arrays
from dgl_lara.datasets.dataset import SPLITS, Dataset, random_split, split_by_fraction
from dgl_lara.datasets.validate import validate_dataset
from dgl_lara.errors import LaraError

HOUSE = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 0), (4, 1)]  # 0, 1 middle, 2, 3 bottom, 4 roof
HOUSE_LABELS = [1, 1, 2, 2, 3]


def _cycle(length: int) -> list[tuple[int, int]]:
    return [(i, (i + 1) % length) for i in range(length)]


def build(name: str, options: Options) -> Dataset:
    return _original(name, options) if options.source == "original" else _generated(name, options)


def _generated(name: str, options: Options) -> Dataset:
    parameters = {"dataset": name, "source": "generated", "seed": options.seed, "version": 1}
    arrays = cached(name, parameters, lambda: GENERATORS[name](np.random.default_rng(options.seed)))
    count = len(arrays["y"])
    splits = dict(zip(SPLITS, random_split(count, options.seed), strict=True))
    return _assemble(name, arrays, splits, f"generated, seed {options.seed}", parameters)


def _assemble(name: str, arrays: Arrays, splits: dict, source: str, key: dict) -> Dataset:
    src, dst = (torch.as_tensor(arrays[end], dtype=torch.int64) for end in ("src", "dst"))
    motif = torch.as_tensor(arrays["motif"], dtype=torch.int64)
    graph = dgl.graph((src, dst), num_nodes=len(motif))
    if "sizes" in arrays:
        sizes = torch.as_tensor(arrays["sizes"], dtype=torch.int64)
        graph_of_node = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        graph.set_batch_num_nodes(sizes)
        graph.set_batch_num_edges(torch.bincount(graph_of_node[src], minlength=len(sizes)))
    truth = arrays.get("edge_truth", (motif[src] >= 0) & (motif[src] == motif[dst]))
    entry = DATASETS[name]
    return validate_dataset(
        Dataset(
            name=name,
            task=entry.task,
            graph=graph,
            features=torch.as_tensor(arrays["x"], dtype=torch.float32),
            labels=torch.as_tensor(arrays["y"], dtype=torch.int64),
            num_classes=entry.labels,
            source=source,
            key=key,
            motif=motif,
            edge_truth=torch.as_tensor(truth, dtype=torch.bool),
            **splits,
        )
    )


# --- generators -------------------------------------------------------------------------------------------------


def _both_directions(edges: nx.Graph) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array(sorted({(u, v) for u, v in edges.edges()} | {(v, u) for u, v in edges.edges()}))
    return pairs[:, 0], pairs[:, 1]


def _attach(
    graph: nx.Graph, edges: list[tuple[int, int]], size: int, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Attach `count` copies of a motif to distinct random nodes and return the motif of every node."""
    base = graph.number_of_nodes()
    anchors = rng.choice(base, count, replace=False)
    for copy, anchor in enumerate(anchors):
        start = base + copy * size
        graph.add_edges_from((start + u, start + v) for u, v in edges)
        graph.add_edge(start, int(anchor))
    return np.concatenate([np.full(base, -1), np.repeat(np.arange(count), size)])


def _perturb(graph: nx.Graph, motif: np.ndarray, count: int, rng: np.random.Generator) -> None:
    """Add `count` random new edges, none inside a motif."""
    nodes = graph.number_of_nodes()
    while count:
        u, v = (int(node) for node in rng.integers(nodes, size=2))
        if u != v and not graph.has_edge(u, v) and (motif[u] < 0 or motif[u] != motif[v]):
            graph.add_edge(u, v)
            count -= 1


def _ba_shapes_graph(rng: np.random.Generator) -> tuple[nx.Graph, np.ndarray, np.ndarray]:
    graph = nx.barabasi_albert_graph(300, 5, seed=int(rng.integers(2**31)))
    motif = _attach(graph, HOUSE, 5, 80, rng)
    _perturb(graph, motif, int(0.01 * graph.number_of_edges()), rng)
    return graph, motif, np.concatenate([np.zeros(300), np.tile(HOUSE_LABELS, 80)])


def ba_shapes(rng: np.random.Generator) -> Arrays:
    """Generate a 300-node Barabási-Albert graph with 80 houses and 1 % random edges. Labels: position in a house."""
    graph, motif, labels = _ba_shapes_graph(rng)
    src, dst = _both_directions(graph)
    return {"src": src, "dst": dst, "x": np.ones((len(motif), 10)), "y": labels, "motif": motif}


def ba_community(rng: np.random.Generator) -> Arrays:
    """Generate two BA-Shapes joined by 350 random edges. The first two features depend on the community."""
    (first, motif_1, labels_1), (second, motif_2, labels_2) = _ba_shapes_graph(rng), _ba_shapes_graph(rng)
    graph = nx.disjoint_union(first, second)
    joins = 350
    while joins:
        u, v = int(rng.integers(700)), int(rng.integers(700, 1400))
        if not graph.has_edge(u, v):
            graph.add_edge(u, v)
            joins -= 1
    src, dst = _both_directions(graph)
    features = rng.standard_normal((1400, 10))
    features[:700, :2] -= 1
    features[700:, :2] += 1
    motif = np.concatenate([motif_1, np.where(motif_2 >= 0, motif_2 + 80, -1)])
    return {"src": src, "dst": dst, "x": features, "y": np.concatenate([labels_1, labels_2 + 4]), "motif": motif}


def tree_cycles(rng: np.random.Generator) -> Arrays:
    """Generate a balanced binary tree of 511 nodes with 60 six-cycles and 45 random edges. Labels: in a cycle."""
    graph = nx.balanced_tree(2, 8)
    motif = _attach(graph, _cycle(6), 6, 60, rng)
    _perturb(graph, motif, 45, rng)
    src, dst = _both_directions(graph)
    return {"src": src, "dst": dst, "x": np.ones((len(motif), 10)), "y": motif >= 0, "motif": motif}


def ba_2motifs(rng: np.random.Generator) -> Arrays:
    """Generate 1,000 Barabási-Albert trees of 20 nodes, each with a five-cycle (class 0) or a house (class 1)."""
    sources, targets, motifs = [], [], []
    for number in range(1000):
        graph = nx.barabasi_albert_graph(20, 1, seed=int(rng.integers(2**31)))
        motif = _attach(graph, _cycle(5) if number < 500 else HOUSE, 5, 1, rng)
        src, dst = _both_directions(graph)
        sources.append(src + 25 * number)
        targets.append(dst + 25 * number)
        motifs.append(np.where(motif >= 0, number, -1))
    return {
        "src": np.concatenate(sources),
        "dst": np.concatenate(targets),
        "x": np.full((25_000, 10), 0.1),
        "y": np.repeat([0, 1], 500),
        "motif": np.concatenate(motifs),
        "sizes": np.full(1000, 25),
    }


GENERATORS: dict[str, Callable[[np.random.Generator], Arrays]] = {
    "ba-shapes": ba_shapes,
    "ba-community": ba_community,
    "tree-cycles": tree_cycles,
    "ba-2motifs": ba_2motifs,
}


# --- the authors' files -----------------------------------------------------------------------------------------


def _original(name: str, options: Options) -> Dataset:
    path = locate(name, options.data_dir) / DATASETS[name].files[0]
    arrays = read_arrays(path)
    parameters = {"dataset": name, "source": "original"}
    try:
        read = _read_2motifs if name == "ba-2motifs" else _read_node_set
        return _assemble(name, *read(arrays), "the authors' file", parameters)
    except KeyError as missing:
        raise LaraError("dataset.missing_array", path=path, name=missing.args[0]) from None


def _read_node_set(arrays: Arrays) -> tuple[Arrays, dict]:
    src, dst, count = arrays["src"].astype(int), arrays["dst"].astype(int), len(arrays["x"])
    marked = {(u, v) for u, v, label in zip(src, dst, arrays["edge_label"], strict=True) if label}
    truth = [(u, v) in marked or (v, u) in marked for u, v in zip(src, dst, strict=True)]  # marked one way only
    motifs = nx.Graph(list(marked))
    motif = np.full(count, -1)
    for number, members in enumerate(sorted(nx.connected_components(motifs), key=min)):
        motif[list(members)] = number
    splits = {part: torch.as_tensor(arrays[f"{part}_mask"]).nonzero().flatten() for part in SPLITS}
    return {**arrays, "motif": motif, "edge_truth": np.array(truth)}, splits


def _read_2motifs(arrays: Arrays) -> tuple[Arrays, dict]:
    first_node, first_edge = arrays["node_slices"], arrays["edge_slices"]
    sizes = np.diff(first_node)
    shift = np.repeat(first_node[:-1], np.diff(first_edge))
    graph_of_node = np.repeat(np.arange(len(sizes)), sizes)
    local_id = np.arange(first_node[-1]) - first_node[graph_of_node]
    motif = np.where(local_id >= 20, graph_of_node, -1)  # the motif comes last
    src, dst = arrays["edge_index"] + shift
    order = torch.as_tensor(np.random.RandomState(42).permutation(len(sizes)))  # noqa: NPY002 (the authors' split)
    splits = dict(zip(SPLITS, split_by_fraction(order), strict=True))
    return {"src": src, "dst": dst, "x": arrays["x"], "y": arrays["y"], "motif": motif, "sizes": sizes}, splits

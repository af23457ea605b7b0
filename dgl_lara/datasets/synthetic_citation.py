"""`citation`: a generated stand-in for ogbn-arxiv, of any size.

Each paper cites a random number of older ones, mostly of its own class, in proportion to a heavy-tailed fitness, which
gives the power law of citation counts. Features are a class centroid plus noise. Parameters were fitted to the degree
quantiles of ogbn-arxiv (see the test).
"""

from __future__ import annotations

import dgl
import numpy as np
import torch

from dgl_lara._util.memory_budget import Budget
from dgl_lara.datasets import Options
from dgl_lara.datasets.cache import Arrays, cached
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.datasets.validate import validate_dataset
from dgl_lara.errors import InputError

DEFAULT_NODES = 10_000
CLASSES, DIM = 40, 128
BYTES_PER_NODE = 3_000  # measured peak while generating
MEAN_CITATIONS, SPREAD = 7.1, 1.0  # of the log-normal number of papers cited
OWN_CLASS = 0.65  # share of citations that stay in the class, about the edge homophily of ogbn-arxiv
FITNESS_TAIL = 1.15  # Pareto exponent, smaller gives larger hubs
SIGNAL = 2.0  # length of a class centroid, noise has deviation 1 in each dimension


def build(name: str, options: Options) -> Dataset:
    nodes = DEFAULT_NODES if options.nodes is None else options.nodes
    check_nodes(nodes)
    Budget.of(None).check(BYTES_PER_NODE * nodes, f"a graph of {nodes:,} nodes")
    parameters = {"dataset": name, "seed": options.seed, "nodes": nodes, "version": 1}
    arrays = cached(name, parameters, lambda: generate(nodes, np.random.default_rng(options.seed)))
    first, second = split_ends(nodes)
    order = torch.arange(nodes)
    return validate_dataset(
        Dataset(
            name=name,
            task="node",
            graph=dgl.graph((torch.as_tensor(arrays["src"]), torch.as_tensor(arrays["dst"])), num_nodes=nodes),
            features=torch.as_tensor(arrays["x"]),
            labels=torch.as_tensor(arrays["y"]),
            train=order[:first],
            val=order[first:second],
            test=order[second:],
            num_classes=CLASSES,
            source=f"generated stand-in for ogbn-arxiv, {nodes} nodes, seed {options.seed}",
            key=parameters,
        )
    )


def check_nodes(nodes: int) -> None:
    """Raise InputError if there are too few nodes for the classes."""
    if nodes < 10 * CLASSES:
        raise InputError("citation.nodes", least=10 * CLASSES, got=nodes)


def split_ends(nodes: int) -> tuple[int, int]:
    """Return the ends of train and val, by time in the proportions of ogbn-arxiv."""
    return int(0.54 * nodes), int(0.71 * nodes)


def generate(nodes: int, rng: np.random.Generator) -> Arrays:
    """Draw all citations at once, by a search in the running sum of fitness."""
    shares = rng.dirichlet(np.full(CLASSES, 1.0))
    labels = rng.choice(CLASSES, nodes, p=0.9 * shares + 0.1 / CLASSES)
    labels[:CLASSES] = np.arange(CLASSES)
    fitness = 1 + rng.pareto(FITNESS_TAIL, nodes)
    fitness = np.minimum(fitness, nodes / 20)  # no paper is cited by all others
    citations = rng.lognormal(np.log(MEAN_CITATIONS) - SPREAD**2 / 2, SPREAD, nodes)
    src = np.repeat(np.arange(nodes), np.floor(citations + rng.random(nodes)).astype(int))
    dst = np.empty_like(src)

    own_class = rng.random(len(src)) < OWN_CLASS
    running = np.concatenate([[0], np.cumsum(fitness)])
    dst[~own_class] = _draw(running, src[~own_class], rng)
    for label in range(CLASSES):
        members = np.flatnonzero(labels == label)
        running = np.concatenate([[0], np.cumsum(fitness[members])])
        citing = own_class & (labels[src] == label)
        drawn = _draw(running, np.searchsorted(members, src[citing]), rng)
        dst[citing] = members[np.minimum(drawn, len(members) - 1)]  # a class of one cites itself, which is dropped
    keep = dst < src  # the first paper of a class has none to cite
    src, dst = np.divmod(np.unique(src[keep] * nodes + dst[keep]), nodes)

    centroids = rng.standard_normal((CLASSES, DIM))
    centroids *= SIGNAL / np.linalg.norm(centroids, axis=1, keepdims=True)
    features = centroids[labels].astype(np.float32) + rng.standard_normal((nodes, DIM), dtype=np.float32)
    return {"src": src, "dst": dst, "x": features, "y": labels}


def _draw(running: np.ndarray, newest: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw an index below each `newest` in proportion to fitness, whose running sum is `running`."""
    index = np.searchsorted(running, rng.random(len(newest)) * running[newest], side="right") - 1
    return np.minimum(index, np.maximum(newest - 1, 0)) + (newest == 0)

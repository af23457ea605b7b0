"""The graph after some updates, with all that is needed to explain on it, as arrays that all workers map into memory.

Snapshot 0 is the run itself. Every update writes another one to `RUN/serving/KEY/SEQUENCE/`:

indptr, sources, features, outputs, removed    the graph and the outputs of the model on it
unchanged                                      targets that no update has affected since training
PLAYERS-source, PLAYERS-target, PLAYERS-cache  p, t and the best players, by player set
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.atomic import checksum
from dgl_lara.blackbox.call import call_model
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.game.node_task import khop_batch
from dgl_lara.graphs.graph import Graph, graph_from_csc
from dgl_lara.lara import LARA
from dgl_lara.serve.cache import ExplanationCache
from dgl_lara.serve.explainer import (
    ServedExplainer,
    explainer_of_run,
    grow_rows,
    lara_on_updated_graph,
    make_explainer,
)
from dgl_lara.serve.ids import IdCodec
from dgl_lara.serve.updates import UpdatedGraph, downstream, upstream

NODES_PER_BATCH = 50_000


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A graph and its explainers after an update.

    Attributes:
        sequence: Number of the last update. 0: the graph of the run.
        graph: The graph.
        features: (num_nodes, columns).
        removed: (num_targets,) bool, targets that an update has removed.
        unchanged: (num_targets,) bool, targets that no update has affected.
        explainers: By player set. The first is the one trained first.
    """

    sequence: int
    graph: Graph
    features: Tensor
    removed: np.ndarray
    unchanged: Tensor
    explainers: Mapping[str, ServedExplainer]

    @property
    def first(self) -> ServedExplainer:
        return next(iter(self.explainers.values()))


def snapshot_of_run(laras: Mapping[str, LARA], folder: Path, ids: IdCodec) -> Snapshot:
    """Return the graph of the run, with caches in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    first = next(iter(laras.values()))
    count = first.game.num_targets
    explainers = {}
    for name, lara in laras.items():
        explainers[name] = explainer_of_run(lara, ExplanationCache(folder / f"{name}-cache", count), ids)
    removed, unchanged = np.zeros(count, dtype=bool), torch.ones(count, dtype=torch.bool)
    return Snapshot(0, first.game.graph, first.features, removed, unchanged, explainers)


def open_snapshot(laras: Mapping[str, LARA], folder: Path, sequence: int, ids: IdCodec) -> Snapshot:
    """Open a snapshot that `write_snapshot` wrote."""

    def read(name: str) -> Tensor:
        """Map an array into memory. Processes share its pages unless they write to them."""
        return torch.from_numpy(np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False))

    indptr, sources, features, outputs = map(read, ("indptr", "sources", "features", "outputs"))
    graph = graph_from_csc(indptr, sources)
    unchanged, explainers = read("unchanged"), {}
    for name, base in laras.items():
        lara = lara_on_updated_graph(base, graph, features, outputs)
        cache = ExplanationCache(folder / f"{name}-cache", len(features))
        embeddings = (read(f"{name}-source"), read(f"{name}-target"))
        explainers[name] = make_explainer(lara, *embeddings, cache, ids, unchanged)
    return Snapshot(sequence, graph, features, read("removed").numpy(), unchanged, explainers)


def checksums(folder: Path) -> dict[str, str]:
    """Return the checksum of each array by name. Rows of caches have checksums of their own."""
    return {path.stem: checksum(path) for path in sorted(folder.glob("*.npy"))}


def write_snapshot(before: Snapshot, after: UpdatedGraph, folder: Path) -> int:
    """Write the snapshot after some updates, and return the number of affected nodes.

    Only their p and t are computed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    graph, first = after.graph, before.first.lara
    hops = first.game.hops
    layers = max(explainer.lara.explainer_.config.layers for explainer in before.explainers.values())
    outputs = grow_rows(before.first.game.full_outputs, graph.num_nodes())
    outputs_change = downstream(graph, after.touched, hops)
    _update_outputs(first, after, outputs_change.nonzero().flatten(), outputs)
    embeddings_change = downstream(graph, outputs_change, layers)
    stale = downstream(graph, embeddings_change, hops).numpy()
    indptr, sources, _ = graph.adj_tensors("csc")
    unchanged = grow_rows(before.unchanged, graph.num_nodes()) & ~outputs_change
    arrays = {"indptr": indptr, "sources": sources, "features": after.features, "outputs": outputs}
    for name, values in {**arrays, "removed": after.removed, "unchanged": unchanged}.items():
        np.save(folder / f"{name}.npy", values.numpy())
    for name, explainer in before.explainers.items():
        lara = lara_on_updated_graph(explainer.lara, graph, after.features, outputs)
        source, target = _updated_embeddings(explainer, lara, embeddings_change.nonzero().flatten())
        np.save(folder / f"{name}-source.npy", source.numpy())
        np.save(folder / f"{name}-target.npy", target.numpy())
        explainer.cache.copy_to(folder / f"{name}-cache", graph.num_nodes(), stale)
    return int(embeddings_change.sum())


def _update_outputs(lara: LARA, after: UpdatedGraph, nodes: Tensor, outputs: Tensor) -> None:
    """Evaluate the model on some nodes and write its outputs to their rows."""
    model, task = lara.game.f, lara.task
    with eval_mode(model):
        for batch in nodes.split(NODES_PER_BATCH):
            subgraph = khop_batch(after.graph, batch, lara.game.hops + 1)
            features = after.features[subgraph.nodes]
            rows = call_model(model, subgraph.graph, features, len(subgraph.nodes), task.name)
            outputs[batch] = rows[subgraph.target_rows]


def _updated_embeddings(explainer: ServedExplainer, lara: LARA, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Return p and t of all nodes, computed for some of them."""
    network, game, count = lara.explainer_, lara.game, lara.graph.num_nodes()
    source, target = explainer.grown_source(count), grow_rows(explainer.target, count)
    with eval_mode(network):
        for batch in nodes.split(NODES_PER_BATCH):
            mask = torch.zeros(count, dtype=torch.bool)
            mask[batch] = True
            needed = upstream(game.graph, mask, network.config.layers).nonzero().flatten()
            inputs = explainer_inputs(game, lara.config_.inputs, needed)
            p, t = network(EncoderGraph.around(game.graph, needed, inputs))
            rows = torch.searchsorted(needed, batch)
            target[batch] = t[rows]
            explainer.write_source(source, batch, p, rows)
    return source, target

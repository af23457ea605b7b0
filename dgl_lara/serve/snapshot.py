"""The graph at one moment with all that is needed to explain on it: memory-mapped arrays that all workers share.

The first snapshot is the run itself. Every update makes a new one beside it, `RUN/serving/KEY/SEQUENCE/`:

indptr, sources, features, answer, gone    the graph, and what f says of it
unchanged                                  the targets around which nothing has changed since training
KIND-source, KIND-target, KIND-table       p and t, and the best players, by kind of players
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import dgl
import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.atomic import checksum
from dgl_lara.blackbox.call import call_model
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.game.node_task import khop_batch
from dgl_lara.lara import LARA
from dgl_lara.serve.cache import ExplanationCache
from dgl_lara.serve.explainer import ServedExplainer, UnchangedSamples, base_part, on_graph, prepare
from dgl_lara.serve.ids import IdCodec
from dgl_lara.serve.updates import UpdatedGraph, downstream, upstream

A_BATCH = 50_000  # nodes whose p and t, or f's answers, are made at a time


@dataclass(frozen=True, eq=False)
class Snapshot:
    """`sequence`: the last update that counts. `parts`: by kind of players, the first trained first."""

    sequence: int
    graph: dgl.DGLGraph
    features: Tensor
    gone: np.ndarray  # (num_nodes,) bool
    unchanged: Tensor  # (num_targets,) bool
    parts: Mapping[str, ServedExplainer]

    @property
    def first(self) -> ServedExplainer:
        return next(iter(self.parts.values()))

    @cached_property
    def gone_targets(self) -> np.ndarray:
        """(num_targets,) bool: removed nodes, which nobody can ask about."""
        game = self.first.game
        are_nodes = game.task.has_distances and game.task.num_endpoints == 1
        return self.gone[: game.num_targets] if are_nodes else np.zeros(game.num_targets, dtype=bool)


def base_snapshot(laras: Mapping[str, LARA], folder: Path, called: IdCodec | None = None) -> Snapshot:
    """Of the run as it was trained."""
    folder.mkdir(parents=True, exist_ok=True)
    first = next(iter(laras.values()))
    count = first.game.num_targets
    called = called or IdCodec(first, {})
    parts = {
        kind: base_part(lara, ExplanationCache(folder / f"{kind}-table", count), called) for kind, lara in laras.items()
    }
    for part in parts.values():
        prepare(part)
    nobody = np.zeros(first.graph.num_nodes(), dtype=bool)
    everyone = torch.ones(count, dtype=torch.bool)
    return Snapshot(0, first.game.graph, first.features, nobody, everyone, parts)


def open_snapshot(laras: Mapping[str, LARA], folder: Path, sequence: int, called: IdCodec | None = None) -> Snapshot:
    """One that `write_snapshot` wrote."""

    def read(name: str) -> Tensor:
        return torch.from_numpy(_mapped(folder, name))

    indptr, sources, features, answer = map(read, ("indptr", "sources", "features", "answer"))
    graph = dgl.graph(("csc", (indptr, sources, torch.empty(0, dtype=torch.long))), num_nodes=len(features))
    unchanged, parts = read("unchanged"), {}
    called = called or IdCodec(next(iter(laras.values())), {})
    for kind, base in laras.items():
        lara = on_graph(base, graph, features, answer)
        if base.samples_ is not None and kind != "edges":  # whose numbers are others now
            lara.samples_ = UnchangedSamples(**vars(base.samples_))
        source = _mapped(folder, f"{kind}-source")
        table = ExplanationCache(folder / f"{kind}-table", len(features))
        part = ServedExplainer(lara, torch.from_numpy(source), read(f"{kind}-target"), table, called, unchanged)
        parts[kind] = replace(part, source=source) if part.walked else part
    return Snapshot(sequence, graph, features, _mapped(folder, "gone"), unchanged, parts)


def _mapped(folder: Path, name: str) -> np.ndarray:
    """Pages that nobody writes to are shared by all processes."""
    return np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False)


def checksums(folder: Path) -> dict[str, str]:
    """Of its arrays, by name; tables look after themselves."""
    return {path.stem: checksum(path) for path in sorted(folder.glob("*.npy"))}


def write_snapshot(before: Snapshot, after: UpdatedGraph, folder: Path) -> int:
    """What changed of p and t is made anew, the rest is taken over. Returns for how many nodes."""
    folder.mkdir(parents=True, exist_ok=True)
    graph, first = after.graph, before.first.lara
    hops, layers = first.game.hops, max(part.lara.explainer_.config.layers for part in before.parts.values())
    answer = _grown(before.first.game.full_outputs, graph.num_nodes())
    answers_change = downstream(graph, after.touched, hops)
    _ask_again(first, after, answers_change.nonzero().flatten(), answer)
    embeddings_change = downstream(graph, answers_change, layers)
    stale = downstream(graph, embeddings_change, hops).numpy()
    indptr, sources, _ = graph.adj_tensors("csc")
    unchanged = _grown(before.unchanged, graph.num_nodes()) & ~answers_change
    written = {"indptr": indptr, "sources": sources, "features": after.features, "answer": answer}
    for name, values in {**written, "gone": after.gone, "unchanged": unchanged}.items():
        np.save(folder / f"{name}.npy", values.numpy())
    for kind, part in before.parts.items():
        lara = on_graph(part.lara, graph, after.features, answer)
        source, target = _embedded_again(part, lara, embeddings_change.nonzero().flatten())
        np.save(folder / f"{kind}-source.npy", source)
        np.save(folder / f"{kind}-target.npy", target.numpy())
        part.table.copied(folder / f"{kind}-table", graph.num_nodes(), stale)
    return int(embeddings_change.sum())


def _grown(rows: Tensor, count: int) -> Tensor:
    """With further rows of nothing."""
    return torch.cat([rows, rows.new_zeros(count - len(rows), *rows.shape[1:])])


def _ask_again(lara: LARA, after: UpdatedGraph, nodes: Tensor, answer: Tensor) -> None:
    """f's answer on these nodes, into their rows."""
    f, task = lara.game.f, lara.task
    with eval_mode(f):
        for some in nodes.split(A_BATCH):
            near = khop_batch(after.graph, some, lara.game.hops + 1)
            said = call_model(f, near.graph, after.features[near.nodes], len(near.nodes), task.name)
            answer[some] = said[near.target_rows]


def _embedded_again(part: ServedExplainer, lara: LARA, nodes: Tensor) -> tuple[np.ndarray, Tensor]:
    """p, in the layout of the part, and t of all nodes; made anew for these."""
    explainer, game, count = lara.explainer_, lara.game, lara.graph.num_nodes()
    config, by_term = explainer.config, isinstance(part.source, np.ndarray)
    of_columns = explainer.source_shape(count)[0] != count  # p belongs to columns of features, not to nodes
    old = torch.from_numpy(part.source) if isinstance(part.source, np.ndarray) else part.source
    if by_term:
        source = torch.cat([old, old.new_zeros(len(old), count - old.shape[1], old.shape[2])], dim=1)
    else:
        source = old.clone() if of_columns else _grown(old, count)
    target = _grown(part.target, count)
    with eval_mode(explainer):
        for some in nodes.split(A_BATCH):
            mask = torch.zeros(count, dtype=torch.bool)
            mask[some] = True
            needed = upstream(game.graph, mask, config.layers).nonzero().flatten()
            seen = EncoderGraph.around(game.graph, needed, explainer_inputs(game, lara.config_.inputs, needed))
            p, t = explainer(seen)
            place = torch.searchsorted(needed, some)
            target[some] = t[place]
            if by_term:
                source[:, some] = p[place].view(len(some), config.terms, config.dim).transpose(0, 1)
            elif not of_columns:
                source[some] = p[place]
    return source.numpy(), target

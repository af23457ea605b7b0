"""Passes of g and scores on a graph that is never whole: layers in batches of nodes, from disk to disk, then the
targets of a file piece by piece, each on what is cut out around it. The numbers are those of `scores.py`, up to
rounding."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dgl_lara._util.numba_threads import kernel, run_in_threads
from dgl_lara._util.progress import Progress
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.blackbox.identity import weights_hash
from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.explainer.network import Explainer
from dgl_lara.explanation import Explanations
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.partitioned_game import PartitionedGame
from dgl_lara.game.player_index import MANY
from dgl_lara.game.walks import scale_of
from dgl_lara.graphs.mmap import GraphView, MmapGraphView
from dgl_lara.graphs.row_store import Make, RowStore
from dgl_lara.inference.kernels.walk import WalkKernel
from dgl_lara.inference.scorer import Embeddings, Scorer, TopPlayers

ROWS = 1_000_000


def embed_out_of_core(explainer: Explainer, game: PartitionedGame, kind: str) -> Embeddings:
    """p and t of all nodes, mapped. While they are made, the state after each layer lies on disk too."""
    assert game.store is not None
    maker = OutOfCoreEncoder(explainer, game, kind, game.store)
    with eval_mode(explainer):
        return maker.embeddings()


def key_of(explainer: Explainer, game: PartitionedGame) -> str:
    """What p and t depend on, beside the graph."""
    return f"{weights_hash(explainer)} {game.model_key}"


class OutOfCoreEncoder:
    """The encoder of g, a layer of all nodes after the other: states h, and what each node sends along its edges."""

    def __init__(self, explainer: Explainer, game: PartitionedGame, kind: str, store: RowStore) -> None:
        self.explainer, self.game, self.kind, self.store = explainer, game, kind, store
        self.of = key_of(explainer, game)
        self.states: list[Tensor] = []

    def embeddings(self) -> Embeddings:
        count, layers = self.game.num_targets, len(self.explainer.encoder.convs)
        names = [f"h{number}" for number in range(layers + 1)]
        with self.store.passing(*names):
            if not all(self.store.is_whole(name, self.of, count) for name in ("p", "t")):
                self.states.append(self._rows(names[0], self._first, "what the explainer sees of each node"))
                for number in range(layers):
                    self._add_layer(number, names[number + 1])
            return Embeddings(self._rows("p", self._source, "p"), self._rows("t", self._target, "t"))

    def _rows(self, name: str, make: Make, label: str) -> Tensor:
        return self.store.rows(name, self.of, self.game.num_targets, make, self.game.batch_size, label)

    def _first(self, nodes: Tensor) -> Tensor:
        inputs = explainer_inputs(self.game.alone(nodes), self.kind)
        return F.relu(self.explainer.encoder.first(self.explainer.normalised(inputs)))

    def _scale(self, nodes: Tensor) -> Tensor:
        return scale_of(self.game.view.in_degrees(nodes)).unsqueeze(1)

    def _add_layer(self, number: int, name: str) -> None:
        encoder, view, before = self.explainer.encoder, self.game.view, self.states[-1]
        parameters = dict(encoder.convs[number].named_parameters())
        sent, rows = f"sent{number}", before

        def send(nodes: Tensor) -> Tensor:
            return encoder.norms[number](before[nodes]) * self._scale(nodes)

        def state(nodes: Tensor) -> Tensor:
            total = rows[nodes]  # the node itself, as with a self-loop
            indptr, sources = view.in_edges(nodes)
            run_in_threads(_add_rows, len(nodes), indptr.numpy(), sources.numpy(), rows.numpy(), total.numpy())
            message = F.relu(torch.addmm(parameters["bias"], total, parameters["weight"]) * self._scale(nodes))
            return before[nodes] + message if encoder.residual else message

        if not self.store.is_whole(name, self.of, self.game.num_targets):
            rows = self._rows(sent, send, f"what is sent for layer {number + 1}")
        with self.store.passing(sent):
            self.states.append(self._rows(name, state, f"layer {number + 1}"))

    def _heads(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        residual = self.explainer.encoder.residual
        h = torch.cat([state[nodes] for state in self.states], dim=1) if residual else self.states[-1][nodes]
        return self.explainer.embeddings(*self.explainer._heads(h), self._scale(nodes))

    def _source(self, nodes: Tensor) -> Tensor:
        return self._heads(nodes)[0]

    def _target(self, nodes: Tensor) -> Tensor:
        return self._heads(nodes)[1]


@kernel()
def _add_rows(worker, workers, indptr, sources, rows, total):  # type: ignore[no-untyped-def]
    """To each row of `total` those of its sources."""
    for row in range(worker, len(indptr) - 1, workers):
        for edge in range(indptr[row], indptr[row + 1]):
            for column in range(rows.shape[1]):
                total[row, column] += rows[sources[edge], column]


class MmapWalkKernel(WalkKernel):
    """The compiled walk along edges and to embeddings that lie on disk."""

    def __init__(self, explainer: Explainer, game: PartitionedGame, source: Tensor) -> None:
        assert game.store is not None
        self.config, self.hops, self.num_nodes = explainer.config, game.hops, game.num_targets
        self.gate = explainer.gate.kernel
        self.indptr, self.sources = mapped_edges(game.view, game.store.folder / "sources.npy")
        self.scale = scale_of(torch.from_numpy(np.diff(self.indptr))).numpy()
        by_node = source.numpy().reshape(self.num_nodes, self.config.terms, self.config.dim)
        self.source = by_node.transpose(1, 0, 2)

    @cached_property
    def length(self) -> np.ndarray:
        parts = np.array_split(self.source[-1], -(-self.num_nodes // ROWS))
        return np.concatenate([np.linalg.norm(part, axis=1) for part in parts])


def mapped_edges(view: GraphView, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The in-edges of all nodes, in the order of their numbers: where each node's begin, and the sources, mapped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sources = np.lib.format.open_memmap(path, mode="w+", dtype=np.int32, shape=(view.num_edges,))
    indptr, first = np.zeros(view.num_nodes + 1, np.int64), 0
    for nodes in Progress(torch.arange(view.num_nodes).split(ROWS), "ordering edges", unit="batch"):
        ends, found = view.in_edges(nodes)
        sources[first : first + len(found)] = found
        indptr[nodes.numpy() + 1] = first + ends[1:].numpy()
        first += len(found)
    return indptr, sources


class OutOfCoreScorer:
    """What `Scorer` does, for targets of a graph in parts."""

    def __init__(self, explainer: Explainer, game: PartitionedGame, embeddings: Embeddings) -> None:
        self.explainer, self.game, self.embeddings = explainer, game, embeddings

    @cached_property
    def walks(self) -> MmapWalkKernel | None:
        """Where all rows are on this machine, and the gate is one that compiled code knows."""
        here = isinstance(self.game.view, MmapGraphView) and self.explainer.gate.kernel is not None
        return MmapWalkKernel(self.explainer, self.game, self.embeddings.source) if here else None

    def near(self, targets: Tensor) -> tuple[Scorer, Tensor]:
        """An explainer of these targets, and their numbers there."""
        # the compiled walk takes the degrees of the outermost from the game, lists of pairs from the graph
        listed = len(targets) < MANY or self.explainer.gate.kernel is None
        near = self.game.near(targets, self.game.hops + listed, inner=True, f_is_asked=False)
        t = torch.empty(len(near.nodes), self.embeddings.target.shape[1])
        t[near.targets] = self.embeddings.target[targets]
        here = Embeddings(self.embeddings.source[near.nodes], t)
        return Scorer(self.explainer, near.game, here), near.targets

    def top(self, targets: Tensor, top: int) -> TopPlayers:
        self.game.check_targets(targets)
        if self.walks is not None:
            query = self.game.query(targets)
            with torch.no_grad():
                t = self.explainer.for_class(self.embeddings.target[targets], query)
            lists = self.walks.top(targets, t, min(top, self.game.num_players))
            return TopPlayers(targets.numpy(), query.classes.numpy(), *lists)
        bulk, here = self.near(targets)
        best = bulk.top(here, top)
        assert bulk.game.parent is not None
        numbers = bulk.game.parent.node_ids.numpy()
        player = np.where(best.player < 0, -1, numbers[best.player])
        return replace(best, targets=numbers[best.targets], player=player)

    def explain(self, targets: Tensor, query: ClassQuery | None = None) -> Explanations:
        self.game.check_targets(targets)
        bulk, here = self.near(targets)
        return bulk.explain(here, query)

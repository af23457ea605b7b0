"""Passes of g and scores on a graph that is never loaded as a whole.

Layers are computed in batches of nodes, from disk to disk. Scores of a batch of targets are computed on the subgraph
around them. The numbers equal those of `scorer.py`, up to rounding.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dgl_lara._util.numba_threads import kernel, run_in_threads
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.blackbox.identity import weights_hash
from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.explainer.network import Embeddings, Explainer
from dgl_lara.explanation import Explanations
from dgl_lara.game.partitioned_game import PartitionedGame
from dgl_lara.game.player_index import MANY
from dgl_lara.game.values import ClassQuery
from dgl_lara.game.walks import scale_of
from dgl_lara.graphs.row_store import Make, RowStore
from dgl_lara.inference.kernels.walk import WalkKernel
from dgl_lara.inference.scorer import Scorer, TopPlayers

ROWS_AT_ONCE = 1_000_000  # of an array on disk


def embed_out_of_core(explainer: Explainer, game: PartitionedGame, kind: str) -> Embeddings:
    """Return p and t of all nodes, mapped. States of layers are on disk until then."""
    assert game.store is not None
    maker = _OutOfCoreEncoder(explainer, game, kind, game.store)
    with eval_mode(explainer):
        return maker.embeddings()


def key_of(explainer: Explainer, game: PartitionedGame) -> str:
    """Return a key of what p and t depend on, besides the graph."""
    return f"{weights_hash(explainer)} {game.model_key}"


class _OutOfCoreEncoder:
    """The encoder of g, one layer of all nodes after the other."""

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
        return scale_of(self.game.source.in_degrees(nodes)).unsqueeze(1)

    def _add_layer(self, number: int, name: str) -> None:
        encoder, source_graph, before = self.explainer.encoder, self.game.source, self.states[-1]
        parameters = dict(encoder.convs[number].named_parameters())
        sent, rows = f"sent{number}", before

        def send(nodes: Tensor) -> Tensor:
            return encoder.norms[number](before[nodes]) * self._scale(nodes)

        def state(nodes: Tensor) -> Tensor:
            total = rows[nodes]  # the node itself, as with a self-loop
            indptr, sources = source_graph.in_edges(nodes)
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
    """Add the rows of its sources to each row of `total`."""
    for row in range(worker, len(indptr) - 1, workers):
        for edge in range(indptr[row], indptr[row + 1]):
            for column in range(rows.shape[1]):
                total[row, column] += rows[sources[edge], column]


class _MmapWalkKernel(WalkKernel):
    """The compiled walk along edges and to embeddings on disk."""

    def __init__(
        self, explainer: Explainer, game: PartitionedGame, source: Tensor, edges: tuple[np.ndarray, np.ndarray]
    ) -> None:
        self.config, self.hops, self.num_nodes = explainer.config, game.hops, game.num_targets
        self.gate = explainer.gate.kernel
        self.indptr, self.sources = edges
        self.scale = scale_of(torch.from_numpy(np.diff(self.indptr))).numpy()
        by_node = source.numpy().reshape(self.num_nodes, self.config.terms, self.config.dim)
        self.source = by_node.transpose(1, 0, 2)

    @cached_property
    def length(self) -> np.ndarray:
        parts = np.array_split(self.source[-1], -(-self.num_nodes // ROWS_AT_ONCE))
        return np.concatenate([np.linalg.norm(part, axis=1) for part in parts])


class OutOfCoreScorer:
    """A `Scorer` for targets of a partitioned graph."""

    def __init__(self, explainer: Explainer, game: PartitionedGame, embeddings: Embeddings) -> None:
        self.explainer, self.game, self.embeddings = explainer, game, embeddings

    @cached_property
    def walks(self) -> _MmapWalkKernel | None:
        """Return the compiled walk, or None if rows are elsewhere or the gate is not compiled."""
        store = self.game.store
        if self.explainer.gate.kernel is None or store is None:
            return None
        edges = self.game.source.ordered_edges(store.folder / "sources.npy")
        return edges and _MmapWalkKernel(self.explainer, self.game, self.embeddings.source, edges)

    def near(self, targets: Tensor) -> tuple[Scorer, Tensor]:
        """Return a scorer of these targets, and their indices in it."""
        # the compiled walk takes the degrees of the outermost from the game, lists of pairs from the graph
        listed = len(targets) < MANY or self.explainer.gate.kernel is None
        near = self.game.near(targets, self.game.hops + listed, inner=True, calls_f=False)
        t = torch.empty(len(near.nodes), self.embeddings.target.shape[1])
        t[near.targets] = self.embeddings.target[targets]
        local = Embeddings(self.embeddings.source[near.nodes], t)
        return Scorer(self.explainer, near.game, local), near.targets

    def top(self, targets: Tensor, top: int) -> TopPlayers:
        self.game.check_targets(targets)
        if self.walks is not None:
            query = self.game.query(targets)
            with torch.no_grad():
                t = self.explainer.for_class(self.embeddings.target[targets], query)
            lists = self.walks.top(targets, t, min(top, self.game.num_players))
            return TopPlayers(targets.numpy(), query.classes.numpy(), *lists)
        scorer, local = self.near(targets)
        best = scorer.top(local, top)
        assert scorer.game.parent is not None
        node_ids = scorer.game.parent.node_ids.numpy()
        player = np.where(best.player < 0, -1, node_ids[best.player])
        return replace(best, targets=node_ids[best.targets], player=player)

    def explain(self, targets: Tensor, query: ClassQuery | None = None) -> Explanations:
        self.game.check_targets(targets)
        scorer, local = self.near(targets)
        return scorer.explain(local, query)

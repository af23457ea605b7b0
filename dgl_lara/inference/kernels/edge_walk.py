"""Compiled walks that score all edges near many targets, or the best ones.

From each target the weights of the gate walk out to the nodes at most K - 1 hops away. Every edge that enters one of
these nodes adds w_d <q, t> to its player. A test compares the scores with those of `decoders/edges.py`, which work on
any device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.numba_threads import inner, kernel, run_in_threads
from dgl_lara.blackbox.input_adapter import EDGE_ID
from dgl_lara.explainer.decoders.edges import MAX_EDGES_AT_ONCE, EdgeDecoder, edge_inputs
from dgl_lara.explainer.gate import BY_HOP, BY_WALK
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.player_index import Players
from dgl_lara.game.walks import walk_scale
from dgl_lara.graphs.indexing import in_edge_ids, in_edges
from dgl_lara.inference.kernels.pairs import PairKernel, TopLists, empty_lists
from dgl_lara.inference.kernels.walk import by_term, can_walk, dot, insert

if TYPE_CHECKING:
    from dgl_lara.explainer.network import Explainer
    from dgl_lara.game.game import Game


class EdgeWalkKernel(PairKernel):
    """Scores of edges by compiled walks that start at the targets, on the CPU."""

    def __init__(self, explainer: Explainer, game: Game, source: Tensor) -> None:
        self.game, self.config, self.gate = game, explainer.config, explainer.gate.kernel
        indptr, sources, _ = game.graph.adj_tensors("csc")
        self.indptr, self.sources = indptr.numpy(), sources.numpy().astype(np.int32)
        self.scale = walk_scale(game.graph).numpy()
        self.slots = cast(EdgePlayers, game.player_set).player_of_in_edges.numpy().astype(np.int32)
        self.vectors = _edge_vectors(explainer, game, source)

    @staticmethod
    def supports(explainer: Explainer, game: Game) -> bool:
        return can_walk(explainer, game)

    def _walk(self, targets: Tensor, t: Tensor, *result: np.ndarray) -> None:
        run_in_threads(
            _walk_all, len(targets), self.indptr, self.sources, self.slots, self.scale, self.vectors,
            by_term(t, self.config.terms), targets.numpy(), self.gate, self.config.reach,
            max(self.game.num_players, 1), *result,
        )  # fmt: skip

    def scores(self, targets: Tensor, t: Tensor) -> tuple[Players, Tensor]:
        nothing = np.empty((0, 0), np.int64), np.empty((0, 0), np.float32), np.empty((0, 0), np.int8)
        counts, no_ends = np.zeros(len(targets), np.int64), np.empty(0, np.int64)
        no_players = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
        self._walk(targets, t, *nothing, counts, no_ends, *no_players)
        ends = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
        player, hop = np.empty(ends[-1], np.int64), np.empty(ends[-1], np.int64)
        score = np.empty(ends[-1], np.float32)
        self._walk(targets, t, *nothing, counts, ends, player, hop, score)
        lists = [torch.from_numpy(values) for values in (counts, player, hop)]
        players = Players(targets, lists[0], lists[1], lists[2], self.game.num_players, self.game.player_set.name)
        return players, torch.from_numpy(score)

    def top(self, targets: Tensor, t: Tensor, top: int) -> TopLists:
        lists = empty_lists(len(targets), top)
        counts, no_ends = np.zeros(len(targets), np.int64), np.empty(0, np.int64)
        no_players = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
        self._walk(targets, t, *lists, counts, no_ends, *no_players)
        return lists


def _edge_vectors(explainer: Explainer, game: Game, source: Tensor) -> np.ndarray:
    """Return q of every incoming edge, node after node, (terms, num_edges, dim)."""
    config, decoder, nodes = (
        explainer.config,
        cast(EdgeDecoder, explainer.decoder),
        torch.arange(game.graph.num_nodes()),
    )
    head, tail = in_edges(game.graph, nodes)
    scale = walk_scale(game.graph).unsqueeze(1)
    vectors = np.empty((config.terms, len(head), config.dim), np.float32)
    edge_ids = game.graph.edata[EDGE_ID][in_edge_ids(game.graph, nodes)] if config.edge_columns else None
    with torch.no_grad():
        for rows in torch.arange(len(head)).split(MAX_EDGES_AT_ONCE):
            x = None if edge_ids is None else edge_inputs(game, edge_ids[rows])
            q = decoder.edge_vectors(explainer, source, tail[rows], head[rows], scale[head[rows]], x)
            vectors[:, rows] = by_term(q, config.terms)
    return vectors


@kernel()
def _walk_all(  # type: ignore[no-untyped-def]
    worker, workers, indptr, sources, slots, scale, q, t, targets, gate, reach, players,
    best, best_score, best_hop, counts, ends, player, hop, score,
):  # fmt: skip
    """Write the best players of each target to `best` if it has room.

    `counts` gets the number of players. If there are `ends`, `player` gets all players from index ends[row] on.
    """
    nodes, terms = len(indptr) - 1, len(q)
    weight = np.zeros((terms, nodes), np.float32)
    distance, near = np.full(nodes, -1, np.int8), np.empty(nodes, np.int32)
    total, far, seen = np.zeros(players, np.float32), np.zeros(players, np.int8), np.empty(players, np.int32)
    for row in range(worker, len(targets), workers):
        count = _near(indptr, sources, scale, targets[row], gate, reach, weight, distance, near)
        found = 0
        for place in range(count):
            node = near[place]
            for edge in range(indptr[node], indptr[node + 1]):
                mine = slots[edge]
                if mine < 0:
                    continue
                if far[mine] == 0:
                    far[mine], total[mine], seen[found] = distance[node] + 1, 0, mine
                    found += 1
                for term in range(terms):
                    if weight[term, node] != 0:
                        total[mine] += weight[term, node] * dot(q[term, edge], t[term, row])
        for place in range(count):
            node = near[place]
            distance[node] = -1
            for term in range(terms):
                weight[term, node] = 0
        counts[row] = found
        if len(ends):
            place = ends[row]
            seen[:found].sort()
            for mine in seen[:found]:
                player[place], hop[place], score[place] = mine, far[mine], total[mine]
                place += 1
        kept = 0
        for place in range(found):
            mine = seen[place]
            if len(best):
                kept = insert(total[mine], mine, far[mine], kept, best[row], best_score[row], best_hop[row])
            far[mine] = 0


@inner()
def _near(indptr, sources, scale, target, gate, reach, weight, distance, near):  # type: ignore[no-untyped-def]
    """List the nodes at most `reach` hops away, nearest first, and write the gate weights of each to `weight`."""
    near[0], distance[target], weight[0, target], count = target, 0, 1, 1
    begin = 0
    for step in range(1, reach + 1):
        stop = count
        first = 0 if gate == BY_WALK else begin  # only walks may stay or turn back
        for place in range(first, stop):
            node = near[place]
            passed = weight[step - 1, node] * scale[node] if gate == BY_WALK else np.float32(1)
            for edge in range(indptr[node], indptr[node + 1]):
                other = sources[edge]
                if distance[other] < 0:
                    distance[other], near[count] = step, other
                    count += 1
                    if gate != BY_WALK:
                        weight[step if gate == BY_HOP else 0, other] = 1
                if gate == BY_WALK:
                    weight[step, other] += passed * scale[other]
            if gate == BY_WALK:
                weight[step, node] += passed * scale[node]
        begin = stop
    return count

"""Compiled walks that score all nodes near many targets, or the best ones.

A walk starts at one target and adds w_d <p, t> at every node it meets. A test compares the scores with those of
`decoders/nodes.py`, which work on any device.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.numba_threads import inner, kernel, run_in_threads
from dgl_lara.explainer.gate import BY_HOP, BY_WALK, ONE_TERM
from dgl_lara.game.player_index import Players
from dgl_lara.game.walks import scale_of
from dgl_lara.graphs.khop_kernel import count
from dgl_lara.inference.kernels.pairs import PairKernel, TopLists, empty_lists

if TYPE_CHECKING:
    from dgl_lara.explainer.network import Explainer
    from dgl_lara.game.game import Game

TINY = np.finfo(np.float32).tiny


class WalkKernel(PairKernel):
    """Scores of nodes by compiled walks that start at the targets, on the CPU."""

    def __init__(self, explainer: Explainer, game: Game, source: Tensor | np.ndarray) -> None:
        """Lay out what all targets share.

        Args:
            explainer: The trained g.
            game: Game whose players are nodes.
            source: p of all nodes. An array is in the layout of `by_term` already.
        """
        self.game, self.config, self.hops, self.num_nodes = game, explainer.config, game.hops, game.graph.num_nodes()
        indptr, sources, _ = game.graph.adj_tensors("csc")
        self.indptr, self.sources = indptr.numpy(), sources.numpy().astype(np.int32)
        self.scale = scale_of(game.in_degrees).numpy()
        self.source = source if isinstance(source, np.ndarray) else by_term(source, self.config.terms)
        self.gate = explainer.gate.kernel

    @staticmethod
    def supports(explainer: Explainer, game: Game) -> bool:
        return can_walk(explainer, game)

    @cached_property
    def length(self) -> np.ndarray:
        """Return the norm of p in the last term, (num_nodes,)."""
        return np.linalg.norm(self.source[-1], axis=1)

    def scores(self, targets: Tensor, t: Tensor) -> tuple[Players, Tensor]:
        counts = np.empty(len(targets), np.int64)
        run_in_threads(count, len(targets), self.indptr, self.sources, targets.numpy(), self.hops, counts)
        ends = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
        player, hop = np.empty(ends[-1], np.int64), np.empty(ends[-1], np.int64)
        score = np.empty(ends[-1], np.float32)
        run_in_threads(
            _score, len(targets), self.indptr, self.sources, self.scale, self.source, by_term(t, self.config.terms),
            targets.numpy(), self.gate, self.hops, ends, player, hop, score,
        )  # fmt: skip
        lists = [torch.from_numpy(values) for values in (counts, player, hop)]
        return Players(targets, lists[0], lists[1], lists[2], self.num_nodes), torch.from_numpy(score)

    def top(self, targets: Tensor, t: Tensor, top: int) -> TopLists:
        player, score, hop = empty_lists(len(targets), top)
        run_in_threads(
            _keep_top, len(targets), self.indptr, self.sources, self.scale, self.source, self.length,
            by_term(t, self.config.terms), targets.numpy(), self.gate, self.hops, player, score, hop,
        )  # fmt: skip
        return player, score, hop


def can_walk(explainer: Explainer, game: Game) -> bool:
    """Return whether compiled walks from the targets meet all players, with weights that they can compute."""
    known = explainer.gate.kernel is not None and game.player_set.walk_kernel is not None
    return known and game.features.device.type == "cpu"


def by_term(rows: Tensor, terms: int) -> np.ndarray:
    """Return rows of embeddings as (terms, rows, dim), so that a dot product reads one cache line."""
    return rows.detach().view(len(rows), terms, rows.shape[1] // terms).transpose(0, 1).contiguous().numpy()


@kernel()
def _score(worker, workers, indptr, sources, scale, p, t, targets, gate, hops, ends, player, hop, score):  # type: ignore[no-untyped-def]
    """Write players in rising order, with distance and score, from index ends[row] on."""
    total, weight, distance, here, there, seen, now = scratch(len(indptr) - 1)
    term = 0 if gate == ONE_TERM else hops
    for row in range(worker, len(targets), workers):
        mine = t[:, row]
        count, reached = walk(
            indptr, sources, scale, p, mine, targets[row], gate, hops,
            total, weight, distance, here, there, seen, now,
        )  # fmt: skip
        for place in range(count):
            node = seen[place]
            if gate == BY_WALK and hops > 0:
                total[node] += weight[node] * scale[node] * dot(p[term, node], mine[term])
            weight[node] = 0
        for place in range(reached):
            node = there[place]
            if weight[node] == 0:
                continue  # a near player
            carried = weight[node] * scale[node] if gate == BY_WALK else np.float32(1)
            total[node] = carried * dot(p[term, node], mine[term])
            weight[node], distance[node], seen[count] = 0, hops, node
            count += 1
        place = ends[row]
        seen[:count].sort()
        for node in seen[:count]:
            player[place], hop[place], score[place] = node, distance[node], total[node]
            distance[node] = -1
            place += 1


@kernel()
def _keep_top(worker, workers, indptr, sources, scale, p, length, t, targets, gate, hops, player, score, hop):  # type: ignore[no-untyped-def]
    """Find the best players of each target."""
    total, weight, distance, here, there, seen, now = scratch(len(indptr) - 1)
    for row in range(worker, len(targets), workers):
        count, reached = walk(
            indptr, sources, scale, p, t[:, row], targets[row], gate, hops,
            total, weight, distance, here, there, seen, now,
        )  # fmt: skip
        _keep_best(
            p, length, scale, t[:, row], gate, hops,
            total, weight, distance, there, reached, seen, count, player[row], score[row], hop[row],
        )  # fmt: skip


@inner()
def _keep_best(  # type: ignore[no-untyped-def]
    p, length, scale, t, gate, hops, total, weight, distance, there, reached, seen, count, player, score, hop
):
    """Take the last step and keep the best players.

    Near players come first, then the players K hops away. If a score cannot reach the list (Cauchy-Schwarz, with a
    margin for rounding), the embedding of its player is not read. `weight` and `distance` are reset afterwards.
    """
    term = 0 if gate == ONE_TERM else hops
    kept, top = 0, len(player)
    for place in range(count):
        node = seen[place]
        if gate == BY_WALK and hops > 0:
            total[node] += weight[node] * scale[node] * dot(p[term, node], t[term])
        weight[node] = 0
        kept = insert(total[node], node, distance[node], kept, player, score, hop)
        distance[node] = -1
    reach = np.sqrt(dot(t[term], t[term])) * np.float32(1.0001)
    for place in range(reached):
        node = there[place]
        carried = weight[node]
        if carried == 0:
            continue  # a near player
        weight[node] = 0
        carried = carried * scale[node] if gate == BY_WALK else np.float32(1)
        if kept < top or carried * length[node] * reach >= score[top - 1]:
            kept = insert(carried * dot(p[term, node], t[term]), node, hops, kept, player, score, hop)


@inner()
def scratch(nodes):  # type: ignore[no-untyped-def]
    """Return the buffers of one worker, which are total, weight, distance, here, there, seen and now of `walk`."""
    total, weight, now = np.zeros(nodes, np.float32), np.zeros(nodes, np.float32), np.empty(nodes, np.float32)
    here, there, seen = np.empty(nodes, np.int32), np.empty(nodes + 1, np.int32), np.empty(nodes, np.int32)
    return total, weight, np.full(nodes, -1, np.int8), here, there, seen, now


@inner()
def walk(  # type: ignore[no-untyped-def]
    indptr, sources, scale, p, t, target, gate, hops, total, weight, distance, here, there, seen, now
):
    """Walk from one target.

    `total` holds the scores of all players nearer than K hops, which are listed in `seen`. `there` lists the nodes that
    the last step reached, with their `weight`. Return the lengths of both lists.
    """
    here[0], now[0], seen[0], count, size = target, 1, target, 1, 1
    distance[target] = 0
    total[target] = dot(p[0, target], t[0])
    reached = 0
    for step in range(1, hops + 1):
        reached = 0
        for place in range(size):
            node = here[place]
            passed = max(now[place] * scale[node], TINY)  # a weight of 0 marks nodes that are not reached
            for edge in range(indptr[node], indptr[node + 1]):
                other = sources[edge]
                there[reached] = other
                reached += weight[other] == 0  # no branch: the place is written again if the node was there already
                weight[other] += passed
            there[reached] = node  # the self-loop
            reached += weight[node] == 0
            weight[node] += passed
        if step == hops:
            break
        size = 0
        for place in range(reached):
            other = there[place]
            carried, weight[other] = weight[other] * scale[other], 0
            new = distance[other] < 0
            if new:
                distance[other], total[other], seen[count] = step, 0, other
                count += 1
            if gate == BY_WALK:
                total[other] += carried * dot(p[step, other], t[step])
            elif new:
                total[other] = dot(p[step if gate == BY_HOP else 0, other], t[step if gate == BY_HOP else 0])
            if gate == BY_WALK or new:
                here[size], now[size] = other, carried
                size += 1
    return count, reached


@inner(fastmath=True)
def dot(a, b):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for place in range(len(a)):
        total += a[place] * b[place]
    return total


@inner()
def insert(value, node, distance, kept, player, score, hop):  # type: ignore[no-untyped-def]
    """Insert a player into a short sorted list and return its length. Equal scores are sorted by node."""
    top = len(player)
    if kept == top and (value < score[top - 1] or (value == score[top - 1] and node > player[top - 1])):
        return kept
    slot = kept if kept < top else top - 1
    while slot > 0 and (score[slot - 1] < value or (score[slot - 1] == value and player[slot - 1] > node)):
        score[slot], player[slot], hop[slot] = score[slot - 1], player[slot - 1], hop[slot - 1]
        slot -= 1
    score[slot], player[slot], hop[slot] = value, node, distance
    return min(kept + 1, top)

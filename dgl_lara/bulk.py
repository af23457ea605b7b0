"""Explaining many targets, keeping only the top players of each.

On the CPU a compiled kernel walks outwards from one target at a time, adds w_d <p, t> for every node it meets and
keeps the best; no list of (target, player) pairs is ever built. Elsewhere (CUDA, graph tasks) the same numbers come
from `inference.explain`, a chunk of targets at a time. A test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import torch
from torch import Tensor

from dgl_lara.choices import GATES
from dgl_lara.explainer import Explainer
from dgl_lara.inference import MEMORY, Embeddings, check_targets, chunks, explain
from dgl_lara.neighborhood import walk_scale
from dgl_lara.value import Game

TINY = np.finfo(np.float32).tiny
NONE, HOP, WALK = (GATES.index(gate) for gate in ("none", "hop", "walk"))


@dataclass(frozen=True, eq=False)
class TopPlayers:
    """The best players of each target, best first; rows shorter than `top` are filled with player -1."""

    targets: np.ndarray  # (num_targets,)
    explained_class: np.ndarray  # (num_targets,)
    player: np.ndarray  # (num_targets, top) int64
    score: np.ndarray  # (num_targets, top) float32
    hop: np.ndarray  # (num_targets, top) int8


class BulkExplainer:
    """Holds what all targets share, in the layout the kernel wants; made once."""

    def __init__(self, explainer: Explainer, game: Game, embeddings: Embeddings, memory: int = MEMORY) -> None:
        self.explainer, self.game, self.embeddings, self.memory = explainer, game, embeddings, memory
        self.compiled = game.task == "node" and game.features.device.type == "cpu"
        if self.compiled:
            indptr, sources, _ = game.graph.adj_tensors("csc")
            self.indptr, self.sources = indptr.numpy(), sources.numpy().astype(np.int32)
            self.scale = walk_scale(game.graph).numpy()
            self.source = self._by_term(embeddings.source)
            self.length = np.linalg.norm(self.source[-1], axis=1)  # of p in the last term

    def _by_term(self, rows: Tensor) -> np.ndarray:
        """(terms, rows, dim): all nodes of one distance side by side, so that a dot product reads one cache line."""
        config = self.explainer.config
        split = rows.detach().view(len(rows), config.terms, config.dim)
        return split.transpose(0, 1).contiguous().numpy()

    def top(self, targets: Tensor, top: int) -> TopPlayers:
        check_targets(targets, self.game)
        classes = self.game.explained_class[targets]
        if not self.compiled:
            return self._top_by_pairs(targets, classes, top)
        with torch.no_grad():
            target = self._by_term(self.explainer.for_class(self.embeddings.target[targets], classes))
        shape = (len(targets), top)
        player, score, hop = np.full(shape, -1, np.int64), np.zeros(shape, np.float32), np.zeros(shape, np.int8)
        gate = GATES.index(self.explainer.config.gate)
        threads = torch.get_num_threads()
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        _walk_all(
            self.indptr, self.sources, self.scale, self.source, self.length, target, targets.numpy(), gate,
            self.game.hops, min(numba.get_num_threads(), len(targets)), player, score, hop,
        )  # fmt: skip
        torch.set_num_threads(threads)  # numba's first call sets OpenMP to all cores, for everybody
        return TopPlayers(targets.numpy(), classes.numpy(), player, score, hop)

    def _top_by_pairs(self, targets: Tensor, classes: Tensor, top: int) -> TopPlayers:
        shape = (len(targets), top)
        player, score, hop = np.full(shape, -1, np.int64), np.zeros(shape, np.float32), np.zeros(shape, np.int8)
        for rows in chunks(self.game, targets, self.memory):
            result = explain(self.explainer, self.game, self.embeddings, targets[rows], memory=self.memory)
            rank, players = result.rank(), result.players
            best = rank < top
            place = ((players.row[best] + rows.start).cpu().numpy(), rank[best].cpu().numpy())
            player[place] = players.player[best].cpu().numpy()
            score[place] = result.scores[best].cpu().numpy()
            hop[place] = players.hop[best].cpu().numpy()
        return TopPlayers(targets.cpu().numpy(), classes.cpu().numpy(), player, score, hop)


@numba.njit(parallel=True, cache=True, nogil=True)
def _walk_all(indptr, sources, scale, p, length, t, targets, gate, hops, workers, player, score, hop):  # type: ignore[no-untyped-def]
    """Each worker takes every `workers`-th target and has scratch rows of its own."""
    for worker in numba.prange(workers):
        nodes = len(indptr) - 1
        total, weight = np.zeros(nodes, np.float32), np.zeros(nodes, np.float32)
        distance = np.full(nodes, -1, np.int8)
        here, there, seen = np.empty(nodes, np.int32), np.empty(nodes + 1, np.int32), np.empty(nodes, np.int32)
        now = np.empty(nodes, np.float32)
        for row in range(worker, len(targets), workers):
            count, reached = _walk(
                indptr, sources, scale, p, t[:, row], targets[row], gate, hops,
                total, weight, distance, here, there, seen, now,
            )  # fmt: skip
            _keep_best(
                p, length, scale, t[:, row], gate, hops,
                total, weight, distance, there, reached, seen, count, player[row], score[row], hop[row],
            )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _walk(  # type: ignore[no-untyped-def]
    indptr, sources, scale, p, t, target, gate, hops, total, weight, distance, here, there, seen, now
):
    """Leaves the scores of all players nearer than K hops in `total` (the first number returned says how many are
    listed in `seen`), and what the last step reached in `there` with its `weight` (the second number)."""
    here[0], now[0], seen[0], count, size = target, 1, target, 1, 1
    distance[target] = 0
    total[target] = _dot(p[0, target], t[0])
    reached = 0
    for step in range(1, hops + 1):
        reached = 0
        for place in range(size):
            node = here[place]
            passed = max(now[place] * scale[node], TINY)  # a weight of 0 means: not reached
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
            if gate == WALK:
                total[other] += carried * _dot(p[step, other], t[step])
            elif new:
                total[other] = _dot(p[step if gate == HOP else 0, other], t[step if gate == HOP else 0])
            if gate == WALK or new:
                here[size], now[size] = other, carried
                size += 1
    return count, reached


@numba.njit(cache=True, nogil=True)
def _keep_best(  # type: ignore[no-untyped-def]
    p, length, scale, t, gate, hops, total, weight, distance, there, reached, seen, count, player, score, hop
):
    """The last step and the choice of the best in one: near players first, then the many that are K hops away.

    Of those, a player whose score cannot reach the list (Cauchy-Schwarz, with a margin for rounding) is passed over
    without reading its embedding. Leaves `weight` and `distance` as they were before the target came.
    """
    term = 0 if gate == NONE else hops
    kept, top = 0, len(player)
    for place in range(count):
        node = seen[place]
        if gate == WALK and hops > 0:
            total[node] += weight[node] * scale[node] * _dot(p[term, node], t[term])
        weight[node] = 0
        kept = _insert(total[node], node, distance[node], kept, player, score, hop)
        distance[node] = -1
    reach = np.sqrt(_dot(t[term], t[term])) * np.float32(1.0001)
    for place in range(reached):
        node = there[place]
        carried = weight[node]
        if carried == 0:
            continue  # a near player
        weight[node] = 0
        carried = carried * scale[node] if gate == WALK else np.float32(1)
        if kept < top or carried * length[node] * reach >= score[top - 1]:
            kept = _insert(carried * _dot(p[term, node], t[term]), node, hops, kept, player, score, hop)


@numba.njit(cache=True, nogil=True)
def _insert(value, node, distance, kept, player, score, hop):  # type: ignore[no-untyped-def]
    """Into a short sorted list; of equal scores the lower node comes first. Returns the length of the list."""
    top = len(player)
    if kept == top and (value < score[top - 1] or (value == score[top - 1] and node > player[top - 1])):
        return kept
    slot = kept if kept < top else top - 1
    while slot > 0 and (score[slot - 1] < value or (score[slot - 1] == value and player[slot - 1] > node)):
        score[slot], player[slot], hop[slot] = score[slot - 1], player[slot - 1], hop[slot - 1]
        slot -= 1
    score[slot], player[slot], hop[slot] = value, node, distance
    return min(kept + 1, top)


@numba.njit(cache=True, nogil=True, fastmath=True)
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for place in range(len(a)):
        total += a[place] * b[place]
    return total

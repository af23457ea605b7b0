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
from dgl_lara.inference import Embeddings, check_targets, chunks, explain
from dgl_lara.neighborhood import walk_scale
from dgl_lara.value import Game

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

    def __init__(self, explainer: Explainer, game: Game, embeddings: Embeddings) -> None:
        self.explainer, self.game, self.embeddings = explainer, game, embeddings
        self.compiled = game.task == "node" and game.features.device.type == "cpu"
        if self.compiled:
            indptr, sources, _ = game.graph.adj_tensors("csc")
            self.indptr, self.sources = indptr.numpy(), sources.numpy().astype(np.int32)
            self.scale = walk_scale(game.graph).numpy()
            self.source = self._by_term(embeddings.source)

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
        _walk_all(
            self.indptr, self.sources, self.scale, self.source, target, targets.numpy(), gate, self.game.hops,
            numba.get_num_threads(), player, score, hop,
        )  # fmt: skip
        return TopPlayers(targets.numpy(), classes.numpy(), player, score, hop)

    def _top_by_pairs(self, targets: Tensor, classes: Tensor, top: int) -> TopPlayers:
        shape = (len(targets), top)
        player, score, hop = np.full(shape, -1, np.int64), np.zeros(shape, np.float32), np.zeros(shape, np.int8)
        for rows in chunks(self.game, targets):
            result = explain(self.explainer, self.game, self.embeddings, targets[rows])
            rank, players = result.rank(), result.players
            best = rank < top
            place = ((players.row[best] + rows.start).cpu().numpy(), rank[best].cpu().numpy())
            player[place] = players.player[best].cpu().numpy()
            score[place] = result.scores[best].cpu().numpy()
            hop[place] = players.hop[best].cpu().numpy()
        return TopPlayers(targets.cpu().numpy(), classes.cpu().numpy(), player, score, hop)


@numba.njit(parallel=True, cache=True, nogil=True)
def _walk_all(indptr, sources, scale, p, t, targets, gate, hops, workers, player, score, hop):  # type: ignore[no-untyped-def]
    """Each worker takes every `workers`-th target and has scratch rows of its own."""
    for worker in numba.prange(workers):
        nodes = len(indptr) - 1
        total = np.zeros(nodes, np.float32)
        distance = np.full(nodes, -1, np.int8)
        now, later = np.zeros(nodes, np.float32), np.zeros(nodes, np.float32)
        here, there, seen = np.empty(nodes, np.int32), np.empty(nodes, np.int32), np.empty(nodes, np.int32)
        for row in range(worker, len(targets), workers):
            count = _walk_one(
                indptr, sources, scale, p, t[:, row], targets[row], gate, hops,
                total, distance, now, later, here, there, seen,
            )  # fmt: skip
            _keep_best(total, distance, seen, count, player[row], score[row], hop[row])
            for place in range(count):
                distance[seen[place]] = -1


@numba.njit(cache=True, nogil=True)
def _walk_one(  # type: ignore[no-untyped-def]
    indptr, sources, scale, p, t, target, gate, hops, total, distance, now, later, here, there, seen
):
    """Scores of all players of one target in `total`; returns how many there are (listed in `seen`)."""
    here[0], seen[0], count, size = target, target, 1, 1
    now[target], distance[target] = 1.0, 0
    total[target] = _dot(p[0, target], t[0])
    for step in range(1, hops + 1):
        term = 0 if gate == NONE else step
        reached = 0
        for place in range(size):
            node = here[place]
            passed = now[node] * scale[node]
            for edge in range(indptr[node], indptr[node + 1] + 1):
                other = sources[edge] if edge < indptr[node + 1] else node  # last: the self-loop
                if gate == WALK:
                    if later[other] == 0:
                        there[reached] = other
                        reached += 1
                    later[other] += passed * scale[other]
                elif distance[other] < 0:
                    there[reached] = other
                    reached += 1
                    distance[other] = step
                    seen[count] = other
                    count += 1
                    total[other] = _dot(p[term, other], t[term])
            now[node] = 0
        if gate == WALK:
            for place in range(reached):
                other = there[place]
                if distance[other] < 0:
                    distance[other] = step
                    total[other] = 0
                    seen[count] = other
                    count += 1
                total[other] += later[other] * _dot(p[term, other], t[term])
                now[other], later[other] = later[other], 0
        here, there, size = there, here, reached
    for place in range(size):
        now[here[place]] = 0
    return count


@numba.njit(cache=True, nogil=True, fastmath=True)
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for place in range(len(a)):
        total += a[place] * b[place]
    return total


@numba.njit(cache=True, nogil=True)
def _keep_best(total, distance, seen, count, player, score, hop):  # type: ignore[no-untyped-def]
    """Insertion into a short sorted list; of equal scores the lower node comes first."""
    top, kept = len(player), 0
    for place in range(count):
        node = seen[place]
        value = total[node]
        if kept == top and (value < score[top - 1] or (value == score[top - 1] and node > player[top - 1])):
            continue
        slot = kept if kept < top else top - 1
        while slot > 0 and (score[slot - 1] < value or (score[slot - 1] == value and player[slot - 1] > node)):
            score[slot], player[slot], hop[slot] = score[slot - 1], player[slot - 1], hop[slot - 1]
            slot -= 1
        score[slot], player[slot], hop[slot] = value, node, distance[node]
        kept = min(kept + 1, top)

"""The compiled walk: on the CPU, scores of all players of many targets without lists of walks in between.

Outwards from one target at a time, w_d <p, t> is added for every node that is met. `top_players.py` keeps the best of
them; here all are kept. The same numbers come from `forms/nodes.py` on any device; a test holds the two together.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.numba_threads import inner, kernel, run_in_threads
from dgl_lara.explainer.gate import BY_HOP, BY_WALK, ONE_TERM
from dgl_lara.explainer.network import Explainer
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players
from dgl_lara.game.walks import scale_of
from dgl_lara.graphs.khop_kernel import count

TINY = np.finfo(np.float32).tiny


class WalkScorer:
    """What all targets share, in the layout the kernels want; made once."""

    def __init__(self, explainer: Explainer, game: Game, source: Tensor | np.ndarray) -> None:
        """source: p of all nodes; an array is p by term already (processes that share it on disk keep it so)."""
        self.config, self.hops, self.num_nodes = explainer.config, game.hops, game.graph.num_nodes()
        indptr, sources, _ = game.graph.adj_tensors("csc")
        self.indptr, self.sources = indptr.numpy(), sources.numpy().astype(np.int32)
        self.scale = scale_of(game.in_degrees).numpy()
        self.source = source if isinstance(source, np.ndarray) else self.by_term(source)
        self.gate = explainer.gate.kernel

    def by_term(self, rows: Tensor) -> np.ndarray:
        """(terms, rows, dim): all nodes of one distance side by side, so that a dot product reads one cache line."""
        split = rows.detach().view(len(rows), self.config.terms, self.config.dim)
        return split.transpose(0, 1).contiguous().numpy()

    def scores(self, targets: Tensor, t: Tensor) -> tuple[Players, Tensor]:
        """The players of the targets and their scores. t: one row a target, already turned to its class."""
        counts = np.empty(len(targets), np.int64)
        run_in_threads(count, len(targets), self.indptr, self.sources, targets.numpy(), self.hops, counts)
        ends = np.concatenate([np.zeros(1, np.int64), counts.cumsum()])
        player, hop = np.empty(ends[-1], np.int64), np.empty(ends[-1], np.int64)
        score = np.empty(ends[-1], np.float32)
        run_in_threads(
            _score, len(targets), self.indptr, self.sources, self.scale, self.source, self.by_term(t), targets.numpy(),
            self.gate, self.hops, ends, player, hop, score,
        )  # fmt: skip
        found = [torch.from_numpy(values) for values in (counts, player, hop)]
        return Players(targets, found[0], found[1], found[2], self.num_nodes), torch.from_numpy(score)


@kernel()
def _score(worker, workers, indptr, sources, scale, p, t, targets, gate, hops, ends, player, hop, score):  # type: ignore[no-untyped-def]
    """Players in rising order, their distance and score, from place ends[row] on."""
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


@inner()
def scratch(nodes):  # type: ignore[no-untyped-def]
    """What one worker's walks write on: total, weight, distance, here, there, seen, now (see `walk`)."""
    total, weight, now = np.zeros(nodes, np.float32), np.zeros(nodes, np.float32), np.empty(nodes, np.float32)
    here, there, seen = np.empty(nodes, np.int32), np.empty(nodes + 1, np.int32), np.empty(nodes, np.int32)
    return total, weight, np.full(nodes, -1, np.int8), here, there, seen, now


@inner()
def walk(  # type: ignore[no-untyped-def]
    indptr, sources, scale, p, t, target, gate, hops, total, weight, distance, here, there, seen, now
):
    """Leaves the scores of all players nearer than K hops in `total` (the first number returned says how many are
    listed in `seen`), and what the last step reached in `there` with its `weight` (the second number)."""
    here[0], now[0], seen[0], count, size = target, 1, target, 1, 1
    distance[target] = 0
    total[target] = dot(p[0, target], t[0])
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

"""Explaining many targets, keeping only the top players of each.

On the CPU the compiled walk (`compiled_scores.py`) meets one player after the other and the best are kept; no list of
(target, player) pairs is ever built. Elsewhere (CUDA, graph tasks, other gates) the same numbers come from
`scores.explain`, a chunk of targets at a time. A test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from dgl_lara._util.numba_threads import inner, kernel, run_in_threads
from dgl_lara.errors import InputError
from dgl_lara.explainer.decoders.features import FeatureDecoder
from dgl_lara.explainer.gate import BY_WALK, ONE_TERM
from dgl_lara.explainer.network import Explainer
from dgl_lara.explanation import Explanations
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.game import Game
from dgl_lara.game.partitioned_game import PartitionedGame
from dgl_lara.inference.kernels.walk import WalkScorer, dot, insert, scratch, walk
from dgl_lara.inference.scorer import Embeddings, can_compile, explain_embedded

TABLE_ROWS = 50_000  # targets whose scores of all columns are held at a time
BYTES_A_KEPT = 13  # of one player: its number, score and distance


@dataclass(frozen=True, eq=False)
class TopPlayers:
    """The best players of each target, best first; rows shorter than `top` are filled with player -1."""

    targets: np.ndarray  # (num_targets,)
    explained_class: np.ndarray  # (num_targets,)
    player: np.ndarray  # (num_targets, top) int64
    score: np.ndarray  # (num_targets, top) float32
    hop: np.ndarray  # (num_targets, top) int8
    kind: str = "nodes"
    about: dict[str, np.ndarray] = field(default_factory=dict)  # (num_targets, top) each: the ends of an edge


def most_players(game: Game | PartitionedGame, targets: Tensor) -> int:
    """A bound on the players of any of these targets; of a graph in parts none is known without looking."""
    if isinstance(game, PartitionedGame):
        return game.num_players
    return max(1, int(game.cost_bound[targets].max().clamp(max=game.num_players)))


class BulkExplainer:
    """Holds what all targets share, in the layout the kernel wants; made once."""

    def __init__(self, explainer: Explainer, game: Game, embeddings: Embeddings) -> None:
        self.explainer, self.game, self.embeddings = explainer, game, embeddings
        self.compiled = can_compile(explainer, game) and game.task.num_endpoints == 1
        if self.compiled and game.player_set.name == "edges":
            from dgl_lara.inference.kernels.edge_walk import EdgeWalkScorer

            self.edges = EdgeWalkScorer(explainer, game, embeddings.source)
        elif self.compiled:
            self.walks = WalkScorer(explainer, game, embeddings.source)
            self.length = np.linalg.norm(self.walks.source[-1], axis=1)  # of p in the last term

    def top(self, targets: Tensor, top: int) -> TopPlayers:
        self.game.check_targets(targets)
        if top < 1:
            raise InputError(f"at least one player must be kept (got {top}).")
        top = max(1, min(top, self.game.num_players))
        self.game.budget.check(
            BYTES_A_KEPT * len(targets) * top, f"the best {top:,} players of {len(targets):,} targets"
        )
        return self._described(self._best(targets, self.game.explained_class[targets], top))

    def explain(self, targets: Tensor) -> Explanations:
        """All players of each."""
        return explain_embedded(self.explainer, self.game, self.embeddings, targets)

    def _described(self, best: TopPlayers) -> TopPlayers:
        """With the kind of the players; edges are known by their two nodes."""
        kind = self.game.player_set
        if not kind.count:
            return replace(best, kind=kind.name)
        ends = kind.endpoints(torch.from_numpy(best.player.clip(0)).flatten().to(self.game.features.device))
        nodes = [end.view(best.player.shape).cpu().numpy() for end in ends]
        return replace(best, kind=kind.name, about=dict(zip(("u", "v"), nodes, strict=False)))

    def _best(self, targets: Tensor, classes: Tensor, top: int) -> TopPlayers:
        kind = self.game.player_set
        if kind.num_table_columns:
            return self._top_columns(targets, classes, top)
        if not self.compiled:
            return self._top_by_pairs(targets, classes, top)
        with torch.no_grad():
            t = self.explainer.for_class(self.embeddings.target[targets], ClassQuery(classes))
        if isinstance(kind, EdgePlayers):
            return TopPlayers(targets.numpy(), classes.numpy(), *self.edges.top(targets, t, top))
        return TopPlayers(targets.numpy(), classes.numpy(), *best_players(self.walks, self.length, targets, t, top))

    def _top_columns(self, targets: Tensor, classes: Tensor, top: int) -> TopPlayers:
        """Every column plays for every target: a table in the place of a list."""
        form = self.explainer.form
        assert isinstance(form, FeatureDecoder)
        found = []
        with torch.no_grad():
            for rows in torch.arange(len(targets)).split(TABLE_ROWS):
                some = targets[rows.to(targets.device)]
                t = self.explainer.for_class(self.embeddings.target[some], ClassQuery(classes[rows.to(targets.device)]))
                table = form.table(self.explainer, self.game, self.embeddings.source, t, some)
                found.append(table.sort(dim=1, descending=True, stable=True))
        score = torch.cat([one.values[:, :top] for one in found]).cpu().numpy()
        player = torch.cat([one.indices[:, :top] for one in found]).cpu().numpy()
        return TopPlayers(targets.cpu().numpy(), classes.cpu().numpy(), player, score, np.zeros(player.shape, np.int8))

    def _top_by_pairs(self, targets: Tensor, classes: Tensor, top: int) -> TopPlayers:
        shape = (len(targets), top)
        player, score, hop = np.full(shape, -1, np.int64), np.zeros(shape, np.float32), np.zeros(shape, np.int8)
        for rows in self.game.chunks(targets):
            result = explain_embedded(self.explainer, self.game, self.embeddings, targets[rows])
            rank, players = result.rank(), result.players
            best = rank < top
            place = ((players.row[best] + rows.start).cpu().numpy(), rank[best].cpu().numpy())
            player[place] = players.player[best].cpu().numpy()
            score[place] = result.scores[best].cpu().numpy()
            hop[place] = players.hop[best].cpu().numpy()
        return TopPlayers(targets.cpu().numpy(), classes.cpu().numpy(), player, score, hop)


def best_players(
    walks: WalkScorer, length: np.ndarray, targets: Tensor, t: Tensor, top: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(players, scores, distances) by the compiled walk; `length`: of p in the last term."""
    shape = (len(targets), top)
    player, score, hop = np.full(shape, -1, np.int64), np.zeros(shape, np.float32), np.zeros(shape, np.int8)
    run_in_threads(
        _walk_all, len(targets), walks.indptr, walks.sources, walks.scale, walks.source, length, walks.by_term(t),
        targets.numpy(), walks.gate, walks.hops, player, score, hop,
    )  # fmt: skip
    return player, score, hop


@kernel()
def _walk_all(worker, workers, indptr, sources, scale, p, length, t, targets, gate, hops, player, score, hop):  # type: ignore[no-untyped-def]
    """The best players of each target; every worker has scratch rows of its own."""
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
    """The last step and the choice of the best in one: near players first, then the many that are K hops away.

    Of those, a player whose score cannot reach the list (Cauchy-Schwarz, with a margin for rounding) is passed over
    without reading its embedding. Leaves `weight` and `distance` as they were before the target came.
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

"""Scores from the embeddings of a trained explainer (Eq. 6, 7): one sampled dot product for each player of a target."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from dgl_lara.attribution.efficiency import complete
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.errors import InputError
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import encoder_graph
from dgl_lara.explainer.network import Embeddings, Explainer
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import MANY, joined
from dgl_lara.game.values import ClassQuery
from dgl_lara.inference.kernels.edge_walk import EdgeWalkKernel
from dgl_lara.inference.kernels.pairs import AddingUp, EndpointSum, PairKernel
from dgl_lara.inference.kernels.table import TableKernel
from dgl_lara.inference.kernels.walk import WalkKernel

KERNELS: dict[str, type[PairKernel]] = {"nodes": WalkKernel, "edges": EdgeWalkKernel, "features": TableKernel}
BYTES_A_PLAYER = 13  # id, score and hop of one kept player


@dataclass(frozen=True, eq=False)
class TopPlayers:
    """The best players of each target, best first. Rows with fewer players end in -1.

    Attributes:
        targets: (num_targets,) ids.
        explained_class: (num_targets,).
        player: (num_targets, top) int64 ids.
        score: (num_targets, top) float32.
        hop: (num_targets, top) int8 distances to the target.
        player_type: "nodes", "edges" or "features".
        endpoints: Both nodes of each edge, (num_targets, top) each, by column name.
    """

    targets: np.ndarray
    explained_class: np.ndarray
    player: np.ndarray
    score: np.ndarray
    hop: np.ndarray
    player_type: str = "nodes"
    endpoints: dict[str, np.ndarray] = field(default_factory=dict)


def embed_graph(explainer: Explainer, graph: EncoderGraph) -> Embeddings:
    """Embed all nodes in one pass of the explainer."""
    with eval_mode(explainer):
        return Embeddings(*explainer(graph))


def embed_all(explainer: Explainer, game: Game, inputs: str) -> Embeddings:
    """Embed all nodes of a game in one pass. `inputs` names the input features of the explainer."""
    return embed_graph(explainer, encoder_graph(game, inputs))


class Scorer:
    """Scores of all players, or of the best ones, from embeddings.

    It holds what all targets share in the layout of a compiled kernel. Keep it to explain many targets.

    Args:
        explainer: The trained g.
        game: The game that is explained.
        embeddings: p and t of all nodes.
        min_compiled: Fewer targets are scored without compiled code, which takes seconds to load.
    """

    def __init__(self, explainer: Explainer, game: Game, embeddings: Embeddings, min_compiled: int = MANY) -> None:
        self.explainer, self.game, self.embeddings, self.min_compiled = explainer, game, embeddings, min_compiled

    def explain(self, targets: Tensor, query: ClassQuery | None = None) -> Explanations:
        """Return the scores of all players of the targets.

        Args:
            targets: (num_targets,) ids.
            query: Classes to explain. None means the predicted ones.
        """
        game = self.game
        game.check_targets(targets)
        query = self.explainer.checked_query(game.query(targets), query)
        kernel = self._pairs if len(targets) < self.min_compiled else self._fastest
        players, scores = [], []
        with eval_mode(self.explainer):
            for rows in game.chunks(targets):
                found, values = kernel.scores(targets[rows], self._target_embeddings(targets[rows], query[rows]))
                players.append(found)
                scores.append(values)
        found = joined(players)
        completed = complete(game, found, query, torch.cat(scores))
        return Explanations(found, completed, query.classes, game.task, "lara", game, rather_than=query.versus)

    def top(self, targets: Tensor, top: int) -> TopPlayers:
        """Return the best players of each target for its predicted class, without a list of all players.

        Args:
            targets: (num_targets,) ids.
            top: Players kept of each target.
        """
        game = self.game
        game.check_targets(targets)
        if top < 1:
            raise InputError("top.range", got=top)
        top = max(1, min(top, game.num_players))
        game.budget.check(BYTES_A_PLAYER * len(targets) * top, f"the best {top:,} players of {len(targets):,} targets")
        query = game.query(targets)
        with torch.no_grad():
            t = self._target_embeddings(targets, query)
            if game.index.adds_up:
                player, score, hop = self._completed.top(targets, t, top)
            else:
                player, score, hop = self._fastest.top(targets, t, top)
        endpoints = {}
        if game.num_players:
            ends = game.player_set.endpoints(torch.from_numpy(player.clip(0)).flatten().to(targets.device))
            endpoints = {name: end.view(player.shape).cpu().numpy() for name, end in zip("uv", ends, strict=False)}
        ids, classes = targets.cpu().numpy(), query.classes.cpu().numpy()
        return TopPlayers(ids, classes, player, score, hop, game.player_set.name, endpoints)

    def _target_embeddings(self, targets: Tensor, query: ClassQuery) -> Tensor:
        t = self.game.task.target_embeddings(self.embeddings.target, targets, None)
        return self.explainer.for_class(t, query)

    def prepare(self) -> None:
        """Lay out now what all targets share."""
        _ = self._fastest

    @cached_property
    def _pairs(self) -> PairKernel:
        return self._make(PairKernel)

    @cached_property
    def _fastest(self) -> PairKernel:
        return self._make(fastest_kernel(self.explainer, self.game))

    @cached_property
    def _completed(self) -> PairKernel:
        return AddingUp(self._fastest, self.game)

    def _make(self, kernel: type[PairKernel]) -> PairKernel:
        made = kernel(self.explainer, self.game.endpoint_game, self.embeddings.source)
        return made if self.game.endpoint_game is self.game else EndpointSum(made, self.game)


def fastest_kernel(explainer: Explainer, game: Game) -> type[PairKernel]:
    """Return the fastest kernel for the players of a game."""
    kernel = KERNELS.get(game.player_set.name, PairKernel)
    return kernel if kernel.supports(explainer, game) else PairKernel

"""Eq. 6 for every kind of player: a score is what walks carry from nodes to the target.

    phi_hat(j -> i, class c) = sum over nodes v, terms d of w_d(i, v) <m_jv^(d) * m_c^(d), t_i^(d)>

Nodes v hold what players contribute there (m): a node its own p; an edge its q at the node that it enters; a column x_c
of the features x_vc r_c at every node. The gate w carries it to the target, where t meets it. So the signed sums that
training needs, sum_j sigma_j phi_hat_j, walk on the edges of the graph whoever plays, and no list of pairs is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor, nn

from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.gate import Gate
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players

Signs = Callable[[Tensor], Tensor]  # players -> sigma, (num_masks, len(players))


class ExplainerShape(Protocol):
    """What forms need of `ExplainerConfig`, which is made with them."""

    @property
    def hops(self) -> int: ...

    @property
    def hidden(self) -> int: ...

    @property
    def dim(self) -> int: ...

    @property
    def num_classes(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def alone(self) -> bool: ...

    @property
    def layers(self) -> int: ...

    @property
    def edge_columns(self) -> int: ...

    @property
    def reach(self) -> int: ...

    @property
    def terms(self) -> int: ...

    @property
    def width(self) -> int: ...


class ExplainerProtocol(Protocol):
    """What forms need of the explainer."""

    gate: Gate
    form_weights: nn.Module | None

    @property
    def config(self) -> ExplainerShape: ...


@dataclass(frozen=True, eq=False)
class PairBatch:
    """(target, player) pairs, and what g says of both."""

    game: Game
    players: Players
    p: Tensor  # as `Form.sources` gives it
    t: Tensor  # (num_targets, sides * width)
    nodes: Tensor | None = None  # whose rows of p those are, rising; None: everybody's


def on_all_sides(
    made: Callable[[ExplainerProtocol, PairBatch], Tensor], g: ExplainerProtocol, pairs: PairBatch
) -> Tensor:
    """What a form makes of pairs. Of targets that are several nodes: the sum over these, each with its own t."""

    def score(game: Game, targets: Tensor, t: Tensor, players: Players | None) -> tuple[Players, Tensor]:
        players = game.players(targets) if players is None else players
        return players, made(g, replace(pairs, game=game, players=players, t=t))

    return pairs.game.task.sum_over_endpoints(pairs.game, pairs.players.targets, pairs.t, score, pairs.players)[1]


class Decoder:
    def shape(self, game: Game) -> dict[str, Any]:
        """What of `ExplainerConfig` this kind decides."""
        return {
            "players": game.player_set.name,
            "edge_columns": 0 if game.edge_inputs is None else game.edge_inputs.shape[1],
        }

    def prepare(self, g: ExplainerProtocol, game: Game) -> None:
        """What can be read off the data before training."""

    def reach(self, config: ExplainerShape) -> int:
        """How many hops from the target the nodes stand at which players contribute."""
        return config.hops

    def sight(self, config: ExplainerShape) -> int:
        """How many hops from the target g must see: one a layer for t, as many more for p of whoever contributes."""
        return config.hops + config.layers

    def source_width(self, config: ExplainerShape) -> int:
        """Numbers that the source head says of a node; 0: it is not asked."""
        return config.width

    def weights(self, config: ExplainerShape) -> nn.Module | None:
        """What g has to learn for this kind besides its encoder and heads."""
        return None

    def sources(self, g: ExplainerProtocol, said: Tensor, scale: Tensor) -> Tensor:
        """p: what of the source head's answer is kept for all targets (one row a node, or a column)."""
        return said

    def held(
        self, g: ExplainerProtocol, game: Game, seen: EncoderGraph, nodes: Tensor, p: Tensor, sigma: Signs
    ) -> Tensor:
        """(num_local, num_masks, width): what nodes hold, each player with its sign."""
        raise NotImplementedError

    def products(self, g: ExplainerProtocol, pairs: PairBatch) -> Tensor:
        """(num_pairs, width): to be summed with a class's weights."""
        raise NotImplementedError

    def scores(self, g: ExplainerProtocol, pairs: PairBatch) -> Tensor:
        """(num_pairs,) the scores, with t already turned to a class."""
        return self.products(g, pairs).sum(1)

"""Eq. 6 for every player set: a score is what walks carry from nodes to the target.

    phi_hat(j -> i, class c) = sum over nodes v, terms d of w_d(i, v) <m_jv^(d) * m_c^(d), t_i^(d)>

Nodes v hold messages m of players: for a node its own p, for an edge its q at the node that it enters, for a column
x_c of the features x_vc r_c at every node. The gate w carries messages to the target, where t meets them. So the signed
sums that training needs, sum_j sigma_j phi_hat_j, propagate along edges without a list of pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor, nn

if TYPE_CHECKING:
    from dgl_lara.explainer.encoder import EncoderGraph
    from dgl_lara.explainer.gate import Gate
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players

Signs = Callable[[Tensor], Tensor]  # players -> sigma, (num_masks, len(players))


class ExplainerShape(Protocol):
    """The part of `ExplainerConfig` that decoders read."""

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
    """The part of `Explainer` that decoders read."""

    gate: Gate
    decoder_weights: nn.Module | None

    @property
    def config(self) -> ExplainerShape: ...


@dataclass(frozen=True, eq=False)
class PairBatch:
    """(target, player) pairs with their embeddings.

    Attributes:
        game: The game that is explained.
        players: The pairs.
        p: Result of `Decoder.sources`.
        t: (num_targets, num_endpoints * width).
        nodes: Nodes whose rows `p` has, in rising order. None means all.
    """

    game: Game
    players: Players
    p: Tensor
    t: Tensor
    nodes: Tensor | None = None


def sum_over_endpoints(
    method: Callable[[ExplainerProtocol, PairBatch], Tensor], g: ExplainerProtocol, pairs: PairBatch
) -> Tensor:
    """Apply a method of a decoder to pairs. Targets of several nodes get the sum over these nodes.

    Args:
        method: A method of a decoder that takes an explainer and pairs.
        g: The explainer.
        pairs: The pairs.
    """

    def score(game: Game, targets: Tensor, t: Tensor, players: Players | None) -> tuple[Players, Tensor]:
        players = game.players(targets) if players is None else players
        return players, method(g, replace(pairs, game=game, players=players, t=t))

    return pairs.game.task.sum_over_endpoints(pairs.game, pairs.players.targets, pairs.t, score, pairs.players)[1]


class Decoder:
    """How scores are computed from embeddings. A decoder belongs to a player set."""

    def shape(self, game: Game) -> dict[str, Any]:
        """Return the fields of `ExplainerConfig` that depend on the player set."""
        return {
            "players": game.player_set.name,
            "edge_columns": 0 if game.edge_inputs is None else game.edge_inputs.shape[1],
        }

    def prepare(self, g: ExplainerProtocol, game: Game) -> None:
        """Set what can be computed from the data before training."""

    def reach(self, config: ExplainerShape) -> int:
        """Return the distance from the target up to which nodes hold messages of players."""
        return config.hops

    def receptive_hops(self, config: ExplainerShape) -> int:
        """Return how many hops around a target the encoder needs.

        t needs one hop for each layer, and p of the farthest player needs one more for each layer.
        """
        return config.hops + config.layers

    def source_width(self, config: ExplainerShape) -> int:
        """Return the outputs of the source head for each node. 0: there is no source head."""
        return config.width

    def weights(self, config: ExplainerShape) -> nn.Module | None:
        """Return the weights besides encoder and heads."""
        return None

    def sources(self, g: ExplainerProtocol, outputs: Tensor, scale: Tensor) -> Tensor:
        """Return p, one row for each node or column, from the outputs of the source head."""
        return outputs

    def signed_messages(
        self, g: ExplainerProtocol, game: Game, graph: EncoderGraph, nodes: Tensor, p: Tensor, sigma: Signs
    ) -> Tensor:
        """Return the messages that nodes hold, each with the sign of its player, (num_local, num_masks, width)."""
        raise NotImplementedError

    def pair_terms(self, g: ExplainerProtocol, pairs: PairBatch) -> Tensor:
        """Return terms whose sum, weighted by class, is the score, (num_pairs, width)."""
        raise NotImplementedError

    def scores(self, g: ExplainerProtocol, pairs: PairBatch) -> Tensor:
        """Return the scores, (num_pairs,), if t is weighted by class already."""
        return self.pair_terms(g, pairs).sum(1)

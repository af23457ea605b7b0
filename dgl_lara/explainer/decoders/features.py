"""Columns of the features as players: a node v holds x_vc r_c of every column c, with x relative to the baseline.

    phi_hat(c -> i) = sum_d (sum_v w_d(i, v) x_vc) <r_c^(d), t_i^(d)>

r has one row for each column, so g explains any graph with these columns. It is computed from the outputs of f for
typical single nodes with the column added, and learned besides. A group has the sum of its columns. This is exact for
linear GNNs. If a column is removed in the target only, only the target holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.explainer.decoder import Decoder, ExplainerProtocol, ExplainerShape, PairBatch, Signs
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.game.feature_players import FeaturePlayers
from dgl_lara.game.receptive_field import evenly_spaced
from dgl_lara.game.removal import isolated
from dgl_lara.game.walks import walk_scale
from dgl_lara.graphs.indexing import lookup_sorted

if TYPE_CHECKING:
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players

MAX_COLUMNS_AT_ONCE = 512
NUM_COUNTED_TARGETS = 32  # targets whose players are counted
NUM_CONTEXTS = 8  # typical nodes to which a column is added
FULL_GRAPH_SHARE = 16  # with more than one target in 16 nodes, propagation covers the full graph


class _ColumnEmbedding(nn.Module):
    """The embedding r of each column: layers on the outputs of f for the column, and a learned part."""

    spread: Tensor
    responses: Tensor

    def __init__(self, columns: int, classes: int, hidden: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear((1 + NUM_CONTEXTS) * classes, width)
        self.mlp = nn.Sequential(nn.Linear((1 + NUM_CONTEXTS) * classes, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.own = nn.Parameter(torch.zeros(columns, width))
        self.register_buffer("spread", torch.ones(columns))  # size of each column, so that r is on one scale
        self.register_buffer("responses", torch.zeros(columns, (1 + NUM_CONTEXTS) * classes))

    def forward(self) -> Tensor:
        return (self.linear(self.responses) + self.mlp(self.responses) + 0.1 * self.own) / self.spread.unsqueeze(1)


class FeatureDecoder(Decoder):
    """Scores of feature columns."""

    def shape(self, game: Game) -> dict[str, Any]:
        assert isinstance(game.player_set, FeaturePlayers)
        return super().shape(game) | {"columns": game.player_set.num_columns, "alone": game.player_set.target_only}

    def prepare(self, g: ExplainerProtocol, game: Game) -> None:
        assert isinstance(g.decoder_weights, _ColumnEmbedding) and isinstance(game.player_set, FeaturePlayers)
        for columns in torch.arange(game.player_set.num_columns).split(MAX_COLUMNS_AT_ONCE):
            part = slice(int(columns[0]), int(columns[-1]) + 1)
            square = game.player_set.deviation(slice(None), part).square()
            present = (square > 0).sum(0).clamp(min=1)  # the mean is over nodes that have the column
            g.decoder_weights.spread[part] = (square.sum(0) / present).sqrt().clamp(min=1e-6)
        moved = responses(game, g.decoder_weights.spread)
        g.decoder_weights.responses.copy_(moved / moved.square().mean(0).sqrt().clamp(min=1e-9))
        targets = evenly_spaced(game.num_targets, NUM_COUNTED_TARGETS, moved.device)
        # all scores of a target share its value, so r begins small
        g.decoder_weights.spread *= game.players(targets).counts.float().mean().clamp(min=1).sqrt()

    def reach(self, config: ExplainerShape) -> int:
        return 0 if config.alone else config.hops

    def receptive_hops(self, config: ExplainerShape) -> int:
        return max(self.reach(config), config.layers)  # r belongs to columns, so no p is needed

    def source_width(self, config: ExplainerShape) -> int:
        return 0

    def weights(self, config: ExplainerShape) -> nn.Module:
        return _ColumnEmbedding(config.columns, config.num_classes, config.hidden, config.width)

    def sources(self, g: ExplainerProtocol, logits: Tensor, scale: Tensor) -> Tensor:
        assert isinstance(g.decoder_weights, _ColumnEmbedding)
        return g.decoder_weights()

    def signed_messages(
        self, g: ExplainerProtocol, game: Game, graph: EncoderGraph, nodes: Tensor, p: Tensor, sigma: Signs
    ) -> Tensor:
        kind = game.player_set
        assert isinstance(kind, FeaturePlayers)
        plays = kind.player_of_column >= 0
        signs = sigma(kind.player_of_column.clamp(min=0)) * plays  # (masks, columns)
        x = kind.deviation(nodes if len(nodes) < len(kind.features) else slice(None))
        held = torch.stack([x @ (p * mask.unsqueeze(1)) for mask in signs], dim=1)
        return g.gate.scaled(held, held, graph.scale.unsqueeze(1))[0]

    def pair_terms(self, g: ExplainerProtocol, pairs: PairBatch) -> Tensor:
        players, t, kind = pairs.players, pairs.t, pairs.game.player_set
        assert isinstance(kind, FeaturePlayers)
        which, column = kind.columns_of(players.player)
        row = players.row[which]
        arrived = _PropagatedFeatures(g, pairs.game, players.targets).of(slice(None))[row, :, column]
        each = arrived.repeat_interleave(g.config.dim, dim=1) * pairs.p[column] * t[row]
        return t.new_zeros(len(players.player), g.config.width).index_add(0, which, each)

    def scores(self, g: ExplainerProtocol, pairs: PairBatch) -> Tensor:
        players = pairs.players
        return self.table(g, pairs.game, pairs.p, pairs.t, players.targets)[players.row, players.player]

    def table(self, g: ExplainerProtocol, game: Game, p: Tensor, t: Tensor, targets: Tensor) -> Tensor:
        """Return the score of every player for every target, (num_targets, num_players)."""
        kind, dim = game.player_set, g.config.dim
        assert isinstance(kind, FeaturePlayers)
        table, aggregate = t.new_zeros(len(targets), kind.count), _PropagatedFeatures(g, game, targets)
        for start in range(0, kind.num_columns, MAX_COLUMNS_AT_ONCE):
            columns = slice(start, start + MAX_COLUMNS_AT_ONCE)
            group, arrived = kind.player_of_column[columns], aggregate.of(columns)
            score = t.new_zeros(len(targets), len(group))
            for term in range(g.config.terms):
                part = slice(term * dim, (term + 1) * dim)
                score += arrived[:, term] * (t[:, part] @ p[columns, part].T)
            table.index_add_(1, group.clamp(min=0), score * (group >= 0))
        return table

    def parts(self, g: ExplainerProtocol, game: Game, p: Tensor, t: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes that reach a target, and the part of each column score that each of them holds."""
        kind, dim = game.player_set, g.config.dim
        assert isinstance(kind, FeaturePlayers)
        near = game.task.reach(game.graph, target, g.config.reach)
        weights = g.gate.weights(game.graph, near, g.config.reach)  # (nodes, terms)
        x = kind.deviation(near.player)
        x = g.gate.scaled(x, x, walk_scale(game.graph)[near.player].unsqueeze(1))[0]
        met = (t * p).view(-1, g.config.terms, dim).sum(2)  # (width, terms)
        return near.player, x * (weights @ met.T)


def _contexts(game: Game) -> Tensor:
    """Return zeros and the average node of each of the most common classes, (1 + NUM_CONTEXTS, num_columns)."""
    predicted = game.full_logits.argmax(1)
    classes, counts = torch.unique(predicted, return_counts=True)
    common = classes[counts.argsort(descending=True)[:NUM_CONTEXTS]]
    nodes = [game.task.target_nodes(game.graph, (predicted == each).nonzero().flatten()) for each in common]
    rows = [game.features[index].float().mean(0) for index in nodes]
    rows += [rows[0]] * (NUM_CONTEXTS - len(rows))
    return torch.stack([torch.zeros_like(rows[0]), *rows])


def responses(game: Game, size: Tensor) -> Tensor:
    """Return how adding a column to typical single nodes moves the logits of f, (num_columns, contexts * classes).

    If targets are pairs, each node is paired with itself.

    Args:
        game: The game that is explained.
        size: Size of each column.
    """
    kind = game.player_set
    assert isinstance(kind, FeaturePlayers)
    parts, around = [], _contexts(game)
    for columns in torch.arange(kind.num_columns, device=size.device).split(max(1, game.nodes_per_call // 2)):
        place = torch.arange(len(columns), device=size.device)
        singles = game.task.mark_singles(isolated(game.graph, 2 * len(columns)))
        ends = game.task.single_endpoints(torch.arange(2 * len(columns), device=size.device))
        moved = []
        for context in around:
            x = context.repeat(2 * len(columns), 1)
            x[place, columns] += size[columns]
            with eval_mode(game.f):
                logits = game.caller(singles, x.to(game.features), *ends).float()
            moved.append(logits[: len(columns)] - logits[len(columns) :])
        parts.append(torch.cat(moved, dim=1))
    return torch.cat(parts)


class _PropagatedFeatures:
    """The sums sum_v w_d(i, v) x_vc of some targets.

    They are propagated along edges if the gate supports it, otherwise summed over pairs. What columns share is computed
    once.
    """

    def __init__(self, g: ExplainerProtocol, game: Game, targets: Tensor) -> None:
        assert isinstance(game.player_set, FeaturePlayers)
        self.gate, self.kind, self.steps = g.gate, game.player_set, g.config.reach
        self.nodes: Tensor | None = None
        self.near: Players | None = None
        scale, num_nodes = walk_scale(game.graph).unsqueeze(1), game.graph.num_nodes()
        if len(targets) * FULL_GRAPH_SHARE < num_nodes or not self.gate.supports_propagation:
            self.near = game.task.reach(game.graph, targets, self.steps)
            self.nodes = torch.unique(self.near.player)
            scale = scale[self.nodes]
        self.scale, self.count = scale, len(targets)
        if self.gate.supports_propagation:
            nodes = self.nodes
            self.places = targets if nodes is None else lookup_sorted(targets, nodes)[0]
            self.graph = (
                EncoderGraph.of(game.graph, scale) if nodes is None else EncoderGraph.around(game.graph, nodes, scale)
            )
        else:
            assert self.near is not None
            self.weights = self.gate.weights(game.graph, self.near, self.steps)

    def of(self, columns: slice) -> Tensor:
        """Return the sums of some columns, (num_targets, terms, num_columns)."""
        x = self.kind.deviation(slice(None) if self.nodes is None else self.nodes, columns)
        x = self.gate.scaled(x, x, self.scale)[0]
        if self.gate.supports_propagation:
            return self.gate.propagate(self.graph, x, self.steps, self.places)
        assert self.near is not None and self.nodes is not None
        where = torch.stack([self.near.row, lookup_sorted(self.near.player, self.nodes)[0]])
        shape = (self.count, len(self.nodes))
        parts = [
            torch.sparse.mm(torch.sparse_coo_tensor(where, w, shape, check_invariants=False), x)
            for w in self.weights.unbind(1)
        ]
        return torch.stack(parts, dim=1)


DECODER = FeatureDecoder()

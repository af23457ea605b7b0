"""Columns of the features: a node v holds x_vc r_c of every column c, x as its distance from the baseline.

    phi_hat(c -> i) = sum_d (sum_v w_d(i, v) x_vc) <r_c^(d), t_i^(d)>

r is learned, one row a column, so that g speaks of any graph with these columns; a group has the sum of its columns.
Exact for linear GNNs. Where a column is removed in the target alone, the target alone holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.form import Form, Pairs, Signs
from dgl_lara.game.feature_players import FeaturePlayers
from dgl_lara.game.game import Game
from dgl_lara.game.players import Players, find
from dgl_lara.game.walks import walk_scale

if TYPE_CHECKING:
    from dgl_lara.explainer.network import Explainer, ExplainerConfig

COLUMNS_AT_ONCE = 512
MANY = 16  # one target in so many nodes or more: the whole graph is walked over, and nobody listed


class Columns(nn.Module):
    """r: one row a column."""

    spread: Tensor

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        self.r = nn.Parameter(torch.randn(columns, width) / width**0.5)
        self.register_buffer("spread", torch.ones(columns))  # of each column, so that r is learned on one scale


class FeatureForm(Form):
    def shape(self, game: Game) -> dict[str, Any]:
        assert isinstance(game.kind, FeaturePlayers)
        return {"players": "features", "columns": game.kind.width, "alone": game.kind.alone}

    def prepare(self, g: Explainer, game: Game) -> None:
        assert isinstance(g.form_weights, Columns) and isinstance(game.kind, FeaturePlayers)
        for columns in torch.arange(game.kind.width).split(COLUMNS_AT_ONCE):
            part = slice(int(columns[0]), int(columns[-1]) + 1)
            size = game.kind.excess(slice(None), part).square().mean(0).sqrt()
            g.form_weights.spread[part] = size.clamp(min=1e-6)

    def reach(self, config: ExplainerConfig) -> int:
        return 0 if config.alone else config.hops

    def source_width(self, config: ExplainerConfig) -> int:
        return 0

    def weights(self, config: ExplainerConfig) -> nn.Module:
        return Columns(config.columns, config.width)

    def sources(self, g: Explainer, said: Tensor, scale: Tensor) -> Tensor:
        assert isinstance(g.form_weights, Columns)
        return g.form_weights.r / g.form_weights.spread.unsqueeze(1)

    def held(self, g: Explainer, game: Game, seen: EncoderGraph, nodes: Tensor, p: Tensor, sigma: Signs) -> Tensor:
        kind = game.kind
        assert isinstance(kind, FeaturePlayers)
        plays = kind.group >= 0
        signs = sigma(kind.group.clamp(min=0)) * plays  # (masks, columns)
        x = kind.excess(nodes if len(nodes) < len(kind.features) else slice(None))
        held = torch.stack([x @ (p * mask.unsqueeze(1)) for mask in signs], dim=1)
        return g.gate.scaled(held, held, seen.scale.unsqueeze(1))[0]

    def products(self, g: Explainer, pairs: Pairs) -> Tensor:
        players, t, kind = pairs.players, pairs.t, pairs.game.kind
        assert isinstance(kind, FeaturePlayers)
        which, column = kind.columns_of(players.player)
        row = players.row[which]
        arrived = Arrivals(g, pairs.game, players.targets).of(slice(None))[row, :, column]
        each = arrived.repeat_interleave(g.config.dim, dim=1) * pairs.p[column] * t[row]
        return t.new_zeros(len(players.player), g.config.width).index_add(0, which, each)

    def scores(self, g: Explainer, pairs: Pairs) -> Tensor:
        players = pairs.players
        return self.table(g, pairs.game, pairs.p, pairs.t, players.targets)[players.row, players.player]

    def table(self, g: Explainer, game: Game, p: Tensor, t: Tensor, targets: Tensor) -> Tensor:
        """(num_targets, count): the score of every player, also of those that are not present."""
        kind, dim = game.kind, g.config.dim
        assert isinstance(kind, FeaturePlayers)
        table, arrivals = t.new_zeros(len(targets), kind.count), Arrivals(g, game, targets)
        for start in range(0, kind.width, COLUMNS_AT_ONCE):
            columns = slice(start, start + COLUMNS_AT_ONCE)
            group, arrived = kind.group[columns], arrivals.of(columns)
            score = t.new_zeros(len(targets), len(group))
            for term in range(g.config.terms):
                part = slice(term * dim, (term + 1) * dim)
                score += arrived[:, term] * (t[:, part] @ p[columns, part].T)
            table.index_add_(1, group.clamp(min=0), score * (group >= 0))
        return table

    def parts(self, g: Explainer, game: Game, p: Tensor, t: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Of one target: the nodes that reach it, and (nodes, width) what each of them holds of the column's score."""
        kind, dim = game.kind, g.config.dim
        assert isinstance(kind, FeaturePlayers)
        near = game.task.reach(game.graph, target, g.config.reach)
        weights = g.gate.weights(game.graph, near, g.config.reach)  # (nodes, terms)
        x = kind.excess(near.player)
        x = g.gate.scaled(x, x, walk_scale(game.graph)[near.player].unsqueeze(1))[0]
        met = (t * p).view(-1, g.config.terms, dim).sum(2)  # (width, terms)
        return near.player, x * (weights @ met.T)


class Arrivals:
    """sum_v w_d(i, v) x_vc of some targets: carried along the edges around them where the gate can, else summed over
    lists of pairs. Everything near the targets is found once, for all columns."""

    def __init__(self, g: Explainer, game: Game, targets: Tensor) -> None:
        assert isinstance(game.kind, FeaturePlayers)
        self.gate, self.kind, self.steps = g.gate, game.kind, g.config.reach
        self.nodes: Tensor | None = None
        self.near: Players | None = None
        scale, everybody = walk_scale(game.graph).unsqueeze(1), game.graph.num_nodes()
        if len(targets) * MANY < everybody or not self.gate.carries:
            self.near = game.task.reach(game.graph, targets, self.steps)
            self.nodes = torch.unique(self.near.player)
            scale = scale[self.nodes]
        self.scale, self.count = scale, len(targets)
        if self.gate.carries:
            nodes = self.nodes
            self.places = targets if nodes is None else find(targets, nodes)[0]
            self.seen = (
                EncoderGraph.of(game.graph, scale) if nodes is None else EncoderGraph.around(game.graph, nodes, scale)
            )
        else:
            assert self.near is not None
            self.weights = self.gate.weights(game.graph, self.near, self.steps)

    def of(self, columns: slice) -> Tensor:
        """(num_targets, terms, columns)"""
        x = self.kind.excess(slice(None) if self.nodes is None else self.nodes, columns)
        x = self.gate.scaled(x, x, self.scale)[0]
        if self.gate.carries:
            return self.gate.carry(self.seen, x, self.steps, self.places)
        assert self.near is not None and self.nodes is not None
        where = torch.stack([self.near.row, find(self.near.player, self.nodes)[0]])
        shape = (self.count, len(self.nodes))
        parts = [
            torch.sparse.mm(torch.sparse_coo_tensor(where, w, shape, check_invariants=False), x)
            for w in self.weights.unbind(1)
        ]
        return torch.stack(parts, dim=1)


FORM = FeatureForm()

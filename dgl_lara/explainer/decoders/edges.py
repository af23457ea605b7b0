"""Edges as players. The node that an edge enters holds its q, computed from the embeddings of both ends.

    phi_hat(u -> v, to i) = sum_d w_d(i, v) <q_uv^(d), t_i^(d)>,    d = 0 ... K - 1
    q_uv = a_u + b_v + W relu(c_u + e_v + D x_uv)

a, b, c, e are linear in the states of the encoder, one row for each node, so p is stored as for nodes. x is the data of
the edge, if f reads it, and its relation. An undirected pair has the sum of its two directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from dgl_lara.blackbox.input_adapter import EDGE_ID
from dgl_lara.explainer.decoder import Decoder, ExplainerProtocol, ExplainerShape, PairBatch, Signs
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.walks import walk_scale
from dgl_lara.graphs.graph import sum_in_edges
from dgl_lara.graphs.indexing import lookup_sorted

if TYPE_CHECKING:
    from dgl_lara.explainer.encoder import EncoderGraph
    from dgl_lara.game.game import Game

MAX_EDGES_AT_ONCE = 400_000  # edges of targets whose q are held at a time


class _EdgeDataLayers(nn.Module):
    """Layers of edge vectors that read edge data."""

    def __init__(self, out: nn.Linear, data: nn.Linear) -> None:
        super().__init__()
        self.out, self.data = out, data


def edge_inputs(game: Game, edge_ids: Tensor) -> Tensor:
    """Return the edge data of some edges on a signed-log scale."""
    assert game.edge_inputs is not None
    x = game.edge_inputs[edge_ids]
    return x.sign() * x.abs().log1p()


class EdgeDecoder(Decoder):
    """Scores of edges."""

    def reach(self, config: ExplainerShape) -> int:
        return max(config.hops - 1, 0)

    def source_width(self, config: ExplainerShape) -> int:
        return 2 * config.width + 2 * config.hidden

    def weights(self, config: ExplainerShape) -> nn.Module:
        out = nn.Linear(config.hidden, config.width, bias=False)
        return _EdgeDataLayers(out, nn.Linear(config.edge_columns, config.hidden)) if config.edge_columns else out

    def edge_vectors(
        self, g: ExplainerProtocol, p: Tensor, u: Tensor, v: Tensor, scale: Tensor, x: Tensor | None = None
    ) -> Tensor:
        """Return q of edges, (num_edges, width).

        Args:
            g: The explainer.
            p: Result of `sources`.
            u: Rows of p of the nodes that edges leave.
            v: Rows of p of the nodes that edges enter.
            scale: (num_edges, 1) scale of the nodes that are entered.
            x: Edge data.
        """
        width, hidden = g.config.width, g.config.hidden
        from_a, to_b, from_c, to_e = p.split([width, width, hidden, hidden], dim=1)
        inner, out = from_c[u] + to_e[v], g.decoder_weights
        assert out is not None
        if isinstance(out, _EdgeDataLayers):
            assert x is not None
            inner, out = inner + out.data(x), out.out
        q = from_a[u] + to_b[v] + out(torch.relu(inner))
        return g.gate.scaled(q, q, scale)[0]

    def signed_messages(
        self, g: ExplainerProtocol, game: Game, graph: EncoderGraph, nodes: Tensor, p: Tensor, sigma: Signs
    ) -> Tensor:
        assert isinstance(game.player_set, EdgePlayers)
        src, dst = graph.looped.edges()
        real = src != dst
        player = game.player_set.player_of_edges(nodes[src[real]], nodes[dst[real]])
        x = edge_inputs(game, graph.looped.edata[EDGE_ID][real]) if g.config.edge_columns else None
        q = self.edge_vectors(g, p, src[real], dst[real], graph.scale[dst[real]], x)
        signed = sigma(player).T.unsqueeze(2) * q.unsqueeze(1)  # (edges, masks, width)
        every = signed.new_zeros(len(src), signed[0].numel() if len(signed) else g.config.width)
        every = every.index_put((real.nonzero().flatten(),), signed.flatten(1)) if len(signed) else every
        return sum_in_edges(graph.looped, every).view(len(nodes), -1, g.config.width)

    def pair_terms(self, g: ExplainerProtocol, pairs: PairBatch) -> Tensor:
        result = pairs.t.new_zeros(len(pairs.players.player), g.config.width)
        for pair, each in self._each(g, pairs):
            result = result.index_add(0, pair, each)
        return result

    def scores(self, g: ExplainerProtocol, pairs: PairBatch) -> Tensor:
        result = pairs.t.new_zeros(len(pairs.players.player))
        for pair, each in self._each(g, pairs):
            result.index_add_(0, pair, each.sum(1))
        return result

    def _each(self, g: ExplainerProtocol, pairs: PairBatch) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the pair and the terms w q t of every edge near a target, in chunks of edges."""
        game, players, nodes = pairs.game, pairs.players, pairs.nodes
        assert isinstance(game.player_set, EdgePlayers)
        heads = game.task.reach(game.graph, players.targets, g.config.reach)
        gate = g.gate.weights(game.graph, heads, g.config.reach)
        which, sources, player = game.player_set.in_edges(heads.player)
        row, head = heads.row[which], heads.player[which]
        pair, _ = lookup_sorted(row * max(players.num_ids, 1) + player, players.key)
        u, v = (sources, head) if nodes is None else (lookup_sorted(end, nodes)[0] for end in (sources, head))
        scale = walk_scale(game.graph).unsqueeze(1)
        edge_ids = game.player_set.in_edge_ids(heads.player) if g.config.edge_columns else which
        for rows in torch.arange(len(which), device=which.device).split(MAX_EDGES_AT_ONCE):
            x = edge_inputs(game, game.graph.edata[EDGE_ID][edge_ids[rows]]) if g.config.edge_columns else None
            q = self.edge_vectors(g, pairs.p, u[rows], v[rows], scale[head[rows]], x)
            yield pair[rows], q * pairs.t[row[rows]] * gate[which[rows]].repeat_interleave(g.config.dim, dim=1)


DECODER = EdgeDecoder()

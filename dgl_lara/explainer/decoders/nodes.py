"""Nodes: what a node holds is its own p."""

from __future__ import annotations

import dgl
import torch
from dgl import ops
from torch import Tensor

from dgl_lara.explainer.decoder import Decoder, ExplainerProtocol, PairBatch, Signs
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.game.game import Game
from dgl_lara.graphs.indexing import lookup_sorted


class NodeDecoder(Decoder):
    def sources(self, g: ExplainerProtocol, said: Tensor, scale: Tensor) -> Tensor:
        return g.gate.scaled(said, said, scale)[0]

    def held(
        self, g: ExplainerProtocol, game: Game, seen: EncoderGraph, nodes: Tensor, p: Tensor, sigma: Signs
    ) -> Tensor:
        return sigma(nodes).T.unsqueeze(2) * p.unsqueeze(1)

    def products(self, g: ExplainerProtocol, pairs: PairBatch) -> Tensor:
        players = pairs.players
        place = players.player if pairs.nodes is None else lookup_sorted(players.player, pairs.nodes)[0]
        gate = g.gate.weights(pairs.game.graph, players, g.config.hops)
        return pairs.p[place] * pairs.t[players.row] * gate.repeat_interleave(g.config.dim, dim=1)

    def scores(self, g: ExplainerProtocol, pairs: PairBatch) -> Tensor:
        """One sampled product over all pairs; gated terms are added one after the other, so that memory stays at one
        number a pair."""
        p, t, players, dim = pairs.p, pairs.t, pairs.players, g.config.dim
        gate = g.gate.weights(pairs.game.graph, players, g.config.hops)
        players = players if pairs.nodes is None else players.among(pairs.nodes)
        block = dgl.create_block(
            ("csc", (players.indptr, players.player, torch.empty(0, dtype=torch.long, device=p.device))),
            num_src_nodes=len(p),
            num_dst_nodes=len(t),
        )
        scores = torch.zeros(len(players.player), device=p.device)
        for term in range(g.config.terms):
            columns = slice(term * dim, (term + 1) * dim)
            dots = ops.u_dot_v(block, p[:, columns].contiguous(), t[:, columns].contiguous()).squeeze(1)
            scores += gate[:, term] * dots
        return scores


FORM = NodeDecoder()

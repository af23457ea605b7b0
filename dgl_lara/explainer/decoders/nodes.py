"""Nodes as players: the message of a node is its own p."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_lara.explainer.decoder import Decoder, ExplainerProtocol, PairBatch, Signs
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.game.game import Game
from dgl_lara.graphs.graph import csc_block, dot_edges
from dgl_lara.graphs.indexing import lookup_sorted


class _NodeDecoder(Decoder):
    """Scores of nodes."""

    def sources(self, g: ExplainerProtocol, outputs: Tensor, scale: Tensor) -> Tensor:
        return g.gate.scaled(outputs, outputs, scale)[0]

    def signed_messages(
        self, g: ExplainerProtocol, game: Game, graph: EncoderGraph, nodes: Tensor, p: Tensor, sigma: Signs
    ) -> Tensor:
        return sigma(nodes).T.unsqueeze(2) * p.unsqueeze(1)

    def pair_terms(self, g: ExplainerProtocol, pairs: PairBatch) -> Tensor:
        players = pairs.players
        rows = players.player if pairs.nodes is None else lookup_sorted(players.player, pairs.nodes)[0]
        gate = g.gate.weights(pairs.game.graph, players, g.config.hops)
        return pairs.p[rows] * pairs.t[players.row] * gate.repeat_interleave(g.config.dim, dim=1)

    def scores(self, g: ExplainerProtocol, pairs: PairBatch) -> Tensor:
        """Compute one sampled product over all pairs, term after term, to hold one number for each pair."""
        p, t, players, dim = pairs.p, pairs.t, pairs.players, g.config.dim
        gate = g.gate.weights(pairs.game.graph, players, g.config.hops)
        players = players if pairs.nodes is None else players.among(pairs.nodes)
        block = csc_block(players.indptr, players.player, len(p))
        scores = torch.zeros(len(players.player), device=p.device)
        for term in range(g.config.terms):
            columns = slice(term * dim, (term + 1) * dim)
            dots = dot_edges(block, p[:, columns].contiguous(), t[:, columns].contiguous())
            scores += gate[:, term] * dots
        return scores


DECODER = _NodeDecoder()

"""Explanations as masks of PyTorch Geometric: a number for every node, edge, column or entry of x.

The mask of several targets is the mean of their masks, because phi is linear in the explained value. A player of no
target has 0.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch_geometric.explain import HeteroExplanation

from dgl_lara.blackbox.hetero_index import HeteroIndex
from dgl_lara.explainer.decoders.features import FeatureDecoder
from dgl_lara.explanation import Explanations
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.lara import LARA


def _player_scores(explanations: Explanations) -> Tensor:
    """Return (num_players,) the mean score of each player over the targets."""
    players, scores = explanations.players, explanations.scores
    return scores.new_zeros(players.num_ids).index_add(0, players.player, scores) / len(explanations)


def node_mask(lara: LARA, explanations: Explanations) -> Tensor:
    """Return (num_nodes, 1) scores of nodes."""
    return _player_scores(explanations).unsqueeze(1)


def edge_mask(lara: LARA, explanations: Explanations) -> Tensor:
    """Return (num_edges,) scores in the order of `edge_index`.

    Self-loops have 0. Both directions of an edge have one score unless players are directed.
    """
    player_set = cast(EdgePlayers, lara.game.player_set)
    player = player_set.player_of_edges(*lara.graph.edges())
    scores = torch.cat([_player_scores(explanations), explanations.scores.new_zeros(1)])
    return scores[player]  # -1, an edge that is no player, is the last


def column_mask(lara: LARA, explanations: Explanations) -> Tensor:
    """Return (1, num_features) scores of columns."""
    return _player_scores(explanations).unsqueeze(0)


def entry_mask(lara: LARA, explanations: Explanations) -> Tensor:
    """Return (num_nodes, num_features): the score of each column, split among the nodes.

    It is split as g propagates it to the target. For a linear GNN that is the contribution of each entry. The change by
    a correction is split in proportion, so that the sum over all nodes is the score of the column.
    """
    g = lara.explainer_
    decoder = cast(FeatureDecoder, g.decoder)
    embedded, mask = lara.embed(), torch.zeros(lara.features.shape, device=lara.features.device)
    for one in explanations:
        targets = one.batch.players.targets
        t = g.for_class(embedded.target[targets], one.batch.query)
        nodes, entries = decoder.parts(g, lara.game, embedded.source, t, targets)
        size = entries.abs()
        correction = _player_scores(one.batch) - entries.sum(0)
        mask.index_add_(0, nodes, entries + size * (correction / size.sum(0).clamp(min=1e-30)))
    return mask / len(explanations)


def by_type(index: HeteroIndex, masks: dict[str, Tensor]) -> HeteroExplanation:
    """Split masks of all nodes and all edges by node type and by relation."""
    result = HeteroExplanation()
    for name, keys, offsets in (
        ("node_mask", index.node_types, index.node_offsets),
        ("edge_mask", index.relations, index.edge_offsets),
    ):
        if name in masks:
            result.set_value_dict(name, dict(zip(keys, masks[name].split(offsets.diff().tolist()), strict=True)))
    return result

"""Explanations as the masks of PyTorch Geometric: a number for every node, edge, column or entry of x.

Of several targets a mask is the mean: phi is linear in what is explained, so it belongs to the mean of their values.
Whoever plays for no target has 0.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.explain import HeteroExplanation

from dgl_lara.blackbox.hetero_index import HeteroIndex
from dgl_lara.explainer.decoders.features import FeatureDecoder
from dgl_lara.explanation import Explanations
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.lara import LARA


def of_players(explanations: Explanations) -> Tensor:
    """(count,) the score of each player there is, on average over the targets."""
    players, scores = explanations.players, explanations.scores
    return scores.new_zeros(players.num_ids).index_add(0, players.player, scores) / len(explanations)


def node_mask(lara: LARA, explanations: Explanations) -> Tensor:
    """(num_nodes, 1)"""
    return of_players(explanations).unsqueeze(1)


def edge_mask(lara: LARA, explanations: Explanations) -> Tensor:
    """(num_edges,), in the order of `edge_index`; 0 for loops, both directions of a pair alike unless `directed`."""
    kind = lara.game.player_set
    assert isinstance(kind, EdgePlayers)
    player = kind.player_of_edges(*lara.graph.edges())
    scores = torch.cat([of_players(explanations), explanations.scores.new_zeros(1)])
    return scores[player]  # -1, nobody, is the last


def column_mask(lara: LARA, explanations: Explanations) -> Tensor:
    """(1, num_features)"""
    return of_players(explanations).unsqueeze(0)


def entry_mask(lara: LARA, explanations: Explanations) -> Tensor:
    """(num_nodes, num_features): the score of each column, parted among the nodes that hold it.

    As g carries it from them to the target: of a linear GNN, what each entry contributes. What a correction added is
    parted in proportion, so that the sum over all nodes is the score of the column.
    """
    g, form = lara.explainer_, lara.explainer_.form
    assert isinstance(form, FeatureDecoder)
    embedded, mask = lara.embed(), torch.zeros(lara.features.shape, device=lara.features.device)
    for one in explanations:
        t = g.for_class(embedded.target[one.batch.players.targets], one.batch.query)
        nodes, parts = form.parts(g, lara.game, embedded.source, t, one.batch.players.targets)
        size = parts.abs()
        added = of_players(one.batch) - parts.sum(0)
        parts = parts + size * (added / size.sum(0).clamp(min=1e-30))
        mask.index_add_(0, nodes, parts)
    return mask / len(explanations)


def of_types(types: HeteroIndex, masks: dict[str, Tensor]) -> HeteroExplanation:
    """Masks over all nodes and all edges, parted by type and by relation."""
    found = HeteroExplanation()
    for name, parts, starts in (
        ("node_mask", types.node_types, types.node_offsets),
        ("edge_mask", types.relations, types.edge_offsets),
    ):
        if name in masks:
            found.set_value_dict(name, dict(zip(parts, masks[name].split(starts.diff().tolist()), strict=True)))
    return found

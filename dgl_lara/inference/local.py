"""Explanations of a few targets from their own surroundings, without embedding the whole graph (Eq. 12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dgl_lara.attribution.efficiency import complete
from dgl_lara.blackbox.call import Model, predict_and_validate
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.explainer.decoder import PairBatch, sum_over_endpoints
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game, ModelOutputs
from dgl_lara.game.index import BANZHAF, Index
from dgl_lara.game.node_task import khop_batch
from dgl_lara.game.removal import strip_data
from dgl_lara.game.tasks import NODE
from dgl_lara.graphs.indexing import is_member
from dgl_lara.inference.scorer import Scorer, embed_all

if TYPE_CHECKING:
    from dgl_lara.explainer.network import Explainer
    from dgl_lara.game.player_specs import PlayerSpec
    from dgl_lara.game.task import Task
    from dgl_lara.game.values import ClassQuery
    from dgl_lara.graphs.graph import Graph


def explain_nearby(
    explainer: Explainer,
    game: Game,
    inputs: str,
    targets: Tensor,
    query: ClassQuery | None = None,
    full: EncoderGraph | None = None,
) -> Explanations:
    """Return the scores of all players of a few targets, from embeddings of their 2K-hop neighbourhood.

    Args:
        explainer: The trained g.
        game: The game, or that of `game_nearby`.
        inputs: Name of the input features of the explainer.
        targets: (num_targets,) ids.
        query: Classes to explain. None means the predicted ones.
        full: The full graph as g sees it, whose inputs need not be computed again.

    Returns:
        The scores of `Scorer.explain`, up to rounding.
    """
    nodes = game.task.nearby_nodes(game.graph, targets, explainer.decoder.receptive_hops(explainer.config))
    if nodes is None:
        return Scorer(explainer, game, embed_all(explainer, game, inputs)).explain(targets, query)
    query = explainer.checked_query(game.query(targets), query)
    with eval_mode(explainer):
        rows = explainer_inputs(game, inputs, nodes) if full is None else full.inputs[nodes]
        p, t = explainer(EncoderGraph.around(game.graph, nodes, rows, game.in_degrees))
        t = explainer.for_class(game.task.target_embeddings(t, targets, nodes), query)
        players = game.players(targets)
        pairs = PairBatch(game, players, p, t, nodes)
        scores = complete(game, players, query, sum_over_endpoints(explainer.decoder.scores, explainer, pairs))
    return Explanations(players, scores, query.classes, game.task, "lara", game, rather_than=query.versus)


def game_nearby(
    f: Model,
    graph: Graph,
    features: Tensor,
    targets: Tensor,
    explainer: Explainer,
    value: str,
    memory: int | None = None,
    players: str | PlayerSpec = "nodes",
    task: Task = NODE,
    index: str | Index = BANZHAF,
) -> Game:
    """Return the game of a node task around a few targets.

    The model is called with the 2K hops around the targets and the K + 1 hops behind them. The logits of all other
    nodes are NaN.
    """
    config, graph = explainer.config, strip_data(graph)
    needed = task.encoder_nodes(graph, targets, explainer.decoder.receptive_hops(config))
    batch = khop_batch(graph, needed, config.hops + 1)
    near = predict_and_validate(f, batch.graph, features[batch.nodes], batch.graph.num_nodes(), task.name)
    outputs = near.new_full((graph.num_nodes(), near.shape[1]), torch.nan)
    valid = is_member(batch.nodes, needed)
    outputs[batch.nodes[valid]] = near[valid]
    known = ModelOutputs(outputs, valid_targets=needed)
    more: dict[str, Any] = {"memory": memory, "uses_edge_data": config.edge_columns > 0, "known": known, "index": index}
    return Game.create(f, graph, features, task, config.hops, value, players=players, **more)

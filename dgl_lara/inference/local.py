"""A few targets without a pass over everything: g runs on their 2K-hop neighbourhood (Eq. 12), and f is asked only
about the part of the graph that can matter to it. The numbers are those of `scores.explain`."""

from __future__ import annotations

import dgl
import torch
from torch import Tensor

from dgl_lara.blackbox.call import Model, predict_and_validate
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import explainer_inputs
from dgl_lara.explainer.network import Explainer
from dgl_lara.explanation import Explanations
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.game import Game
from dgl_lara.game.node_task import khop_batch
from dgl_lara.game.player_specs import PlayerSpec
from dgl_lara.game.task import Task
from dgl_lara.game.tasks import NODE
from dgl_lara.graphs.indexing import is_member
from dgl_lara.inference.scorer import checked_query, embed_all, explain_embedded
from dgl_lara.training.objective import local_scores
from dgl_lara.training.subgraphs import SubgraphEmbeddings


def explain_nearby(
    explainer: Explainer, game: Game, kind: str, targets: Tensor, query: ClassQuery | None = None
) -> Explanations:
    """With a game at hand, which may have asked f about the surroundings of the targets only."""
    game.check_targets(targets)
    nodes = game.task.nearby_nodes(game.graph, targets, explainer.form.sight(explainer.config))
    if nodes is None:
        return explain_embedded(explainer, game, embed_all(explainer, game, kind), targets, query)
    query = checked_query(explainer, game, targets, query)
    with eval_mode(explainer):
        seen = EncoderGraph.around(game.graph, nodes, explainer_inputs(game, kind, nodes), game.in_degrees)
        p, t = explainer(seen)
        embedded = SubgraphEmbeddings(seen, nodes, p, game.task.target_embeddings(t, targets, nodes))
        players = game.players(targets)
        scores = local_scores(explainer, game, embedded, players, query)
    return Explanations(players, scores, query.classes, game.task, "lara", game, rather_than=query.versus)


def game_nearby(
    f: Model,
    graph: dgl.DGLGraph,
    features: Tensor,
    targets: Tensor,
    explainer: Explainer,
    value: str,
    memory: int | None = None,
    players: str | PlayerSpec = "nodes",
    task: Task = NODE,
) -> Game:
    """The game of a node task as far as these targets go: f is asked about 2K hops and the K + 1 behind them, and its
    logits elsewhere are NaN."""
    config = explainer.config
    needed = task.encoder_nodes(graph, targets, explainer.form.sight(config))
    part = khop_batch(graph, needed, config.hops + 1)
    near = predict_and_validate(f, part.graph, features[part.nodes], part.graph.num_nodes(), task.name)
    answer = near.new_full((graph.num_nodes(), near.shape[1]), torch.nan)
    known = is_member(part.nodes, needed)
    answer[part.nodes[known]] = near[known]
    return Game(f, graph, features, task, config.hops, value, answer, needed, memory, players, config.edge_columns > 0)

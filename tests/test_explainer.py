"""g: the paper's form, the gates, subgraphs against the whole graph, relabelling."""

from dataclasses import replace

import dgl
import numpy as np
import pytest
import torch
from codes import raises
from games import PooledGCN, gcn_game, random_graph

from dgl_lara._util.memory_budget import CHUNK_BYTES
from dgl_lara.explainer.decoder import PairBatch
from dgl_lara.explainer.encoder import EncoderGraph
from dgl_lara.explainer.inputs import explainer_inputs, fit_normalisation
from dgl_lara.explainer.network import Embeddings, Explainer, ExplainerConfig
from dgl_lara.game.game import Game
from dgl_lara.game.removal import edgeless
from dgl_lara.game.values import ClassQuery
from dgl_lara.game.walks import walk_weights
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.inference.scorer import Scorer, embed_all

GAME = gcn_game(nodes=40, edges=50, seed=3)
INPUTS = explainer_inputs(GAME, "rich")


def config(**changes):
    base = ExplainerConfig("node", INPUTS.shape[1], 3, hops=2, layers=2, hidden=16, dim=5)
    return replace(base, **changes)


def new(**changes):
    torch.manual_seed(0)
    return Explainer(config(**changes)).eval()


@pytest.mark.parametrize("gate", ["none", "hop", "walk", "random-walk"])
def test_scores_are_the_formula_at_the_top_of_the_file(gate):
    """Dense and pair by pair: sum_d w_d <p_j m_c, t_i>."""
    g = new(gate=gate)
    result = Scorer(g, GAME, embed_all(g, GAME, "rich")).explain(torch.arange(40))
    players = result.players
    walks = walk_weights(GAME.graph, players, 2)
    looped = GAME.graph.adj_external(scipy_fmt="csr").T.toarray() + np.eye(40)
    average = torch.from_numpy(looped / looped.sum(1, keepdims=True))  # P
    averages = [torch.linalg.matrix_power(average, d) for d in range(3)]
    embeddings = embed_all(new(gate=gate.removeprefix("random-")), GAME, "rich")  # before the ends' degrees go in
    p, t = (part.view(40, g.config.terms, 5) for part in (embeddings.source, embeddings.target))
    m = g.class_weight.detach().view(3, g.config.terms, 5)
    assert result.scores.std() > 1e-3
    for pair in range(0, len(players.player), 7):
        i, j, hop = int(players.row[pair]), int(players.player[pair]), int(players.hop[pair])
        expected = 0.0
        for d in range(g.config.terms):
            w = {"none": 1.0, "hop": float(hop == d), "walk": walks[pair, d], "random-walk": averages[d][i, j]}[gate]
            expected += float(w) * float((p[j, d] * m[GAME.explained_class[i], d] * t[i, d]).sum())
        assert abs(float(result.scores[pair]) - expected) < 1e-4


def test_the_papers_form_is_a_dot_product():
    """Eq. 6: gate none, plain encoder, one class: phi_hat = <p_j, t_i> and nothing else."""
    g = new(gate="none", encoder="plain", all_classes=False)
    embeddings = embed_all(g, GAME, "rich")
    result = Scorer(g, GAME, embeddings).explain(torch.arange(40))
    dense = embeddings.target @ embeddings.source.T
    torch.testing.assert_close(result.scores, dense[result.players.row, result.players.player])


def test_single_embedding_is_symmetric_and_dual_is_not():
    def matrix(embedding):
        g = new(gate="none", embedding=embedding, all_classes=False)
        embeddings = embed_all(g, GAME, "rich")
        return embeddings.target @ embeddings.source.T

    single, dual = matrix("single"), matrix("dual")
    torch.testing.assert_close(single, single.T)
    assert (dual - dual.T).abs().max() > 1e-2


def test_the_two_k_hop_subgraph_is_enough():
    """Eq. 12: p of the players and t of the targets are the same on it as on the whole graph."""
    g = new()
    targets = torch.tensor([3, 17])
    seen = EncoderGraph.of(GAME.graph, INPUTS)
    whole_p, whole_t = g(seen)
    nodes = GAME.task.encoder_nodes(GAME.graph, targets, 4)
    assert len(nodes) < 40
    p, t = g(seen.part(nodes, seen.sizes))
    for again, once in zip(g(EncoderGraph.around(GAME.graph, nodes, INPUTS[nodes])), (p, t), strict=True):
        torch.testing.assert_close(again, once)
    players = GAME.players(targets).player.unique()
    torch.testing.assert_close(p[lookup_sorted(players, nodes)[0]], whole_p[players])
    torch.testing.assert_close(t[lookup_sorted(targets, nodes)[0]], whole_t[targets])


def test_encoder_is_a_dense_gcn():
    g = new(encoder="plain", layers=1)
    dense = torch.eye(40)
    dense[GAME.graph.edges()[1], GAME.graph.edges()[0]] = 1
    scale = dense.sum(1).rsqrt()
    normalised = scale[:, None] * dense * scale[None, :]
    conv = g.encoder.convs[0]
    expected = torch.relu(normalised @ torch.relu(g.encoder.first(INPUTS)) @ conv.weight + conv.bias * scale[:, None])
    torch.testing.assert_close(g.encoder(EncoderGraph.of(GAME.graph, INPUTS), INPUTS), expected)


def test_zero_layers_make_an_mlp():
    g = new(layers=0)
    lonely = EncoderGraph.of(dgl.graph(([], []), num_nodes=40), INPUTS)
    torch.testing.assert_close(g(lonely)[0], g(EncoderGraph.of(GAME.graph, INPUTS))[0])


def test_graph_task_pools_t_by_max():
    """Eq. 7."""
    batch = dgl.batch([random_graph(size, 2 * size, size) for size in (5, 7, 4)])
    game = Game.create(PooledGCN(), batch, torch.randn(16, 3, generator=torch.Generator().manual_seed(2)), "graph")
    inputs = explainer_inputs(game, "rich")
    torch.manual_seed(0)
    g = Explainer(ExplainerConfig("graph", inputs.shape[1], 3, hops=2, layers=2, dim=5, gate="none")).eval()
    seen = EncoderGraph.of(batch, inputs)
    _, t = g(seen)
    each = g.target_head(g.encoder(seen, inputs))
    torch.testing.assert_close(t[1], each[5:12].max(dim=0).values)
    result = Scorer(g, game, embed_all(g, game, "rich")).explain(torch.tensor([2, 0]))
    alone = Scorer(g, game, embed_all(g, game, "rich")).explain(torch.tensor([0]))
    torch.testing.assert_close(result.scores[4:], alone.scores)


def test_relabelling_nodes_permutes_scores():
    g = new()
    before = Scorer(g, GAME, embed_all(g, GAME, "rich")).explain(torch.arange(40)).to_frame()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))  # new name of node i is order[i]
    src, dst = GAME.graph.edges()
    renamed = dgl.graph((order[src], order[dst]), num_nodes=40)
    game = Game.create(GAME.f, renamed, GAME.features[order.argsort()], hops=2)
    after = Scorer(g, game, embed_all(g, game, "rich")).explain(torch.arange(40)).to_frame()
    scores = {(row.target, row.player): row.score for row in after.itertuples()}
    assert before.score.std() > 1e-3
    for row in before.itertuples():
        assert abs(scores[int(order[row.target]), int(order[row.player])] - row.score) < 1e-4


def test_many_targets_equal_one_at_a_time(monkeypatch):
    g = new()
    embeddings = embed_all(g, GAME, "rich")
    together = Scorer(g, GAME, embeddings).explain(torch.arange(40))
    alone = torch.cat([Scorer(g, GAME, embeddings).explain(torch.tensor([i])).scores for i in range(40)])
    torch.testing.assert_close(together.scores, alone)
    monkeypatch.setattr("dgl_lara._util.memory_budget.WALK_BYTES", CHUNK_BYTES // 60)
    assert len(GAME.chunks(torch.arange(40))) > 3
    torch.testing.assert_close(Scorer(g, GAME, embeddings).explain(torch.arange(40)).scores, alone)


def test_other_classes_are_explained_unless_only_one_was_learned():
    g = new()
    embeddings = embed_all(g, GAME, "rich")
    targets = torch.arange(5)
    other = (GAME.explained_class[:5] + 1) % 3
    assert (
        Scorer(g, GAME, embeddings).explain(targets, ClassQuery(other)).scores
        - Scorer(g, GAME, embeddings).explain(targets).scores
    ).abs().max() > 1e-4
    narrow = new(all_classes=False)
    with raises("classes.predicted_only"):
        Scorer(narrow, GAME, embed_all(narrow, GAME, "rich")).explain(targets, ClassQuery(other))


def test_unseen_outliers_cannot_blow_up():
    g = new()
    fit_normalisation(g, INPUTS)
    wild = INPUTS.clone()
    wild[7] = 1e6
    p, t = g(EncoderGraph.of(GAME.graph, wild))
    calm, _ = g(EncoderGraph.of(GAME.graph, INPUTS))
    assert p.abs().max() < 10 * calm.abs().max()


def test_pair_scores_are_differentiable():
    """The running-mean objective trains through them."""
    p, t = torch.randn(40, 15, requires_grad=True), torch.randn(2, 15, requires_grad=True)
    players = GAME.players(torch.tensor([3, 17]))
    g = new()
    g.decoder.scores(g, PairBatch(GAME, players, p, t)).sum().backward()
    assert p.grad.abs().sum() > 0 and t.grad.abs().sum() > 0


def test_targets_outside_are_refused():
    g = new()
    with raises("targets.range", most=39, got=40):
        Scorer(g, GAME, Embeddings(torch.zeros(1), torch.zeros(1))).explain(torch.tensor([3, 40]))


def test_rich_inputs_are_features_degree_logits_and_solo_logits():
    parts = INPUTS.split([3, 1, 3, 3], dim=1)
    x = GAME.features
    torch.testing.assert_close(parts[0], torch.where(x >= 0, torch.log(1 + x.abs()), -torch.log(1 + x.abs())))
    torch.testing.assert_close(parts[1][:, 0], torch.log(1 + GAME.graph.in_degrees().float()))
    torch.testing.assert_close(parts[2], GAME.full_logits)
    with torch.no_grad():
        torch.testing.assert_close(parts[3], GAME.f(edgeless(GAME.graph, torch.arange(40)), x))
    assert (parts[3] - parts[2]).abs().max() > 0.1


def test_rich_inputs_of_a_graph_task_repeat_the_graphs_logits():
    batch = dgl.batch([random_graph(size, 2 * size, size) for size in (5, 7, 4)])
    game = Game.create(PooledGCN(), batch, torch.randn(16, 3, generator=torch.Generator().manual_seed(2)), "graph")
    logits = explainer_inputs(game, "rich")[:, 4:7]
    for node, graph in ((0, 0), (4, 0), (5, 1), (11, 1), (12, 2), (15, 2)):
        torch.testing.assert_close(logits[node], game.full_logits[graph])


def test_the_model_is_called_once_for_equal_nodes():
    """Alone: by their features and loops."""

    def summed(graph, h):  # without a norm, so that every loop counts
        return dgl.ops.segment_reduce(graph.batch_num_nodes(), dgl.ops.copy_u_sum(graph, h) + h, "sum")

    graphs = [random_graph(size, 2 * size, size) for size in (5, 7, 4)]
    graphs[0].add_edges([3, 3], [3, 3])
    graphs[1].add_edges([1], [1])
    batch = dgl.batch(graphs)
    kinds = torch.randn(2, 3, generator=torch.Generator().manual_seed(2))
    game = Game.create(summed, batch, kinds[torch.arange(16) % 2], "graph")
    before = game.caller.nodes_evaluated
    together = explainer_inputs(game, "rich")
    assert game.caller.nodes_evaluated - before == 2 + 2  # two kinds; one of them with two loops, one with one
    apart = torch.cat([explainer_inputs(game, "rich", torch.tensor([node])) for node in range(16)])
    torch.testing.assert_close(together, apart)
    assert together.unique(dim=0).shape[0] > 6 and together[:, 7:].unique(dim=0).shape[0] == 4


def test_normalisation_centres_scales_and_leaves_constant_columns_alone():
    g = new()
    inputs = INPUTS.clone()
    inputs[:, 0] = 7.0
    fit_normalisation(g, inputs)
    torch.testing.assert_close(g.spread[0], torch.tensor(1.0))
    torch.testing.assert_close(g.centre[1:], inputs[:, 1:].median(0).values)
    torch.testing.assert_close(g.spread[1:], inputs[:, 1:].std(0, unbiased=False))
    assert bool(torch.isfinite(g(EncoderGraph.of(GAME.graph, inputs))[0]).all())


def test_scores_come_in_units_of_unit():
    g = new()
    before = Scorer(g, GAME, embed_all(g, GAME, "rich")).explain(torch.arange(40)).scores
    g.unit.fill_(3.0)
    after = Scorer(g, GAME, embed_all(g, GAME, "rich")).explain(torch.arange(40)).scores
    torch.testing.assert_close(after, 3 * before)

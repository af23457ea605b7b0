"""GNNExplainer and PGExplainer: on a model whose decisive edges are known, and against their one-at-a-time form."""

import copy
from dataclasses import replace

import dgl
import pytest
import torch
from codes import raises
from games import gcn_game, random_graph, star_game

from dgl_lara.baselines.common import edge_masks as edges_module
from dgl_lara.baselines.common.edge_masks import EdgeScores, mask_batches, node_scores
from dgl_lara.baselines.common.method import BenchmarkSetting
from dgl_lara.baselines.gnn_explainer import GNNExplainer
from dgl_lara.baselines.pg_explainer import SETTINGS, PGExplainer, PGExplainerConfig
from dgl_lara.cli.reproduce import script
from dgl_lara.datasets import Options, load
from dgl_lara.errors import LaraError
from dgl_lara.game.game import Game
from dgl_lara.gnns.models import GNN, ModelConfig
from dgl_lara.metrics.fidelity import fidelity

occlusion, edge_auc = script("occlusion"), script("edge_auc").edge_auc
studied_targets = script("edge_auc").studied_targets
LEGS, SPIDERS = 5, 12
SPIDER = 1 + 2 * LEGS  # a body, its knees 1..5 and the feet 6..10 behind them
QUICK = PGExplainerConfig(lr=0.02, size=0.1, entropy=0.1, temperature=(5.0, 1.0))


class Walks(torch.nn.Module):
    """Class 1 is what walks two steps from feet that carry a signal to the body; nothing else counts."""

    def __init__(self, task):
        super().__init__()
        self.task = task
        self.gain = torch.nn.Parameter(torch.tensor(8.0))

    def states(self, graph, features, edge_weight=None):
        weight = features.new_ones(graph.num_edges()) if edge_weight is None else edge_weight
        once = dgl.ops.u_mul_e_sum(graph, features[:, :1], weight.unsqueeze(1))
        return [features, once, dgl.ops.u_mul_e_sum(graph, once, weight.unsqueeze(1))]

    def embed(self, graph, features):
        return torch.cat(self.states(graph, features), dim=1)

    def forward(self, graph, features, edge_weight=None):
        arrived = self.gain * self.states(graph, features, edge_weight)[-1] * features[:, 1:]
        if self.task == "graph":
            arrived = dgl.ops.segment_reduce(graph.batch_num_nodes(), arrived, "sum")
        return torch.cat([torch.full_like(arrived, 2.0), arrived], dim=1)


def spiders(task):
    """(game, targets, truth of the edges): in every spider another leg carries the signal."""
    knee = torch.arange(1, LEGS + 1)
    u = torch.cat([torch.zeros_like(knee), knee])
    v = torch.cat([knee, knee + LEGS])
    one = dgl.graph((torch.cat([u, v]), torch.cat([v, u])), num_nodes=SPIDER)
    graph = dgl.batch([one] * SPIDERS)
    body = torch.arange(SPIDERS) * SPIDER
    leg = torch.arange(SPIDERS) % LEGS + 1
    features = torch.zeros(SPIDERS * SPIDER, 2)
    features[body, 1] = 1
    features[body + leg + LEGS, 0] = 1
    decisive = torch.zeros(SPIDERS * SPIDER, dtype=torch.bool)
    decisive[torch.cat([body, body + leg, body + leg + LEGS])] = True
    src, dst = graph.edges()
    targets = body if task == "node" else torch.arange(SPIDERS)
    return Game.create(Walks(task), graph, features, task, hops=2), targets, decisive[src] & decisive[dst]


def gcn(task="node", seed=0):
    """A GCN as we ship it, untrained, on random graphs: degrees at the rim count."""
    graph = random_graph(40, 70, seed)
    if task == "graph":
        graph = dgl.batch([random_graph(9, 14, number) for number in range(6)])
    features = torch.randn(graph.num_nodes(), 4, generator=torch.Generator().manual_seed(seed))
    torch.manual_seed(seed)
    model = GNN(ModelConfig("gcn", task, 4, 3, hidden=8, layers=2))
    return Game.create(model, graph, features, task, hops=2)


def make(method, game, seed=0, epochs=40):
    if method == "gnn":
        return GNNExplainer(game, seed, epochs=epochs, lr=0.05)
    return PGExplainer(game, seed, replace(QUICK, epochs=epochs))


def fitted(method, game, targets, seed=0, epochs=40):
    explainer = make(method, game, seed, epochs)
    explainer.fit(targets)
    return explainer


@pytest.mark.parametrize("task", ["node", "graph"])
@pytest.mark.parametrize("method", ["gnn", "pg"])
def test_finds_the_edges_that_decide(method, task):
    game, targets, truth = spiders(task)
    assert bool((game.explained_class[targets] == 1).all())
    found = fitted(method, game, targets).explain_edges(targets)
    assert len(found.row) == game.graph.num_edges()
    for row in range(len(targets)):
        mine = found.row == row
        auc = edge_auc(game.graph, truth, found.source[mine], found.destination[mine], found.scores[mine])
        assert auc > 0.98, f"target {row}"


@pytest.mark.parametrize("task", ["node", "graph"])
def test_occlusion_is_the_change_when_the_edge_is_really_gone(task):
    game, targets = gcn(task), torch.arange(4)
    found = occlusion.EdgeOcclusion(game).explain_edges(targets)
    classes = game.explained_class
    assert found.scores.std() > 1e-3
    for place in range(0, len(found.row), 7):
        target, (u, v) = targets[found.row[place]], (found.source[place], found.destination[place])
        gone = [edge for a, b in ((u, v), (v, u)) for edge in game.graph.edge_ids(a, b, return_uv=True)[2].tolist()]
        without = dgl.remove_edges(game.graph, torch.tensor(gone))
        if task == "graph":
            lost = torch.zeros(6, dtype=torch.long)
            lost[target] = len(gone)
            without.set_batch_num_nodes(game.graph.batch_num_nodes())
            without.set_batch_num_edges(game.graph.batch_num_edges() - lost)
        change = (game.full_logits - game.f(without, game.features))[target, classes[target]]
        assert found.scores[place].item() == pytest.approx(abs(change.item()), abs=1e-5)


def test_pg_explains_what_it_was_not_fitted_on_and_fits_in_batches():
    game, targets, truth = spiders("node")
    explainer = PGExplainer(game, 0, replace(QUICK, epochs=20, batch=2))
    explainer.fit(targets[:7])
    found = explainer.explain_edges(targets[7:])
    assert edge_auc(game.graph, truth, found.source, found.destination, found.scores) > 0.98


@pytest.mark.parametrize("method", ["gnn", "pg"])
def test_nodes_take_the_mean_of_their_edges(method):
    game, targets, _ = spiders("node")
    explainer = fitted(method, game, targets)
    nodes, edges = explainer.explain(targets), explainer.explain_edges(targets)
    assert torch.equal(nodes.players.player, game.players(targets).player)
    at_body = (edges.row == 3) & (edges.source == targets[3])
    scores = nodes.scores[nodes.is_target & (nodes.players.row == 3)]
    assert edges.scores.std() > 0.01
    torch.testing.assert_close(scores, edges.scores[at_body].mean().reshape(1))
    table = fidelity(game, nodes)
    kept = table[(table["definition"] == "kept") & (table["sparsity"] == "0.7")].iloc[0]
    assert kept["fidelity-"] < 0.1 < kept["fidelity+"]  # the leg is among the kept, and all that counts


def test_a_node_without_an_edge_scores_lowest():
    players = gcn_game().players(torch.tensor([0]))
    assert len(players.player) > 3
    a, b = players.player[1], players.player[2]
    edges = EdgeScores(torch.tensor([0]), torch.tensor([0, 0]), *(torch.stack(e) for e in ([a, b], [b, a])),
                       torch.tensor([0.2, 0.6]))  # fmt: skip
    expected = torch.zeros(len(players.player))
    expected[1:3] = 0.4
    torch.testing.assert_close(node_scores(edges, players), expected)


@pytest.mark.parametrize("task", ["node", "graph"])
def test_ego_graphs_give_the_predictions_of_f(task):
    game = gcn(task)
    targets = torch.arange(game.num_targets)
    (some,) = mask_batches(game, targets)
    explainer = GNNExplainer(game)
    with torch.no_grad():
        logits = explainer.predict(some, torch.ones(len(some.edge)), game.features[some.egos.nodes])
    assert game.full_logits.std() > 0.01
    torch.testing.assert_close(logits, game.full_logits[targets], atol=1e-5, rtol=1e-4)
    if task == "node":
        assert game.context_hops == game.hops + 1
        assert len(some.edge) < some.egos.graph.num_edges()  # what lies beyond the players is not scored


@pytest.mark.parametrize("task", ["node", "graph"])
@pytest.mark.parametrize("method", ["gnn", "pg"])
def test_batched_is_one_at_a_time(method, task, monkeypatch):
    game = gcn(task)
    targets = torch.tensor([4, 0, 5, 2])
    explainer = fitted(method, game, targets, epochs=10 if method == "gnn" else 1)
    together = explainer.explain_edges(targets)
    assert together.scores.std() > 0.001
    alone = [explainer.explain_edges(target.reshape(1)) for target in targets]
    monkeypatch.setattr(edges_module, "MAX_EDGES", 30)
    assert len(list(mask_batches(game, targets))) > 1
    in_parts = explainer.explain_edges(targets)
    assert torch.equal(in_parts.row, together.row)
    for other in (alone, [in_parts]):
        for name in ("source", "destination", "scores"):
            joined = torch.cat([getattr(part, name) for part in other])
            torch.testing.assert_close(getattr(together, name), joined, atol=1e-5, rtol=1e-4)


def test_both_directions_share_a_score_where_both_exist():
    game, targets, _ = spiders("node")
    found = GNNExplainer(game).explain_edges(targets)
    score = {(int(u), int(v)): float(s) for u, v, s in zip(found.source, found.destination, found.scores, strict=True)}
    assert all(score[u, v] == score[v, u] for u, v in score)
    one_way = dgl.graph(([1, 2, 3], [0, 0, 1]), num_nodes=4)
    game = Game.create(Walks("node"), one_way, torch.ones(4, 2), hops=2)
    (some,) = mask_batches(game, torch.tensor([0]))
    assert torch.equal(some.twin, torch.arange(3))


def test_self_loops_are_not_scored():
    game, targets, _ = spiders("node")
    looped = Game.create(game.f, dgl.add_self_loop(game.graph), game.features, hops=2)
    assert len(GNNExplainer(looped).explain_edges(targets).row) == game.graph.num_edges()


@pytest.mark.parametrize("method", ["gnn", "pg"])
def test_a_seed_gives_the_same_scores_and_leaves_the_global_one_alone(method):
    game = gcn()
    targets = torch.arange(3)
    before = torch.random.get_rng_state()
    first, again, other = (fitted(method, game, targets, seed, 5).explain(targets).scores for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("method", ["gnn", "pg"])
def test_the_model_is_given_back_as_it_was(method):
    game = gcn()
    game.f.train()
    game.f.layers[1].eval()
    game.f.head.bias.requires_grad_(False)
    weights = copy.deepcopy(game.f.state_dict())
    modes = [module.training for module in game.f.modules()]
    fitted(method, game, torch.arange(3), epochs=3).explain(torch.arange(3))
    assert [module.training for module in game.f.modules()] == modes
    assert all(parameter.grad is None for parameter in game.f.parameters())
    assert [parameter.requires_grad for parameter in game.f.parameters()].count(False) == 1
    for name, value in game.f.state_dict().items():
        assert torch.equal(value, weights[name])
    assert torch.is_grad_enabled()


def test_settings_of_a_data_set():
    game, _, _ = spiders("node")
    known, other = (PGExplainer.for_benchmark(game, 0, BenchmarkSetting(name)) for name in ("ba-shapes", "my-own.npz"))
    assert known.config is SETTINGS["ba-shapes"] and other.config == PGExplainerConfig()
    assert not GNNExplainer.for_benchmark(game, 0, BenchmarkSetting("ba-2motifs")).mask_features


def test_a_model_that_takes_edge_weights_is_not_refused_for_lack_of_anything_else():
    """Any name that models use for them will do; a model without them is told what is missing."""

    class Weighted(torch.nn.Module):
        def forward(self, graph, features, eweight=None):
            weight = features.new_ones(graph.num_edges()) if eweight is None else eweight
            arrived = dgl.ops.u_mul_e_sum(graph, features, weight.unsqueeze(1))
            return torch.cat([arrived, -arrived], dim=1)

    graph = dgl.graph(([1, 2, 3], [0, 0, 0]), num_nodes=4)
    game = Game.create(Weighted(), graph, torch.tensor([[0.0], [1.0], [0.1], [5.0]]), hops=1)
    scores = GNNExplainer(game, epochs=60).explain(torch.tensor([0])).scores
    assert scores[3] > scores[2]


def test_edge_auc_by_hand():
    graph = dgl.graph(([0, 1, 2, 0], [1, 2, 0, 2]))
    truth = torch.tensor([True, False, False, True])
    # scored twice by two targets, in another order: the true ones have .9, .3, the others .5, .1
    u, v = torch.tensor([1, 0, 2, 0]), torch.tensor([2, 1, 0, 2])
    assert edge_auc(graph, truth, u, v, torch.tensor([0.5, 0.9, 0.1, 0.3])) == pytest.approx(0.75)


@pytest.mark.parametrize(("name", "count"), [("ba-shapes", 60), ("tree-cycles", 60), ("ba-2motifs", 200)])
def test_studied_targets_have_a_motif(name, count):
    dataset = load(name, Options(source="generated"))
    targets = studied_targets(dataset)
    assert len(torch.unique(targets)) == count
    if dataset.task == "node":
        assert len(torch.unique(dataset.motif[targets])) == count and int(dataset.motif[targets].min()) >= 0


def test_studied_molecules_carry_a_group():
    dataset = load("molecules")
    targets = studied_targets(dataset)
    with_group = dataset.graph_of_node[dataset.motif >= 0].unique()
    assert 0 < len(targets) < dataset.num_targets and torch.equal(targets, with_group)


def test_mistakes(monkeypatch):
    monkeypatch.setattr(occlusion, "MAX_CALLS", 3)
    game = spiders("node")[0]
    for method in (GNNExplainer, PGExplainer):
        with raises("baseline.needs_edge_weights"):
            method(star_game())
    with raises("baseline.not_fitted"):
        PGExplainer(game).explain(torch.arange(3))
    for call in (
        lambda: PGExplainer(game).fit(torch.tensor([10_000])),
        lambda: occlusion.EdgeOcclusion(gcn()).explain_edges(torch.arange(4)),
        lambda: studied_targets(load("citation", Options(nodes=400))),
    ):
        with pytest.raises(LaraError):
            call()

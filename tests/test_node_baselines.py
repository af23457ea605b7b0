"""Methods that score nodes: each on a case whose answer is known, and what all of them promise."""

import math

import dgl
import pytest
import torch
from codes import raises
from games import PooledGCN, SmallGCN, gcn_game, random_graph, star_game

from dgl_lara._util.randomness import seeded
from dgl_lara.attribution.exact import all_coalitions
from dgl_lara.baselines import orphicx
from dgl_lara.baselines.abs_gradient import AbsoluteGradientInput
from dgl_lara.baselines.common.ego_graphs import ego_graphs
from dgl_lara.baselines.fastdnx import FastDnX
from dgl_lara.baselines.gradient import GradientInput
from dgl_lara.baselines.graphsvx import GraphSVX, coalitions
from dgl_lara.baselines.orphicx import (
    OrphicX,
    OrphicXConfig,
    information_flow,
    node_means,
    non_edges,
    refined_labels,
    within_budget,
)
from dgl_lara.game.game import Game
from dgl_lara.gnns.models import GNN, ModelConfig


class LinearGNN(torch.nn.Module):
    """Two steps of the symmetrically normalised adjacency, one linear map: the SGC."""

    def __init__(self, in_dim=3, classes=3, seed=0):
        super().__init__()
        self.linear = torch.nn.Linear(in_dim, classes)
        with torch.no_grad():
            for number, parameter in enumerate(self.parameters()):
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed + number)))

    def forward(self, graph, h):
        scale = (graph.in_degrees().float() + 1).rsqrt().unsqueeze(1)
        for _ in range(2):
            h = h * scale
            h = (dgl.ops.copy_u_sum(graph, h) + h) * scale
        return self.linear(h)


def normalised_square(graph):
    """Â² of the graph, dense."""
    a = torch.eye(graph.num_nodes())
    src, dst = graph.edges()
    a[dst, src] += 1
    scale = (graph.in_degrees().float() + 1).rsqrt()
    a = scale.unsqueeze(1) * a * scale
    return a @ a


def linear_game(nodes=14, edges=18, seed=0):
    graph = random_graph(nodes, edges, seed)
    features = torch.randn(nodes, 3, generator=torch.Generator().manual_seed(seed + 1))
    return Game.create(LinearGNN(), graph, features, hops=2)


def graph_game(graphs=6):
    parts = [random_graph(5 + number, 7 + number, number) for number in range(graphs)]
    batch = dgl.batch(parts)
    features = torch.randn(batch.num_nodes(), 3, generator=torch.Generator().manual_seed(3))
    return Game.create(PooledGCN(), batch, features, task="graph", hops=2)


def exact_shapley(game, players):
    """By enumeration of all coalitions, each weighted with s! (n - s - 1)! / n!."""
    scores = []
    for row in range(len(players.targets)):
        one = players.part(slice(row, row + 1))
        n = int(one.counts[0])
        keep = all_coalitions(n)
        values = game.values_per_target(one, keep)[:, 0].double()
        sizes = keep.sum(1)
        for j in range(n):
            without = (~keep[:, j]).nonzero().flatten()
            weights = torch.tensor(
                [math.factorial(s) * math.factorial(n - s - 1) / math.factorial(n) for s in sizes[without].tolist()]
            )
            scores.append((weights * (values[without + 2**j] - values[without])).sum())
    return torch.stack(scores).float()


# --- gradient -----------------------------------------------------------------------------------------------------


def test_gradient_of_a_linear_model_is_its_decomposition():
    game = linear_game()
    targets = torch.arange(14)
    explanations = GradientInput(game).explain(targets)
    players = explanations.players
    v, j = players.targets[players.row], players.player
    weight = game.f.linear.weight[game.explained_class[v]].detach()
    terms = normalised_square(game.graph)[v, j].unsqueeze(1) * weight * game.features[j]
    assert terms.std() > 0.05
    torch.testing.assert_close(explanations.scores, terms.sum(1))
    absolute = AbsoluteGradientInput(game).explain(targets).scores
    torch.testing.assert_close(absolute, terms.abs().sum(1))


def test_gradient_follows_the_explained_value():
    """The derivative of the probability, by finite differences."""
    game = gcn_game(value="probability")
    target, player, step = 3, 3, 1e-3
    explanations = GradientInput(game).explain(torch.tensor([target]))
    place = (explanations.players.player == player).nonzero().item()
    moved = game.features.clone()
    moved[player] *= 1 + step
    after = game.f(game.graph, moved).softmax(1)[target, game.explained_class[target]]
    expected = (after - game.full_values[target, game.explained_class[target]]) / step
    assert expected.abs() > 1e-3
    torch.testing.assert_close(explanations.scores[place], expected.detach(), rtol=0.02, atol=1e-4)


# --- GraphSVX -----------------------------------------------------------------------------------------------------


def test_graphsvx_of_the_star_has_the_known_shapley_values():
    explanations = GraphSVX(star_game(), target_plays=False).explain(torch.tensor([0]))
    torch.testing.assert_close(explanations.scores, torch.tensor([0, 2 / 3, 7 / 6, 13 / 6]))


@pytest.mark.parametrize("seed", [0, 1, 2, "graphs"])
def test_graphsvx_with_all_coalitions_is_exact(seed):
    game = graph_game(graphs=3) if seed == "graphs" else gcn_game(nodes=9, edges=9, seed=seed)
    targets = torch.arange(game.num_targets)
    expected = exact_shapley(game, game.players(targets))
    assert expected.std() > 0.1
    scores = GraphSVX(game, samples=512).explain(targets).scores
    torch.testing.assert_close(scores, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("sampling", ["uniform", "smarter"])
def test_graphsvx_from_some_coalitions_comes_near_the_exact_values(sampling):
    game = gcn_game(nodes=13, edges=28, seed=1)
    sizes = game.players(torch.arange(13)).counts
    targets = (sizes >= 10).nonzero().flatten()
    assert len(targets) >= 4 and int(sizes.max()) <= 13  # at least 1,024 coalitions, of which 400 are drawn
    expected = exact_shapley(game, game.players(targets))
    scores = GraphSVX(game, samples=400, sampling=sampling).explain(targets).scores
    assert ((scores - expected) ** 2).mean() / expected.var() < 0.05


def test_graphsvx_scores_add_up():
    """To f(all) - null, with the target among the players and without."""
    game = gcn_game(nodes=30, edges=60, seed=2)
    targets = torch.tensor([0, 7, 21])
    full = game.full_values[targets, game.explained_class[targets]]
    null = game.null_values[game.explained_class[targets]]
    for target_plays in (True, False):
        explanations = GraphSVX(game, samples=60, target_plays=target_plays).explain(targets)
        total = torch.zeros(3).index_add_(0, explanations.players.row, explanations.scores)
        torch.testing.assert_close(total, full - null)


def test_smarter_coalitions_begin_with_the_smallest_and_largest():
    masks = coalitions(20, 200, "smarter", torch.Generator().manual_seed(0))
    sizes = masks.sum(1)
    assert len(masks) == 200 and sizes[:2].tolist() == [0, 20]
    assert sorted(sizes[2:42].tolist()) == [1] * 20 + [19] * 20
    assert len(torch.unique(masks[2:42], dim=0)) == 40
    assert set(sizes[42:182].tolist()) == {2, 18}
    assert sizes[184:].float().mean() > 7


# --- FastDnX ------------------------------------------------------------------------------------------------------


def linear_terms(game, players):
    """(num_pairs, classes): Â²[v, j] x_j W of the linear model itself; softmax sees W only up to a common column."""
    v, j = players.targets[players.row], players.player
    weight = game.f.linear.weight.detach().T
    weight = weight - weight.mean(1, keepdim=True)
    return normalised_square(game.graph)[v, j].unsqueeze(1) * (game.features[j] @ weight)


def test_fastdnx_of_a_linear_model_is_its_decomposition():
    game = linear_game(nodes=60, edges=90)
    targets = torch.arange(60)
    by_class = FastDnX(game, credit="class")
    by_class.fit(targets)
    explanations = by_class.explain(targets)
    players = explanations.players
    terms = linear_terms(game, players)
    classes = game.explained_class[players.row]
    expected = terms.gather(1, classes.unsqueeze(1)).squeeze(1)
    assert expected.std() > 0.05
    torch.testing.assert_close(explanations.scores, expected, rtol=0.02, atol=0.01)

    paper = FastDnX(game)
    paper.fit(targets)
    z = torch.zeros(60, 3).index_add_(0, players.row, terms)
    expected = (terms * z[players.row]).sum(1)
    expected[players.hop == 0] = (z * z).sum(1)
    torch.testing.assert_close(paper.explain(targets).scores, expected, rtol=0.05, atol=0.02)


def test_fastdnx_of_a_linear_graph_model_is_its_decomposition():
    class LinearMean(LinearGNN):
        def forward(self, graph, h):
            return dgl.ops.segment_reduce(graph.batch_num_nodes(), super().forward(graph, h), "mean")

    parts = [random_graph(6 + number % 5, 8, number) for number in range(40)]
    batch = dgl.batch([dgl.remove_edges(part, torch.arange(0, part.num_edges(), 4)) for part in parts])  # one-way
    features = torch.randn(batch.num_nodes(), 3, generator=torch.Generator().manual_seed(3))
    game = Game.create(LinearMean(), batch, features, task="graph", hops=2)
    method = FastDnX(game)
    method.fit(torch.arange(40))
    explanations = method.explain(torch.arange(40))
    shares = normalised_square(batch).sum(0) / torch.repeat_interleave(batch.batch_num_nodes(), batch.batch_num_nodes())
    weight = game.f.linear.weight.detach()
    weight = (weight - weight.mean(0))[game.explained_class[explanations.players.row]]
    expected = shares * (features * weight).sum(1)
    assert expected.std() > 0.05
    torch.testing.assert_close(explanations.scores, expected, rtol=0.02, atol=0.01)


# --- OrphicX ------------------------------------------------------------------------------------------------------


class CountsRed(torch.nn.Module):
    """Class 0 where the weights of the edges from red neighbours (second feature) add up to more than 1.5."""

    def states(self, graph, features, edge_weight=None):
        weight = torch.ones(graph.num_edges()) if edge_weight is None else edge_weight
        return [dgl.ops.u_mul_e_sum(graph, features, weight.unsqueeze(1))]

    def forward(self, graph, features, edge_weight=None):
        red = 8 * (self.states(graph, features, edge_weight)[0][:, 1] - 1.5)
        return torch.stack([red, torch.zeros_like(red)], dim=1)


def red_and_blue_game(hubs=60):
    """Hubs with five leaves: in every second star two are red (and decide the class), the others are blue."""
    hub = torch.arange(hubs).repeat_interleave(5)
    leaf = torch.arange(hubs * 5) + hubs
    red = (torch.arange(hubs * 5) % 5 < 2) & (hub % 2 == 0)
    features = torch.zeros(hubs * 6, 3)
    features[:hubs, 0] = 1
    features[leaf, 1], features[leaf, 2] = red.float(), (~red).float()
    graph = dgl.graph((torch.cat([leaf, hub]), torch.cat([hub, leaf])), num_nodes=hubs * 6)
    return Game.create(CountsRed(), graph, features, hops=1)


@pytest.mark.long
def test_orphicx_finds_what_decides_the_class():
    """In stars it has not seen, red leaves stand .1 above blue ones (of a range of .5); untrained by 1e-4."""
    game = red_and_blue_game()
    method = OrphicX(game, config=OrphicXConfig(steps=150, draws_alpha=5, draws_beta=10, lr=0.01))
    method.fit(torch.arange(40))
    unseen = torch.arange(40, 60, 2)
    explanations = method.explain(unseen)
    scores = explanations.scores.view(10, 6)
    assert explanations.players.hop.view(10, 6)[:, 0].eq(0).all()
    assert (scores[:, 1:3].min(dim=1).values - scores[:, 3:].max(dim=1).values > 0.1).all()


def test_information_flow_of_known_cases():
    certain = torch.eye(2)
    from_alpha = certain.repeat(3, 1).unsqueeze(1).expand(6, 4, 2)  # y follows alpha
    torch.testing.assert_close(information_flow(from_alpha), torch.tensor(2.0).log())
    from_beta = certain.repeat(2, 1).unsqueeze(0).expand(6, 4, 2)  # y follows beta
    torch.testing.assert_close(information_flow(from_beta), torch.tensor(0.0))


def test_a_node_has_the_mean_of_its_edges():
    graph = dgl.graph(([0, 1, 2], [1, 0, 1]), num_nodes=4)
    torch.testing.assert_close(node_means(graph, torch.tensor([1.0, 2.0, 6.0])), torch.tensor([1.5, 3.0, 6.0, 0.0]))


def test_non_edges_lie_within_a_graph_and_join_nothing():
    game = gcn_game(nodes=30, edges=45, seed=4)
    players = game.players(torch.arange(30))
    batch = ego_graphs(game, players, game.hops)
    many = batch.row[batch.graph.edges()[0]].repeat(50)
    u, v = non_edges(batch, players.indptr, many, torch.Generator().manual_seed(0))
    assert len(u) > 1000
    assert torch.equal(batch.row[u], batch.row[v]) and not (u == v).any()
    assert not batch.graph.has_edges_between(u, v).any()
    touched = torch.zeros(len(batch.row), dtype=torch.bool)
    touched[u] = True
    joined_to_all = batch.graph.in_degrees() == players.counts[batch.row] - 1
    assert touched[~joined_to_all].all()


def test_refined_labels_tell_apart_what_refinement_can_and_number_isomorphic_graphs_alike():
    path = dgl.graph(([0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]))
    shuffled = dgl.graph(([4, 2, 2, 0, 0, 3, 3, 1], [2, 4, 0, 2, 3, 0, 1, 3]))  # the path 4-2-0-3-1
    labels = refined_labels(dgl.batch([path, shuffled]), torch.arange(2).repeat_interleave(5))
    ends, inner, middle = labels[0], labels[1], labels[2]
    assert len({ends.item(), inner.item(), middle.item()}) == 3 and ends == 0
    assert labels.tolist() == [
        *(x.item() for x in (ends, inner, middle, inner, ends)),
        *(x.item() for x in (middle, ends, inner, inner, ends)),
    ]


def test_orphicx_cuts_its_batches_to_the_memory(monkeypatch):
    game = open_game()
    players = game.players(torch.arange(30))
    assert torch.equal(within_budget(game, players).targets, torch.arange(30))
    monkeypatch.setattr(orphicx, "STEP_EDGES", 100)
    cut = within_budget(game, players)
    assert 1 < len(cut.targets) < 30
    assert game.graph.in_degrees(cut.player).sum() <= 100
    monkeypatch.setattr(orphicx, "STEP_EDGES", 1)
    monkeypatch.setattr(orphicx, "FLOW_EDGES", 1)
    assert len(within_budget(game, players).targets) == 1
    assert small(OrphicX, game).explain(torch.arange(30)).scores.std() > 0


# --- all of them -------------------------------------------------------------------------------------

METHODS = [GradientInput, AbsoluteGradientInput, GraphSVX, FastDnX, OrphicX]


def small(method, game, seed=0):
    """The method with settings that keep a test short, ready to explain."""
    short = OrphicXConfig(steps=4, draws_alpha=3, draws_beta=4, batch_size=8, check_every=2)
    settings = {GraphSVX: {"samples": 50}, OrphicX: {"config": short}}
    made = method(game, seed, **settings.get(method, {}))
    made.fit(torch.arange(game.num_targets))
    return made


def open_game(task="node"):
    """On one of our models, which offer whatever a method needs."""
    config = ModelConfig("gcn", task, in_dim=3, num_classes=3, hidden=6, layers=2)
    with seeded(0):
        model = GNN(config)
    old = gcn_game(nodes=30, edges=45, seed=4) if task == "node" else graph_game()
    return Game.create(model, old.graph, old.features, task, hops=2)


def test_orphicx_learns_for_its_epochs_unless_nothing_gets_better(monkeypatch):
    game, learned, whole = open_game(), [], OrphicX._loss

    def loss(self, model, targets, random, noise):
        learned.extend([len(targets)] if noise else [])
        return whole(self, model, targets, random, noise) if noise else torch.tensor(float(next(reached)))

    monkeypatch.setattr(OrphicX, "_loss", loss)
    config = OrphicXConfig(epochs=6, patience=2, draws_alpha=2, draws_beta=2, batch_size=9, check_every=3)
    # 30 targets, 3 held out, 3 batches an epoch; better every time, then never again after the second epoch
    for losses, steps in ((range(9, 0, -1), 18), ([5, 4, 4, 4, 4, 4], 12)):
        reached = iter(losses)
        learned.clear()
        OrphicX(game, config=config).fit(torch.arange(30))
        assert len(learned) == steps and set(learned) == {9}


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_gives_what_single_targets_give(method):
    game = open_game()
    made = small(method, game)
    targets = torch.tensor([11, 3, 29])
    together = made.explain(targets).scores
    assert together.std() > 0
    torch.testing.assert_close(together, torch.cat([made.explain(target.unsqueeze(0)).scores for target in targets]))


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_numbers_and_the_model_is_untouched(method):
    game = open_game()
    game.f.train()
    before = {name: value.clone() for name, value in game.f.state_dict().items()}
    random_state = torch.get_rng_state()
    first, second, other = (small(method, game, seed).explain(torch.arange(30)).scores for seed in (5, 5, 6))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert torch.equal(first, other) == (method not in (GraphSVX, OrphicX))
    assert game.f.training
    assert all(parameter.grad is None and parameter.requires_grad for parameter in game.f.parameters())
    assert all(torch.equal(value, before[name]) for name, value in game.f.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize("method", METHODS)
def test_graphs_are_explained_too(method):
    game = open_game("graph")
    explanations = small(method, game).explain(torch.tensor([4, 1]))
    assert explanations.players.counts.tolist() == [9, 6]
    assert explanations.scores.isfinite().all() and explanations.scores.std() > 0
    assert len(small(method, game).explain(torch.tensor([], dtype=torch.long))) == 0


def test_mistakes():
    graph = random_graph(12, 14, 0)
    cut_off = Game.create(lambda graph, x: SmallGCN()(graph, x).detach(), graph, torch.ones(12, 3), hops=2)
    target = torch.tensor([0])
    for code, call in (
        ("baseline.needs_gradients", lambda: GradientInput(cut_off).explain(target)),
        ("graphsvx.sampling", lambda: GraphSVX(star_game(), sampling="clever")),
        ("graphsvx.samples", lambda: GraphSVX(star_game(), samples=1)),
        ("fastdnx.credit", lambda: FastDnX(star_game(), credit="all")),
        ("baseline.not_fitted", lambda: FastDnX(star_game()).explain(target)),
        ("baseline.not_fitted", lambda: OrphicX(red_and_blue_game()).explain(target)),
        ("baseline.needs_edge_weights", lambda: OrphicX(star_game())),
    ):
        with raises(code):
            call()

"""The trained explainer on other graphs: nothing is learned, and it says how far off they are."""

import dgl
import pytest
import torch
from codes import raises
from games import PooledGCN, SmallGCN, random_graph
from test_edge_data import EdgeNet, numbers, parallel
from test_links import Pairing

from dgl_lara import LARA
from dgl_lara._util.randomness import generator
from dgl_lara.inference.novelty import novelty
from dgl_lara.training.config import TrainingConfig

SMALL = TrainingConfig(hidden=16, dim=5, masks=4, steps=20)
NODES = 60


def drawn(nodes, columns=3):
    return torch.randn(nodes, columns, generator=generator(1))


@pytest.fixture(scope="module")
def lara():
    return LARA(SmallGCN(), random_graph(NODES, 70, 0), drawn(NODES), hops=2, config=SMALL).fit(range(NODES))


def grown(graph, x):
    """Five nodes more, all of them at node 0 or at each other."""
    ends = torch.tensor([[60, 0], [61, 0], [0, 60], [61, 62], [62, 61], [63, 61], [64, 63], [0, 64]]).T
    graph = dgl.add_edges(dgl.add_nodes(graph, 5), *ends)
    return graph, torch.cat([x, torch.randn(5, 3, generator=generator(7))])


@pytest.mark.parametrize("count", [4, 40])
def test_on_the_same_graph(lara, count):
    """From the surroundings of a few, and from one pass over everything."""
    targets = range(count)
    expected = lara.explain(targets, corrected=False)
    found = lara.explain_on(lara.graph, lara.features, targets)
    assert found.players.player.tolist() == expected.players.player.tolist()
    torch.testing.assert_close(found.scores, expected.scores, atol=1e-5, rtol=1e-4)
    assert found.source == ["amortised"] * count
    torch.testing.assert_close(found.variance, expected.variance, atol=1e-5, rtol=1e-3)


def test_what_has_not_changed_around_keeps_its_scores(lara):
    graph, x = grown(lara.graph, lara.features)
    layers = lara.explainer_.config.layers
    # g sees K hops and as many as its layers, f of all these K hops and the degrees behind them
    reached = dgl.khop_out_subgraph(graph, torch.cat([torch.tensor([0]), torch.arange(60, 65)]), k=2 + layers + 3)[0]
    far = [node for node in range(NODES) if node not in set(reached.ndata[dgl.NID].tolist())]
    near = lara.graph.successors(0)[:1].tolist()
    assert len(far) > 2
    for targets, same in ((far, True), (near, False)):
        one = lara.explain(targets, corrected=False).scores
        other = lara.explain_on(graph, x, targets).scores
        assert (one.shape == other.shape and torch.allclose(one, other, atol=1e-5, rtol=1e-4)) == same


def test_new_nodes_are_explained(lara):
    graph, x = grown(lara.graph, lara.features)
    found = lara.explain_on(graph, x, [60, 63])
    output = SmallGCN()(graph, x).argmax(1)
    assert found.explained_class.tolist() == output[[60, 63]].tolist()
    assert torch.isfinite(found.scores).all() and len(found.novelty) == 2
    other = lara.explain_on(graph, x, [60, 63], classes=[0, 2])
    assert other.explained_class.tolist() == [0, 2]


def test_novelty_is_about_one_at_home_and_large_elsewhere(lara):
    everyone = range(NODES)
    home = lara.explain_on(lara.graph, lara.features, everyone)
    assert 0.5 < home.novelty.mean() < 1.5
    far = lara.explain_on(lara.graph, 10 * lara.features, everyone)
    assert (far.novelty > home.novelty).all() and far.novelty.mean() > 1.5 * home.novelty.mean()
    x = lara.features.clone()
    x[7] *= 10
    one = lara.explain_on(lara.graph, x, everyone).novelty
    reached = dgl.khop_out_subgraph(lara.graph, 7, k=5)[0].ndata[dgl.NID]
    unmoved = ~torch.isin(torch.arange(NODES), reached)
    assert one[7] > home.novelty[7]
    torch.testing.assert_close(one[unmoved], home.novelty[unmoved], atol=1e-5, rtol=1e-4)
    # one by one, of some, and of everything
    torch.testing.assert_close(home[3].batch.novelty, home.novelty[3:4])
    some = lara.explain_on(lara.graph, lara.features, [3, 9]).novelty
    torch.testing.assert_close(some, home.novelty[[3, 9]], atol=1e-5, rtol=1e-4)


def test_novelty_is_the_size_of_what_g_sees_of_those_around(lara):
    from dgl_lara.explainer.inputs import explainer_inputs

    g = lara.explainer_
    off = ((explainer_inputs(lara.game, "rich") - g.centre) / g.spread).clamp(-10, 10)
    near = lara.game.task.reach(lara.graph, torch.tensor([5]), 2).player
    expected = off[near].square().mean().sqrt()
    torch.testing.assert_close(novelty(g, lara.game, "rich", torch.tensor([5]))[0], expected)


def test_nothing_is_learned_or_kept(lara):
    before = {name: part.clone() for name, part in lara.explainer_.state_dict().items()}
    scores = lara.explain([3, 5]).scores
    lara.explain_on(lara.graph, 3 * lara.features, [3, 5])
    assert all(torch.equal(part, before[name]) for name, part in lara.explainer_.state_dict().items())
    assert torch.equal(lara.explain([3, 5]).scores, scores)
    assert lara.on_graph(lara.graph, lara.features).samples_ is None


def test_edge_data_comes_along():
    graph, x = parallel(40, 50), numbers(40) / 20
    lara = LARA(EdgeNet(2), graph, x, hops=2, config=SMALL).fit(range(40))
    expected = lara.explain([3, 5], corrected=False).scores
    torch.testing.assert_close(lara.explain_on(graph, x, [3, 5]).scores, expected, atol=1e-5, rtol=1e-4)
    other = graph.clone()
    other.edata["amount"] = 2 * other.edata["amount"]
    assert not torch.allclose(lara.explain_on(other, x, [3, 5]).scores, expected, atol=1e-3)


def test_graphs():
    batch = dgl.batch([random_graph(size, 2 * size, size) for size in (5, 7, 4, 6)])
    lara = LARA(PooledGCN(), batch, drawn(22) / 5, "graph", config=SMALL).fit(range(4))
    expected = lara.explain([1, 3], corrected=False)
    alone = random_graph(7, 14, 7)
    found = lara.explain_on(alone, (drawn(22) / 5)[5:12], [0])
    torch.testing.assert_close(found.scores, expected.scores[:7], atol=1e-5, rtol=1e-4)
    assert 0.2 < found.novelty[0] < 3


def test_pairs():
    graph, x = random_graph(40, 50, 0), drawn(40) / 2
    pairs = [(n, n + 3) for n in range(30)]
    lara = LARA(Pairing(), graph, x, "link", hops=2, config=SMALL).fit(pairs)
    found = lara.explain_on(graph, x, pairs[:3])
    torch.testing.assert_close(found.scores, lara.explain(pairs[:3], corrected=False).scores, atol=1e-5, rtol=1e-4)
    assert (found.novelty > 0.2).all()
    larger = dgl.add_edges(dgl.add_nodes(graph, 1), [40, 2], [2, 40])
    new = lara.explain_on(larger, torch.cat([x, x[:1]]), [(40, 7)])
    assert torch.isfinite(new.scores).all()


@pytest.mark.parametrize("few", [True, False])
def test_other_columns(lara, few):
    """A model that takes any number of columns does not help: g was taught with three."""

    def f(graph, x):
        return SmallGCN()(graph, x[:, :3])

    taught = LARA(f, lara.graph, lara.features, hops=2, config=SMALL).fit(range(NODES))
    targets = [1, 2] if few else range(40)
    with raises("explainer.inputs", expected=10, got=11):
        taught.explain_on(lara.graph, drawn(NODES, 4), targets)
    with raises("model.feature_columns", got=4, expected=3):
        lara.explain_on(lara.graph, drawn(NODES, 4), targets)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda graph, x: (graph, x[:9], [1]), "features.rows"),
        (lambda graph, x: (graph, x, [60]), "targets.range"),
        (lambda graph, x: (graph, None, [1]), "features.none"),
        (lambda graph, x: ("graph", x, [1]), "graph.type"),
        (lambda graph, x: (graph, x, []), "targets.none"),
    ],
)
def test_mistakes_raise_codes(lara, change, code):
    with raises(code):
        lara.explain_on(*change(lara.graph, lara.features))


def test_without_training():
    with raises("lara.not_trained"):
        LARA(SmallGCN(), random_graph(9, 9, 0), drawn(9)).explain_on(random_graph(9, 9, 0), drawn(9), [1])

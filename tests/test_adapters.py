"""Models that are called otherwise, or answer otherwise, are explained as the plain model is."""

import copy
import pickle

import dgl
import pytest
import torch
from games import PooledGCN, SmallGCN, random_graph

from dgl_lara import LARA
from dgl_lara.attribution.exact import exact
from dgl_lara.blackbox.adapters import (
    edge_weight,
    element,
    features_in_graph,
    from_pyg,
    head,
    keywords,
    link_predictor,
    unwrap,
)
from dgl_lara.blackbox.adapters import pyg as alone
from dgl_lara.blackbox.identity import weights_hash, weights_of
from dgl_lara.errors import InputError, ModelError
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.game import Game
from dgl_lara.training.config import TrainingConfig

GRAPH = random_graph(40, 46, 0)
FEATURES = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
QUICK = TrainingConfig(hidden=16, dim=5, masks=4, steps=20)
PLAIN = SmallGCN()


class InGraph(SmallGCN):
    def forward(self, graph):
        return super().forward(graph, graph.ndata["feat"])


WEIGHTED = GRAPH.clone()
WEIGHTED.edata["w"] = torch.rand(GRAPH.num_edges(), generator=torch.Generator().manual_seed(3))


class Weighs(SmallGCN):
    def forward(self, graph, h, edge_weight=None):
        with graph.local_scope():
            graph.edata["own"] = torch.ones(graph.num_edges()) if edge_weight is None else edge_weight
            graph.ndata["h"] = h @ self.weights[0] @ self.weights[1]
            graph.update_all(dgl.function.u_mul_e("h", "own", "m"), dgl.function.sum("m", "h"))
            return graph.ndata["h"]


class ByKeyword(SmallGCN):
    def forward(self, *, g, inputs, scale):
        return super().forward(g, inputs) * scale


class Tuple(SmallGCN):
    def forward(self, graph, h):
        return h, super().forward(graph, h)


class Dict(SmallGCN):
    def forward(self, graph, h):
        return {"logits": super().forward(graph, h), "hidden": h}


class Heads(SmallGCN):
    def forward(self, graph, h):
        logits = super().forward(graph, h)
        return torch.stack([logits - 1, logits, logits + 1], dim=1)


SHAPES = {
    "in graph": features_in_graph(InGraph()),
    "by keyword": keywords(ByKeyword(), graph="g", features="inputs", scale=1.0),
    "tuple": element(Tuple(), 1),
    "dict": element(Dict(), "logits"),
    "head": head(Heads(), 1),
    "mean of heads": head(Heads(), "mean"),
}


@pytest.mark.parametrize("f", SHAPES.values(), ids=SHAPES)
def test_an_adapted_model_plays_the_same_game(f):
    plain, game = (Game(model, GRAPH, FEATURES, hops=2) for model in (PLAIN, f))
    torch.testing.assert_close(game.full_logits, plain.full_logits)
    keep = torch.rand(4, 40, generator=torch.Generator().manual_seed(2)) < 0.5
    torch.testing.assert_close(game.shared_values(keep), plain.shared_values(keep))


def test_adapters_nest_keep_eval_mode_and_tell_hops():
    class Noisy(InGraph):
        num_hops = 2

        def forward(self, graph):
            return (torch.nn.functional.dropout(super().forward(graph), 0.5, self.training),)

    model = Noisy().train()
    lara = LARA(element(features_in_graph(model), 0), GRAPH, FEATURES, config=QUICK).fit(range(40))
    torch.testing.assert_close(lara.game.full_logits, Game(PLAIN, GRAPH, FEATURES).full_logits)
    assert model.training and lara.game.hops == 2
    assert unwrap(lara.model) is model


@pytest.mark.parametrize(
    ("f", "sentence"),
    [
        (Tuple(), r"got a tuple of 2 elements\); choose .*adapters.element"),
        (Dict(), r"got a dict of 'logits', 'hidden'\)"),
        (Heads(), r"\(40, 3, 3\)\); choose one of its heads with dgl_lara.blackbox.adapters.head"),
        (element(Dict(), "output"), r"no element 'output' \(it has \['logits', 'hidden'\]\)"),
        (head(Heads(), 3), r"has 3 heads, numbered from 0 \(asked for 3\)"),
        (head(PLAIN, 0), r"\(rows, heads, classes\) \(got \(40, 3\)\)"),
        (InGraph(), "the model failed on 40 nodes"),
    ],
)
def test_the_way_to_the_right_adapter(f, sentence):
    with pytest.raises(ModelError, match=sentence):
        Game(f, GRAPH, FEATURES)


def test_features_default_to_those_of_the_graph():
    graph = GRAPH.clone()
    with pytest.raises(InputError, match="no 'feat'"):
        LARA(PLAIN, graph)
    graph.ndata["feat"], graph.ndata["label"] = FEATURES, torch.zeros(40)
    lara = LARA(PLAIN, graph, hops=2, config=QUICK).fit(range(40))
    torch.testing.assert_close(lara.game.full_logits, Game(PLAIN, GRAPH, FEATURES).full_logits)
    assert not lara.game.graph.ndata and set(graph.ndata) == {"feat", "label"}


def one_column(graph, h):
    return PLAIN(graph, h)[:, :1]


@pytest.mark.parametrize("f", [one_column, lambda graph, h: one_column(graph, h).squeeze(1)], ids=["(N, 1)", "(N,)"])
def test_a_single_logit_is_explained_on_the_predicted_side(f):
    z = one_column(GRAPH, FEATURES).squeeze(1)
    game = Game(f, GRAPH, FEATURES, hops=2)
    assert game.num_classes == 2 and 0 < (z > 0).sum() < 40
    torch.testing.assert_close(game.explained_class, (z > 0).long())
    torch.testing.assert_close(game.full_values[torch.arange(40), game.explained_class], z.abs())
    torch.testing.assert_close(game.full_logits.softmax(1)[:, 1], z.sigmoid())
    torch.testing.assert_close(Game(f, GRAPH, FEATURES, value="probability").full_values[:, 1], z.sigmoid())
    # phi of the other side is its mirror image
    targets = torch.tensor([0, 3])
    players = game.players(targets)
    keep = torch.rand(6, len(players.player), generator=torch.Generator().manual_seed(2)) < 0.5
    one, zero = (game.values_per_target(players, keep, ClassQuery.repeat([side], 2)) for side in (1, 0))
    torch.testing.assert_close(one, -zero)
    assert one.std() > 0.1


def test_certain_single_logits_are_not_cut_off():
    game = Game(lambda graph, h: 100 * one_column(graph, h), GRAPH, FEATURES, hops=2)
    torch.testing.assert_close(game.full_values[:, 1], 100 * one_column(GRAPH, FEATURES)[:, 0])


@pytest.mark.long
def test_regression_explains_the_number_itself():
    f = one_column
    game = Game(f, GRAPH, FEATURES, hops=2, value="output")
    z = f(GRAPH, FEATURES)
    assert (z < 0).any()
    torch.testing.assert_close(game.full_values, z)
    several = Game(PLAIN, GRAPH, FEATURES, hops=2, value="output")  # outputs are no classes: the first is explained
    assert several.full_logits.argmax(1).any() and not several.explained_class.any()
    small = (game.players(torch.arange(40)).counts <= 8).nonzero().flatten()[:3]
    players = game.players(small)
    whole = exact(game, players)
    binary = exact(Game(f, GRAPH, FEATURES, hops=2), players)
    sign = z[small, 0].sign()[players.row]
    torch.testing.assert_close(whole, sign * binary)


@pytest.mark.long
@pytest.mark.parametrize("value", ["logit", "output"])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_lara_learns_from_single_outputs(task, value):
    graph = GRAPH if task == "node" else dgl.batch([random_graph(8, 14, seed) for seed in range(5)])
    model = SmallGCN(classes=1) if task == "node" else PooledGCN(classes=1)
    lara = LARA(lambda some, h: model(some, h).squeeze(1), graph, FEATURES, task=task, value=value, hops=2)
    lara.config = TrainingConfig(hidden=32, dim=8, masks=4, steps=120)
    count = 40 if task == "node" else 5
    result = lara.fit(range(count), validation=range(count)).explain(range(count))
    assert max(row["agreement"] for row in lara.history_) > 0.6
    assert set(result.explained_class.tolist()) == ({0} if value == "output" else {0, 1})


# --- what edges carry, and links


@pytest.mark.parametrize("keyword", [None, "edge_weight"])
def test_weights_of_edges_as_an_argument(keyword):
    """The same game as a model that looks into the graph plays, and another one than without weights."""
    weighs = Weighs()
    looks = Game(lambda graph, h: weighs(graph, h, graph.edata["w"]), WEIGHTED, FEATURES, hops=1)
    game = Game(edge_weight(weighs, "w", keyword), WEIGHTED, FEATURES, hops=1)
    blind = Game(weighs, WEIGHTED, FEATURES, hops=1)
    keep = torch.rand(4, 40, generator=torch.Generator().manual_seed(2)) < 0.5
    torch.testing.assert_close(game.shared_values(keep), looks.shared_values(keep))
    assert (game.shared_values(keep) - blind.shared_values(keep)).abs().max() > 0.1
    lara = LARA(edge_weight(weighs, "w", keyword), WEIGHTED, FEATURES, config=QUICK).fit(range(40))
    torch.testing.assert_close(lara.game.full_logits, looks.full_logits)


def test_edge_data_that_is_not_there_gets_a_sentence():
    with pytest.raises(ModelError, match=r"the edge data 'w', but the edges carry nothing; put it into graph.edata"):
        LARA(edge_weight(Weighs(), "w"), GRAPH, FEATURES).game  # noqa: B018
    with pytest.raises(ModelError, match=r"'amount', but the edges carry 'w'"):
        LARA(edge_weight(Weighs(), "amount"), WEIGHTED, FEATURES).game  # noqa: B018
    with pytest.raises(ModelError, match=r"looks for 'amount'.*whose edges carry"):
        LARA(lambda graph, h: graph.edata["amount"], GRAPH, FEATURES).game  # noqa: B018


def test_weights_of_several_relations_come_by_relation():
    graph = dgl.heterograph({("a", "to", "b"): ([0, 1], [0, 0]), ("b", "back", "a"): ([0], [1])})
    graph.edges["to"].data["w"] = torch.tensor([1.0, 2.0])
    seen = []
    f = edge_weight(lambda graph, x, w: seen.append(w) or x["b"], "w")
    f(graph, {"a": torch.ones(2, 1), "b": torch.ones(1, 1)})
    assert list(seen[0]) == [("a", "to", "b")] and seen[0]["a", "to", "b"].tolist() == [1.0, 2.0]


PAIRS = torch.tensor([[0, 3], [5, 9], [20, 31]])


def dot(graph, h, u, v):
    z = PLAIN(graph, h)
    return (z[u] * z[v]).sum(1)


class PairsByKeyword(SmallGCN):
    def forward(self, *, g, inputs, source, end, scale):
        return torch.stack([torch.zeros(len(source)), scale * dot(g, inputs, source, end)], dim=1)[:, None]


def in_graph_dot(graph, u, v):
    return "something", dot(graph, graph.ndata["feat"], u, v)


def weighted_dot(graph, h, w, u, v):
    assert len(w) == graph.num_edges()
    return dot(graph, h, u, v)


LINKS = {
    "dot": link_predictor(PLAIN),
    "own score": link_predictor(PLAIN, lambda one, other: (one * other).sum(1)),
    "module": link_predictor(PLAIN, torch.nn.CosineSimilarity()),
    "in graph": element(features_in_graph(in_graph_dot), 1),
    "by keyword": head(
        keywords(PairsByKeyword(), graph="g", features="inputs", ends=("source", "end"), scale=1.0), "mean"
    ),
    "weights": edge_weight(weighted_dot, "w"),
    "weights by keyword": edge_weight(lambda graph, h, u, v, w: weighted_dot(graph, h, w, u, v), "w", "w"),
}


@pytest.mark.parametrize("name", LINKS)
def test_links_through_every_adapter(name):
    lara = LARA(LINKS[name], WEIGHTED, FEATURES, task="link", pairs=PAIRS, hops=2, config=QUICK)
    expected = dot(GRAPH, FEATURES, *PAIRS.T)
    if name == "module":
        z = PLAIN(GRAPH, FEATURES)
        expected = torch.nn.functional.cosine_similarity(z[PAIRS[:, 0]], z[PAIRS[:, 1]])
    torch.testing.assert_close(lara.game.full_outputs[:, -1], expected.detach())


def test_ends_of_other_types_and_their_mistakes():
    graph = dgl.heterograph({("user", "likes", "film"): ([0, 1, 1], [0, 0, 1])})
    x = {"user": torch.tensor([[1.0], [2.0]]), "film": torch.tensor([[3.0], [5.0]])}
    u, v = torch.tensor([0, 1]), torch.tensor([1, 0])
    assert link_predictor(lambda graph, x: x, types=("user", "film"))(graph, x, u, v).tolist() == [5, 6]
    with pytest.raises(ModelError, match=r"embeddings of user, film, and no types were given; name those of both"):
        link_predictor(lambda graph, x: x)(graph, x, u, v)
    with pytest.raises(ModelError, match=r"and types=\('user', 'item'\) was given"):
        link_predictor(lambda graph, x: x, types=("user", "item"))(graph, x, u, v)
    with pytest.raises(InputError, match="score must be 'dot' or a function"):
        link_predictor(PLAIN, "cosine")


def test_the_weights_of_a_scorer_are_weights_of_the_model():
    """A run that stores, or tells models apart by, the encoder alone would take another scorer for this one."""
    one, other = (link_predictor(PLAIN, torch.nn.Bilinear(3, 3, 1)) for _ in range(2))
    assert {"score.weight", "model.weights.0"} <= set(weights_of(element(one, 0)))
    assert weights_hash(one) != weights_hash(other) == weights_hash(element(other, 0))
    assert set(weights_of(link_predictor(PLAIN))) == set(weights_of(PLAIN))


# --- PyTorch Geometric ---------------------------------------------------------------------------------------------


@pytest.fixture
def pyg():
    return pytest.importorskip("torch_geometric", reason="needs PyTorch Geometric: pip install 'dgl-lara[pyg]'")


def pyg_data(pyg, seed=0, nodes=30):
    graph = random_graph(nodes, nodes + 6, seed)
    x = torch.randn(nodes, 4, generator=torch.Generator().manual_seed(seed))
    return pyg.data.Data(x=x, edge_index=torch.stack(graph.edges()))


def pyg_model(pyg, pooled, takes_data=False):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            with torch.random.fork_rng():
                torch.manual_seed(0)
                self.one, self.two = pyg.nn.GCNConv(4, 8), pyg.nn.GATConv(8, 3)

        def run(self, x, edge_index, batch):
            h = self.two(torch.relu(self.one(x, edge_index)), edge_index)
            return pyg.nn.global_max_pool(h, batch) if pooled else h

    class TakesArguments(Net):
        def forward(self, x, edge_index, edge_weight=None, batch=None):
            return self.run(x, edge_index, batch)

    class TakesData(Net):
        def forward(self, data):
            return self.run(data.x, data.edge_index, data.batch)

    return TakesData() if takes_data else TakesArguments()


@pytest.mark.parametrize("takes_data", [False, True], ids=["arguments", "data"])
def test_pyg_node_model_on_the_whole_and_on_masked_graphs(pyg, takes_data):
    data, model = pyg_data(pyg), pyg_model(pyg, pooled=False, takes_data=takes_data)
    f, graph, features = from_pyg(model, data)
    game = Game(f, graph, features, hops=2)
    theirs = pyg_model(pyg, pooled=False)  # the same seed: the same weights
    torch.testing.assert_close(game.full_logits, theirs(data.x, data.edge_index).detach())
    keep = torch.rand(5, 30, generator=torch.Generator().manual_seed(2)) < 0.6
    got = game.shared_values(keep)
    for mask, seen in zip(keep, got, strict=True):
        left = data.subgraph(mask)  # PyG's own removal
        torch.testing.assert_close(seen[mask], theirs(left.x, left.edge_index).detach())


@pytest.mark.parametrize("takes_data", [False, True], ids=["arguments", "data"])
def test_pyg_graph_model_with_batch_vector(pyg, takes_data):
    graphs, model = [pyg_data(pyg, seed, 6 + seed) for seed in range(4)], pyg_model(pyg, True, takes_data)
    f, graph, features = from_pyg(model, graphs, task="graph")
    game = Game(f, graph, features, "graph")
    theirs = pyg_model(pyg, pooled=True)
    batch = pyg.data.Batch.from_data_list(graphs)
    torch.testing.assert_close(game.full_logits, theirs(batch.x, batch.edge_index, batch=batch.batch).detach())
    keep = torch.rand(5, len(features), generator=torch.Generator().manual_seed(2)) < 0.5
    keep[0, :6] = False  # the first graph is empty under the first mask
    got = game.shared_values(keep)
    torch.testing.assert_close(got[0, 0], game.null_logits)
    for mask, seen in zip(keep, got, strict=True):
        for number, data in enumerate(graphs):
            mine = mask[batch.batch == number]
            if mine.any():
                left = data.subgraph(mine)
                alone = theirs(left.x, left.edge_index, batch=torch.zeros(len(left.x), dtype=torch.long)).detach()
                torch.testing.assert_close(seen[number], alone[0])


def test_a_lara_of_a_pyg_model_can_be_saved_whole_or_in_part(pyg, tmp_path):
    net = pyg.nn.GCN(4, 8, 2, 3)  # a class that can be found by its name, as a pickle needs it
    lara = LARA(*from_pyg(net, pyg_data(pyg)), config=QUICK).fit(range(30))
    lara.save(tmp_path / "lara.pt")
    loaded = LARA.load(tmp_path / "lara.pt", *from_pyg(net, pyg_data(pyg)))
    whole = pickle.loads(pickle.dumps(lara))
    for other in (loaded, whole):
        torch.testing.assert_close(other.explain([4]).scores, lara.explain([4]).scores)


@pytest.mark.parametrize("f", SHAPES.values(), ids=SHAPES)
def test_adapted_models_can_be_copied_and_stored(f):
    for again in (copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        torch.testing.assert_close(again(GRAPH, FEATURES), f(GRAPH, FEATURES))


def test_an_unwrapped_pyg_model_is_told_how_to_be_wrapped(pyg):
    data = pyg_data(pyg)
    graph = dgl.graph(tuple(data.edge_index), num_nodes=30)
    for model in (pyg_model(pyg, pooled=False), element(pyg_model(pyg, pooled=False), 0)):
        with pytest.raises(ModelError, match=r"PyTorch Geometric.*from_pyg\(model, data\).*adapters.pyg\(model\)"):
            Game(model, graph, data.x)
    broken = pyg_model(pyg, pooled=False)
    broken.two = torch.nn.Linear(8, 3)  # wrapped, but failing for a reason of its own
    with pytest.raises(ModelError, match="the model failed on 30 nodes"):
        Game(alone(broken), graph, data.x)


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ([[0, 1], [1, 2], [2, 3]], r"edge_index must have two rows, from and to \(got shape \(3, 2\)\)"),
        ([[0, 1], [1, 9]], r"edge_index must name nodes 0..3, the rows of x \(got 9\)"),
    ],
)
def test_edges_of_pyg_that_are_none(edges, said):
    data = pytest.importorskip("torch_geometric.data").Data(x=torch.ones(4, 3), edge_index=torch.tensor(edges))
    with pytest.raises(InputError, match=said):
        from_pyg(torch.nn.Linear(3, 2), data)


def test_pyg_in_one_line_and_its_mistakes(pyg):
    data = pyg_data(pyg)
    lara = LARA(*from_pyg(pyg_model(pyg, pooled=False), data), config=QUICK).fit(range(30))
    assert lara.game.hops in (2, 3) and len(lara.explain([4])) == 1
    with pytest.raises(InputError, match=r"must have x \(it has edge_index\)"):
        from_pyg(pyg_model(pyg, pooled=False), pyg.data.Data(edge_index=data.edge_index))
    cached = pyg_model(pyg, pooled=False)
    cached.one = pyg.nn.GCNConv(4, 8, cached=True)
    with pytest.raises(InputError, match="'one' was built with cached=True"):
        from_pyg(cached, data)

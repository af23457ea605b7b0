"""Adapted models have the same game as the plain model."""

import copy
import pickle

import dgl
import pytest
import torch
from codes import raises
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
from dgl_lara.blackbox.adapters import pyg as pyg_adapter
from dgl_lara.blackbox.identity import weights_hash, weights_of
from dgl_lara.errors import InputError, ModelError
from dgl_lara.game.game import Game
from dgl_lara.game.values import ClassQuery
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
def test_adapted_model_has_the_game_of_the_plain_one(f):
    plain, game = (Game.create(model, GRAPH, FEATURES, hops=2) for model in (PLAIN, f))
    torch.testing.assert_close(game.full_logits, plain.full_logits)
    keep = torch.rand(4, 40, generator=torch.Generator().manual_seed(2)) < 0.5
    torch.testing.assert_close(game.shared_values(keep), plain.shared_values(keep))


def test_nested_adapters_keep_eval_mode_and_hops():
    class Noisy(InGraph):
        num_hops = 2

        def forward(self, graph):
            return (torch.nn.functional.dropout(super().forward(graph), 0.5, self.training),)

    model = Noisy().train()
    lara = LARA(element(features_in_graph(model), 0), GRAPH, FEATURES, config=QUICK).fit(range(40))
    torch.testing.assert_close(lara.game.full_logits, Game.create(PLAIN, GRAPH, FEATURES).full_logits)
    assert model.training and lara.game.hops == 2
    assert unwrap(lara.model) is model


@pytest.mark.parametrize(
    ("f", "code", "fields"),
    [
        (Tuple(), "model.output_type", {"got": "a tuple of 2 elements"}),
        (Dict(), "model.output_type", {"got": "a dict of 'logits', 'hidden'"}),
        (Heads(), "model.heads", {"got": (40, 3, 3)}),
        (element(Dict(), "output"), "adapter.no_element", {"which": "output", "got": ["logits", "hidden"]}),
        (head(Heads(), 3), "adapter.head_range", {"most": 2, "got": 3}),
        (head(PLAIN, 0), "adapter.head_shape", {"got": (40, 3)}),
        (InGraph(), "model.failed", {"nodes": 40}),
    ],
)
def test_outputs_that_need_an_adapter_raise(f, code, fields):
    with raises(code, ModelError, **fields):
        Game.create(f, GRAPH, FEATURES)


def test_features_default_to_those_of_the_graph():
    graph = GRAPH.clone()
    with raises("features.none", InputError):
        LARA(PLAIN, graph)
    graph.ndata["feat"], graph.ndata["label"] = FEATURES, torch.zeros(40)
    lara = LARA(PLAIN, graph, hops=2, config=QUICK).fit(range(40))
    torch.testing.assert_close(lara.game.full_logits, Game.create(PLAIN, GRAPH, FEATURES).full_logits)
    assert not lara.game.graph.ndata and set(graph.ndata) == {"feat", "label"}


def one_column(graph, h):
    return PLAIN(graph, h)[:, :1]


@pytest.mark.parametrize("f", [one_column, lambda graph, h: one_column(graph, h).squeeze(1)], ids=["(N, 1)", "(N,)"])
def test_single_logit_is_explained_on_the_predicted_side(f):
    z = one_column(GRAPH, FEATURES).squeeze(1)
    game = Game.create(f, GRAPH, FEATURES, hops=2)
    assert game.num_classes == 2 and 0 < (z > 0).sum() < 40
    torch.testing.assert_close(game.explained_class, (z > 0).long())
    torch.testing.assert_close(game.full_values[torch.arange(40), game.explained_class], z.abs())
    torch.testing.assert_close(game.full_logits.softmax(1)[:, 1], z.sigmoid())
    torch.testing.assert_close(Game.create(f, GRAPH, FEATURES, value="probability").full_values[:, 1], z.sigmoid())
    # phi of the other side is its mirror image
    targets = torch.tensor([0, 3])
    players = game.players(targets)
    keep = torch.rand(6, len(players.player), generator=torch.Generator().manual_seed(2)) < 0.5
    one, zero = (game.values_per_target(players, keep, ClassQuery.repeat([side], 2)) for side in (1, 0))
    torch.testing.assert_close(one, -zero)
    assert one.std() > 0.1


def test_certain_single_logits_are_not_cut_off():
    game = Game.create(lambda graph, h: 100 * one_column(graph, h), GRAPH, FEATURES, hops=2)
    torch.testing.assert_close(game.full_values[:, 1], 100 * one_column(GRAPH, FEATURES)[:, 0])


@pytest.mark.long
def test_regression_explains_the_number_itself():
    f = one_column
    game = Game.create(f, GRAPH, FEATURES, hops=2, value="output")
    z = f(GRAPH, FEATURES)
    assert (z < 0).any()
    torch.testing.assert_close(game.full_values, z)
    several = Game.create(PLAIN, GRAPH, FEATURES, hops=2, value="output")  # not classes
    assert several.full_logits.argmax(1).any() and not several.explained_class.any()
    small = (game.players(torch.arange(40)).counts <= 8).nonzero().flatten()[:3]
    players = game.players(small)
    whole = exact(game, players)
    binary = exact(Game.create(f, GRAPH, FEATURES, hops=2), players)
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
    looks = Game.create(lambda graph, h: weighs(graph, h, graph.edata["w"]), WEIGHTED, FEATURES, hops=1)
    game = Game.create(edge_weight(weighs, "w", keyword), WEIGHTED, FEATURES, hops=1)
    blind = Game.create(weighs, WEIGHTED, FEATURES, hops=1)
    keep = torch.rand(4, 40, generator=torch.Generator().manual_seed(2)) < 0.5
    torch.testing.assert_close(game.shared_values(keep), looks.shared_values(keep))
    assert (game.shared_values(keep) - blind.shared_values(keep)).abs().max() > 0.1
    lara = LARA(edge_weight(weighs, "w", keyword), WEIGHTED, FEATURES, config=QUICK).fit(range(40))
    torch.testing.assert_close(lara.game.full_logits, looks.full_logits)


@pytest.mark.parametrize(
    ("f", "graph", "code", "carried"),
    [
        (edge_weight(Weighs(), "w"), GRAPH, "adapter.no_edge_data", "no data"),
        (edge_weight(Weighs(), "amount"), WEIGHTED, "adapter.no_edge_data", "'w'"),
        (lambda graph, h: graph.edata["amount"], GRAPH, "model.missing_key", "no data"),
    ],
)
def test_missing_edge_data_raises(f, graph, code, carried):
    with raises(code, ModelError, carried=carried):
        LARA(f, graph, FEATURES).game  # noqa: B018


def test_edge_weights_by_relation():
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


def test_ends_of_different_types():
    graph = dgl.heterograph({("user", "likes", "film"): ([0, 1, 1], [0, 0, 1])})
    x = {"user": torch.tensor([[1.0], [2.0]]), "film": torch.tensor([[3.0], [5.0]])}
    u, v = torch.tensor([0, 1]), torch.tensor([1, 0])
    assert link_predictor(lambda graph, x: x, types=("user", "film"))(graph, x, u, v).tolist() == [5, 6]
    for types in (None, ("user", "item")):
        with raises("adapter.types", ModelError, types="user, film", got=types):
            link_predictor(lambda graph, x: x, types=types)(graph, x, u, v)
    with raises("adapter.score", InputError):
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
def test_pyg_node_model_on_full_and_masked_graphs(pyg, takes_data):
    data, model = pyg_data(pyg), pyg_model(pyg, pooled=False, takes_data=takes_data)
    f, graph, features = from_pyg(model, data)
    game = Game.create(f, graph, features, hops=2)
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
    game = Game.create(f, graph, features, "graph")
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


def test_lara_of_a_pyg_model_can_be_saved(pyg, tmp_path):
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


def test_unwrapped_pyg_model_raises(pyg):
    data = pyg_data(pyg)
    graph = dgl.graph(tuple(data.edge_index), num_nodes=30)
    for model in (pyg_model(pyg, pooled=False), element(pyg_model(pyg, pooled=False), 0)):
        with raises("model.unwrapped_pyg", ModelError):
            Game.create(model, graph, data.x)
    broken = pyg_model(pyg, pooled=False)
    broken.two = torch.nn.Linear(8, 3)  # wrapped, but failing for a reason of its own
    with raises("model.failed", ModelError, nodes=30):
        Game.create(pyg_adapter(broken), graph, data.x)


@pytest.mark.parametrize(
    ("edges", "code", "got"),
    [
        ([[0, 1], [1, 2], [2, 3]], "pyg.edge_index_shape", (3, 2)),
        ([[0, 1], [1, 9]], "pyg.edge_index_range", 9),
    ],
)
def test_invalid_edge_index_raises(edges, code, got):
    data = pytest.importorskip("torch_geometric.data").Data(x=torch.ones(4, 3), edge_index=torch.tensor(edges))
    with raises(code, InputError, got=got):
        from_pyg(torch.nn.Linear(3, 2), data)


def test_from_pyg(pyg):
    data = pyg_data(pyg)
    lara = LARA(*from_pyg(pyg_model(pyg, pooled=False), data), config=QUICK).fit(range(30))
    assert lara.game.hops in (2, 3) and len(lara.explain([4])) == 1
    with raises("pyg.missing", InputError, name="x", got="edge_index"):
        from_pyg(pyg_model(pyg, pooled=False), pyg.data.Data(edge_index=data.edge_index))
    cached = pyg_model(pyg, pooled=False)
    cached.one = pyg.nn.GCNConv(4, 8, cached=True)
    with raises("pyg.cached_layer", InputError, layer="one"):
        from_pyg(cached, data)

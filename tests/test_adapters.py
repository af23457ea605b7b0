"""Models that are called otherwise, or answer otherwise, are explained as the plain model is."""

import copy
import pickle

import dgl
import pytest
import torch
from games import PooledGCN, SmallGCN, random_graph

from dgl_lara import LARA
from dgl_lara.attribution.exact import exact
from dgl_lara.errors import InputError, ModelError
from dgl_lara.game.game import Game
from dgl_lara.model.adapters import element, features_in_graph, from_pyg, head, keywords, unwrapped
from dgl_lara.model.adapters import pyg as alone
from dgl_lara.training.config import TrainingConfig

GRAPH = random_graph(40, 46, 0)
FEATURES = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
QUICK = TrainingConfig(hidden=16, dim=5, masks=4, steps=20)
PLAIN = SmallGCN()


class InGraph(SmallGCN):
    def forward(self, graph):
        return super().forward(graph, graph.ndata["feat"])


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
    torch.testing.assert_close(game.logits, plain.logits)
    keep = torch.rand(4, 40, generator=torch.Generator().manual_seed(2)) < 0.5
    torch.testing.assert_close(game.shared(keep), plain.shared(keep))


def test_adapters_nest_keep_eval_mode_and_tell_hops():
    class Noisy(InGraph):
        num_hops = 2

        def forward(self, graph):
            return (torch.nn.functional.dropout(super().forward(graph), 0.5, self.training),)

    model = Noisy().train()
    lara = LARA(element(features_in_graph(model), 0), GRAPH, FEATURES, config=QUICK).fit(range(40))
    torch.testing.assert_close(lara.game.logits, Game(PLAIN, GRAPH, FEATURES).logits)
    assert model.training and lara.game.hops == 2
    assert unwrapped(lara.model) is model


@pytest.mark.parametrize(
    ("f", "sentence"),
    [
        (Tuple(), r"got a tuple of 2 elements\); choose .*adapters.element"),
        (Dict(), r"got a dict of 'logits', 'hidden'\)"),
        (Heads(), r"\(40, 3, 3\)\); choose one of its heads with dgl_lara.model.adapters.head"),
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
    torch.testing.assert_close(lara.game.logits, Game(PLAIN, GRAPH, FEATURES).logits)
    assert not lara.game.graph.ndata and set(graph.ndata) == {"feat", "label"}


def one_column(graph, h):
    return PLAIN(graph, h)[:, :1]


@pytest.mark.parametrize("f", [one_column, lambda graph, h: one_column(graph, h).squeeze(1)], ids=["(N, 1)", "(N,)"])
def test_a_single_logit_is_explained_on_the_predicted_side(f):
    z = one_column(GRAPH, FEATURES).squeeze(1)
    game = Game(f, GRAPH, FEATURES, hops=2)
    assert game.num_classes == 2 and 0 < (z > 0).sum() < 40
    torch.testing.assert_close(game.explained_class, (z > 0).long())
    torch.testing.assert_close(game.full[torch.arange(40), game.explained_class], z.abs())
    torch.testing.assert_close(game.logits.softmax(1)[:, 1], z.sigmoid())
    torch.testing.assert_close(Game(f, GRAPH, FEATURES, value="probability").full[:, 1], z.sigmoid())
    # phi of the other side is its mirror image
    targets = torch.tensor([0, 3])
    players = game.players(targets)
    keep = torch.rand(6, len(players.player), generator=torch.Generator().manual_seed(2)) < 0.5
    one, zero = (game.coalitions(players, keep, torch.full((2,), side)) for side in (1, 0))
    torch.testing.assert_close(one, -zero)
    assert one.std() > 0.1


def test_certain_single_logits_are_not_cut_off():
    game = Game(lambda graph, h: 100 * one_column(graph, h), GRAPH, FEATURES, hops=2)
    torch.testing.assert_close(game.full[:, 1], 100 * one_column(GRAPH, FEATURES)[:, 0])


def test_regression_explains_the_number_itself():
    f = one_column
    game = Game(f, GRAPH, FEATURES, hops=2, value="output")
    z = f(GRAPH, FEATURES)
    assert (z < 0).any()
    torch.testing.assert_close(game.full, z)
    several = Game(PLAIN, GRAPH, FEATURES, hops=2, value="output")  # outputs are no classes: the first is explained
    assert several.logits.argmax(1).any() and not several.explained_class.any()
    small = (game.players(torch.arange(40)).counts <= 8).nonzero().flatten()[:3]
    players = game.players(small)
    whole = exact(game, players)
    binary = exact(Game(f, GRAPH, FEATURES, hops=2), players)
    sign = z[small, 0].sign()[players.row]
    torch.testing.assert_close(whole, sign * binary)


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
    torch.testing.assert_close(game.logits, theirs(data.x, data.edge_index).detach())
    keep = torch.rand(5, 30, generator=torch.Generator().manual_seed(2)) < 0.6
    got = game.shared(keep)
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
    torch.testing.assert_close(game.logits, theirs(batch.x, batch.edge_index, batch=batch.batch).detach())
    keep = torch.rand(5, len(features), generator=torch.Generator().manual_seed(2)) < 0.5
    keep[0, :6] = False  # the first graph is empty under the first mask
    got = game.shared(keep)
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

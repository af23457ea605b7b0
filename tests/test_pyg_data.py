"""Edge data and several types of PyTorch Geometric reach the model as PyG itself hands them on, under removal too."""

import dgl
import pytest
import torch
from codes import raises
from games import random_graph

from dgl_lara import LARA, TrainingConfig
from dgl_lara.blackbox.adapters import from_pyg, link_predictor, pyg
from dgl_lara.errors import InputError, ModelError
from dgl_lara.game.game import Game
from dgl_lara.game.inputs import normalize_inputs

geometric = pytest.importorskip("torch_geometric", reason="needs PyTorch Geometric: pip install 'dgl-lara[pyg]'")

from torch_geometric import nn as theirs  # noqa: E402
from torch_geometric.utils import subgraph  # noqa: E402

QUICK = TrainingConfig(hidden=16, dim=5, masks=2, steps=6)
WRITES, BACK = ("author", "writes", "paper"), ("paper", "by", "author")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def some_data(nodes=30):
    graph = random_graph(nodes, nodes + 6, 0)
    count = graph.num_edges()
    return geometric.data.Data(
        x=torch.randn(nodes, 4, generator=seeded()),
        edge_index=torch.stack(graph.edges()),
        edge_attr=torch.randn(count, 2, generator=seeded(1)),
        edge_weight=torch.rand(count, generator=seeded(2)),
    )


class Attributes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            inner = torch.nn.Linear(4, 8)
            self.one, self.two = theirs.GINEConv(inner, edge_dim=2), theirs.GATv2Conv(8, 3, edge_dim=2)

    def run(self, x, edge_index, edge_attr):
        return self.two(self.one(x, edge_index, edge_attr).relu(), edge_index, edge_attr)


class TakesAttributes(Attributes):
    def forward(self, x, edge_index, edge_attr):
        return self.run(x, edge_index, edge_attr)


class Weights(torch.nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.one, self.two = theirs.GCNConv(4, 8), theirs.GCNConv(8, 3)

    def run(self, x, edge_index, edge_weight=None):
        return self.two(self.one(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


class TakesWeights(Weights):
    def forward(self, x, edge_index, edge_weight=None):
        return self.run(x, edge_index, edge_weight)


class TakesData(Attributes):
    def forward(self, data):
        return self.run(data.x, data.edge_index, data.edge_attr)


@pytest.mark.parametrize(
    ("model", "column"), [(TakesAttributes(), "edge_attr"), (TakesWeights(), "edge_weight"), (TakesData(), "edge_attr")]
)
def test_edge_data_under_removal_is_that_of_pyg(model, column):
    data = some_data()
    plain = TakesAttributes() if column == "edge_attr" else model  # the same seed: the same weights
    game = Game.create(*from_pyg(model, data), hops=2)
    torch.testing.assert_close(game.full_logits, plain(data.x, data.edge_index, data[column]).detach())
    keep = torch.rand(5, 30, generator=seeded(3)) < 0.6
    for mask, seen in zip(keep, game.shared_values(keep), strict=True):
        edges, rows = subgraph(mask, data.edge_index, data[column], relabel_nodes=True, num_nodes=30)
        torch.testing.assert_close(seen[mask], plain(data.x[mask], edges, rows).detach())


def test_a_model_gets_what_it_takes_and_nothing_else():
    data = some_data()
    for model, held in (
        (theirs.GraphSAGE(4, 8, 1, 3), {"edge_attr", "edge_weight"}),
        (TakesWeights(), {"edge_weight"}),
    ):
        assert set(from_pyg(model, data)[1].edata) == held
    lara = LARA(*from_pyg(theirs.GraphSAGE(4, 8, 2, 3), data), config=QUICK).fit(range(30))
    assert not lara.explainer_.config.edge_columns  # SAGE ignores what its forward takes, which is noticed
    with raises("adapter.no_edge_data", ModelError, column="edge_attr", carried="no data"):
        LARA(*from_pyg(TakesAttributes(), geometric.data.Data(data.x, data.edge_index))).game  # noqa: B018
    graph = dgl.graph(tuple(data.edge_index), num_nodes=30)
    graph.edata["edge_attr"] = data.edge_attr
    reported = pyg(TakesAttributes())(graph, data.x)  # as on the command line, where the graph is a file
    torch.testing.assert_close(reported, TakesAttributes()(data.x, data.edge_index, data.edge_attr))


def test_edge_data_of_a_batch_of_graphs():
    class Pooled(Attributes):
        def forward(self, x, edge_index, edge_attr, batch):
            return theirs.global_add_pool(self.run(x, edge_index, edge_attr), batch)

    batch = geometric.data.Batch.from_data_list([some_data(6 + place) for place in range(3)])
    game = Game.create(*from_pyg(Pooled(), batch, task="graph"), "graph")
    expected = Pooled()(batch.x, batch.edge_index, batch.edge_attr, batch.batch)
    torch.testing.assert_close(game.full_logits, expected.detach())


# --- several types


def typed_data():
    data = geometric.data.HeteroData()
    data["author"].x = torch.randn(12, 3, generator=seeded())
    data["paper"].x = torch.randn(18, 5, generator=seeded(1))
    edges = torch.unique(torch.stack([torch.randint(12, (50,), generator=seeded(2)),
                                      torch.randint(18, (50,), generator=seeded(3))]), dim=1)  # fmt: skip
    data[WRITES].edge_index, data[BACK].edge_index = edges, edges.flip(0)
    for place, relation in enumerate((WRITES, BACK)):
        data[relation].edge_attr = torch.randn(edges.shape[1], 2, generator=seeded(4 + place))
    return data


class Layers(torch.nn.Module):
    """Two layers of HeteroConv; what edges carry counts."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = torch.nn.ModuleList(
                theirs.HeteroConv(
                    {
                        WRITES: theirs.GATv2Conv(widths, out, edge_dim=2, add_self_loops=False),
                        BACK: theirs.GATv2Conv(widths[::-1], out, edge_dim=2, add_self_loops=False),
                    }
                )
                for widths, out in (((3, 5), 8), ((8, 8), 4))
            )

    def run(self, x_dict, edge_index_dict, edge_attr_dict):
        for layer in self.layers:
            x_dict = layer(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)
            x_dict = {kind: rows.tanh() for kind, rows in x_dict.items()}
        return x_dict


class Convs(Layers):
    def forward(self, x_dict, edge_index_dict, edge_attr_dict):
        return self.run(x_dict, edge_index_dict, edge_attr_dict)


class ConvsOfData(Layers):
    def forward(self, data):
        return self.run(data.x_dict, data.edge_index_dict, data.edge_attr_dict)["author"]


def as_typed():
    """A model of one type, made into one of several."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = theirs.SAGEConv((-1, -1), 8), theirs.SAGEConv((-1, -1), 4)

        def forward(self, x, edge_index):
            return self.two(self.one(x, edge_index).relu(), edge_index)

    data = typed_data()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = theirs.to_hetero(Net(), data.metadata())
        with torch.no_grad():
            model(data.x_dict, data.edge_index_dict)  # lazy layers learn their widths
    return model


@pytest.mark.parametrize("which", ["HeteroConv", "of data", "to_hetero"])
@pytest.mark.parametrize("target_type", ["author", "paper"])
def test_several_types_under_removal_are_those_of_pyg(which, target_type):
    if which == "of data" and target_type == "paper":
        pytest.skip("answers for authors alone")
    data = typed_data()
    model = {"HeteroConv": Convs, "of data": ConvsOfData, "to_hetero": as_typed}[which]()

    def ask(some):
        if which == "to_hetero":
            return model(some.x_dict, some.edge_index_dict)[target_type].detach()
        return Convs()(some.x_dict, some.edge_index_dict, some.edge_attr_dict)[target_type].detach()

    given = normalize_inputs(*from_pyg(model, data), target_type=target_type)
    game, types = Game.create(given.f, given.graph, given.features, given.task, hops=2), given.types
    assert types is not None
    torch.testing.assert_close(game.full_logits[: game.num_targets], ask(data))
    keep = torch.rand(6, 30, generator=seeded(6)) < 0.6
    for mask, seen in zip(keep, game.shared_values(keep), strict=True):
        parts = mask.split([types.num_nodes(kind) for kind in types.node_types])
        left = data.subgraph(
            {kind: part.nonzero().flatten() for kind, part in zip(types.node_types, parts, strict=True)}
        )
        mine = parts[types.type_index(target_type)]
        torch.testing.assert_close(seen[: len(mine)][mine], ask(left))


def test_several_types_in_one_line_and_their_mistakes():
    data = typed_data()
    lara = LARA(*from_pyg(Convs(), data), target_type="author", config=QUICK).fit(range(12))
    assert lara.types and lara.types.node_types == ("author", "paper") and len(lara.explain([3, 4])) == 2
    bare = typed_data()
    del bare["paper"].x
    bare["paper"].num_nodes = 18
    with raises("pyg.missing_x", InputError, type="paper", count=18):
        from_pyg(Convs(), bare)
    unlinked = typed_data()
    del unlinked[BACK].edge_index
    with raises("pyg.missing_edge_index", InputError, relation=BACK):
        from_pyg(Convs(), unlinked)
    blind = typed_data()
    for relation in (WRITES, BACK):
        del blind[relation].edge_attr
    with raises("adapter.no_edge_data", ModelError, column="edge_attr_dict"):
        LARA(*from_pyg(Convs(), blind), target_type="author").game  # noqa: B018


class Scores(Weights):
    def of(self, x, edge_index, ends):
        z = self.run(x, edge_index)
        return (z[ends[0]] * z[ends[1]]).sum(1)


class ScoresLinks(Scores):
    def forward(self, x, edge_index, edge_label_index):
        return self.of(x, edge_index, edge_label_index)


class ScoresEnds(Scores):
    def forward(self, x, edge_index, u, v):
        return self.of(x, edge_index, (u, v))


class ScoresData(Scores):
    def forward(self, data):
        return self.of(data.x, data.edge_index, data.edge_label_index)


def test_links_of_pyg_models():
    data, pairs = some_data(), torch.tensor([[0, 3], [5, 9]])
    expected = ScoresLinks()(data.x, data.edge_index, pairs.T).detach()
    f, graph, x = from_pyg(TakesWeights(), geometric.data.Data(data.x, data.edge_index))
    for given in (
        *(from_pyg(kind(), data) for kind in (ScoresLinks, ScoresData)),
        (link_predictor(f), graph, x),
        from_pyg(ScoresEnds(), data),
    ):
        lara = LARA(*given, task="link", pairs=pairs, hops=2)
        torch.testing.assert_close(lara.game.full_outputs[:, 0], expected)


def test_links_between_types_of_pyg_models():
    data, pairs = typed_data(), torch.tensor([[0, 3], [5, 9]])
    f, graph, x = from_pyg(as_typed(), data)
    scores = link_predictor(f, types=("author", "paper"))
    lara = LARA(scores, graph, x, task="link", relation="writes", pairs=pairs, hops=2)
    rows = as_typed()(data.x_dict, data.edge_index_dict)
    expected = (rows["author"][pairs[:, 0]] * rows["paper"][pairs[:, 1]]).sum(1)
    torch.testing.assert_close(lara.game.full_outputs[:, 0], expected.detach())


def test_arguments_in_another_order_and_data_where_a_graph_is_due(tmp_path):
    data, model = some_data(), theirs.GraphSAGE(4, 8, 2, 3)
    with raises("pyg.data_type", InputError, got="GraphSAGE"):
        from_pyg(data, model)
    LARA(*from_pyg(model, data), config=QUICK).fit(range(30)).save(tmp_path / "lara.pt")
    with raises("graph.type", got="Data"):
        LARA.load(tmp_path / "lara.pt", model, data, data.x)

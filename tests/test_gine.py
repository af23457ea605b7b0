"""GINE and its blind twin."""

from dataclasses import replace

import dgl
import pytest
import torch
import torch.nn.functional as F
from codes import raises
from dgl.nn.pytorch import GINEConv

from dgl_lara.datasets import load
from dgl_lara.errors import InputError
from dgl_lara.gnns import EDGE_AWARE, Recipe
from dgl_lara.gnns.checkpoint import load_gnn, save_gnn
from dgl_lara.gnns.gine import BondLayer
from dgl_lara.gnns.models import GNN, ModelConfig
from dgl_lara.gnns.training import accuracy, train_gnn


def molecules(count=4, seed=0):
    """A batch of small graphs with bonds."""
    draw = torch.Generator().manual_seed(seed)
    parts = []
    for size in range(5, 5 + count):
        src, dst = torch.randint(size, (2, 2 * size), generator=draw)
        graph = dgl.graph((src, dst), num_nodes=size)
        graph.edata["bond"] = F.one_hot(torch.randint(3, (2 * size,), generator=draw), 3).float()
        parts.append(graph)
    batch = dgl.batch(parts)
    return batch, torch.rand(batch.num_nodes(), 10, generator=draw)


def a_model(architecture, **changes):
    torch.manual_seed(0)
    return GNN(ModelConfig(architecture, "graph", 10, 2, readout="max-mean", **changes)).eval()


def test_layer_equals_dgl():
    graph, features = molecules()
    layer = BondLayer(10, 8, blind=False)
    expected = GINEConv(layer.mlp)(graph, layer.lift(features), layer.bond(graph.edata["bond"]))
    assert expected.std() > 1e-3
    torch.testing.assert_close(layer(graph, features), expected)


def test_only_gine_reads_bonds():
    graph, features = molecules()
    before = {name: a_model(name)(graph, features) for name in EDGE_AWARE}
    graph.edata["bond"] = graph.edata["bond"].roll(1, dims=1)
    assert not torch.allclose(a_model("gine")(graph, features), before["gine"], atol=1e-3)
    assert torch.equal(a_model("gine-blind")(graph, features), before["gine-blind"])
    del graph.edata["bond"]
    assert torch.equal(a_model("gine-blind")(graph, features), before["gine-blind"])
    with raises("gine.no_bonds", InputError, name="bond", got="no edge data"):
        a_model("gine")(graph, features)
    graph.edata["bond"] = torch.ones(graph.num_edges(), 4)
    with raises("gine.no_bonds", InputError, columns="single, double, triple", got="bond"):
        a_model("gine")(graph, features)


def test_twins_have_equal_shapes():
    shapes = [{name: part.shape for name, part in a_model(one).state_dict().items()} for one in EDGE_AWARE]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("architecture", EDGE_AWARE)
def test_batch_equals_single_graphs_and_weight_zero_removes_an_edge(architecture):
    graph, features = molecules()
    model = a_model(architecture)
    whole = model(graph, features)
    rows = features.split(graph.batch_num_nodes().tolist())
    alone = torch.cat([model(part, own) for part, own in zip(dgl.unbatch(graph), rows, strict=True)])
    assert whole.std(dim=0).min() > 1e-4
    torch.testing.assert_close(whole, alone)
    weight = torch.ones(graph.num_edges())
    torch.testing.assert_close(model(graph, features, weight), whole)
    weight[:3] = 0
    less = dgl.remove_edges(graph, torch.arange(3))
    less.set_batch_num_nodes(graph.batch_num_nodes())
    less.set_batch_num_edges(graph.batch_num_edges() - torch.tensor([3, 0, 0, 0]))
    torch.testing.assert_close(model(graph, features, weight), model(less, features))
    nothing = dgl.graph(([], []), num_nodes=1)
    nothing.edata["bond"] = torch.ones(0, 3)
    assert model(nothing, features[:1]).isfinite().all()


def test_only_gine_learns_from_bonds():
    """If the class decides the bonds of generated molecules, the blind twin sees equal graphs."""
    dataset = load("molecules")
    graph = dgl.graph(dataset.graph.edges(), num_nodes=dataset.graph.num_nodes())
    graph.set_batch_num_nodes(dataset.graph.batch_num_nodes())
    graph.set_batch_num_edges(dataset.graph.batch_num_edges())
    labels = torch.randint(2, (dataset.num_targets,), generator=torch.Generator().manual_seed(0))
    graph.edata["bond"] = F.one_hot(labels[dataset.graph_of_node[graph.edges()[0]]], 3).float()
    dataset = replace(dataset, graph=graph, labels=labels)
    reached = {
        name: accuracy(train_gnn(dataset, Recipe(name, batch_size=200, epochs=6), 0), dataset)["test"]
        for name in EDGE_AWARE
    }
    assert reached["gine"] > 0.95
    assert reached["gine-blind"] < 0.7


@pytest.mark.parametrize("architecture", EDGE_AWARE)
def test_checkpoint_round_trip(architecture, tmp_path):
    dataset = load("molecules")
    model = GNN(ModelConfig(architecture, "graph", 14, 2))
    save_gnn(model, tmp_path / "model.pt", {"seed": 3})
    loaded, _ = load_gnn(tmp_path / "model.pt", dataset)
    assert loaded.config == model.config
    graph, features = molecules()
    features = torch.cat([features, features[:, :4]], dim=1)
    assert torch.equal(loaded(graph, features), model.eval()(graph, features))

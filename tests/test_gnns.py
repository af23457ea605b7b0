"""GNNs for nodes and graphs: the authors' weights, every architecture, training, checkpoints, eval mode."""

from dataclasses import asdict, replace

import dgl
import numpy as np
import pytest
import torch
from codes import raises
from dgl.nn.pytorch import SAGEConv

from dgl_lara._util.atomic import short_hash
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.datasets import Options, load
from dgl_lara.errors import InputError, LaraError
from dgl_lara.game.removal import take_graphs
from dgl_lara.gnns import ARCHITECTURES, RECIPES, Recipe
from dgl_lara.gnns.checkpoint import FORMAT, load_gnn, save_gnn
from dgl_lara.gnns.models import GNN, ModelConfig, SAGELayer, divide_by_row_sum
from dgl_lara.gnns.registry import new_model
from dgl_lara.gnns.training import accuracy, batches, get_gnn, gnn_path, train_gnn


@pytest.fixture
def ba_shapes():
    return load("ba-shapes")


@pytest.fixture
def ba_2motifs():
    return load("ba-2motifs")


def a_model(task="node", **changes):
    config = {"architecture": "gcn", "in_dim": 10, "num_classes": 4 if task == "node" else 2, **changes}
    torch.manual_seed(0)
    return GNN(ModelConfig(task=task, **config))


def a_graph(nodes=30, edges=90, seed=0):
    draw = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(nodes, (2, edges), generator=draw)
    return dgl.graph((src, dst), num_nodes=nodes), torch.randn(nodes, 10, generator=draw)


# --- the authors' weights ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ba-shapes", "ba-community", "tree-cycles", "ba-2motifs"])
def test_authors_weights_give_the_stored_accuracies(name, real_data):
    dataset = load(name, Options(source="original"))
    path = real_data / "target_models" / f"{name.replace('-', '_')}.npz"
    model, _ = load_gnn(path, dataset)
    stored = np.load(path)["accuracy_train_val_test"]
    reached = accuracy(model, dataset)
    np.testing.assert_allclose([reached["val"], reached["test"]], stored[1:], atol=5e-4, rtol=0)
    if name != "ba-2motifs":  # its copy of the data differs in a few training graphs
        np.testing.assert_allclose(reached["train"], stored[0], atol=5e-4, rtol=0)


# --- models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_node_logits(architecture):
    graph, features = a_graph()
    model = a_model(architecture=architecture)
    logits = model(graph, features)
    assert logits.shape == (30, 4)
    assert logits.std(dim=0).min() > 1e-3
    assert model.num_hops == 3
    assert list(graph.ndata) == list(graph.edata) == []


@pytest.mark.parametrize("readout", ["max", "max-mean"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_batch_of_graphs_equals_one_at_a_time(architecture, readout):
    parts = [a_graph(nodes=size, edges=3 * size, seed=size) for size in (5, 9, 1, 14)]
    model = a_model("graph", architecture=architecture, readout=readout)
    together = model(dgl.batch([graph for graph, _ in parts]), torch.cat([features for _, features in parts]))
    alone = torch.cat([model(graph, features) for graph, features in parts])
    assert together.shape == (4, 2)
    assert together.std(dim=0).min() > 1e-3
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_receptive_field_is_the_number_of_layers(architecture):
    """Along a path, the feature K steps upstream counts and the one K + 1 steps upstream does not."""
    nodes = 6
    graph = dgl.graph((torch.arange(nodes - 1), torch.arange(1, nodes)), num_nodes=nodes)
    features = torch.rand(nodes, 10, generator=torch.Generator().manual_seed(0)).requires_grad_()
    a_model(architecture=architecture, hidden=64)(graph, features)[-1].square().sum().backward()
    seen = features.grad.abs().sum(dim=1) > 0
    assert seen.tolist() == [False, False, True, True, True, True]


def dense_gcn(model, adjacency, features):
    """The paper's GCN in NumPy: D^-1/2 (A + I) D^-1/2 X W + b, rows of length one, ReLU; float64."""
    weights = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    total = adjacency + np.eye(len(adjacency))
    scale = 1 / np.sqrt(total.sum(axis=1, keepdims=True))
    h, states = features, []
    for layer in range(3):
        h = scale * total * scale.T @ h @ weights[f"layers.{layer}.weight"] + weights[f"layers.{layer}.bias"]
        h = np.maximum(h / np.linalg.norm(h, axis=1, keepdims=True), 0)
        states.append(h)
    return states, weights["head.weight"].T, weights["head.bias"]


@pytest.mark.parametrize("task", ["node", "graph"])
def test_gcn_equals_dense_numpy(task):
    src, dst = a_graph()[0].edges()
    keep = src < dst
    graph = dgl.to_simple(dgl.graph((torch.cat([src[keep], dst[keep]]), torch.cat([dst[keep], src[keep]]))))
    nodes = graph.num_nodes()
    features = torch.rand(nodes, 10, generator=torch.Generator().manual_seed(1)) + 0.1
    model = a_model(task, readout="max-mean", divide_by_row_sum=task == "node")
    with torch.no_grad():
        for layer in model.layers:
            layer.bias.uniform_(-0.2, 0.2)
    adjacency = np.zeros((nodes, nodes))
    adjacency[tuple(end.numpy() for end in graph.edges())] = 1
    x = features.double().numpy()
    states, head, bias = dense_gcn(model, adjacency, x / x.sum(axis=1, keepdims=True) if task == "node" else x)
    last = states[-1]
    pooled = np.concatenate([last.max(axis=0), last.mean(axis=0)])[None]
    expected = (np.concatenate(states, axis=1) if task == "node" else pooled) @ head + bias
    assert expected.std() > 1e-2
    torch.testing.assert_close(model(graph, features), torch.as_tensor(expected).float(), atol=1e-5, rtol=1e-4)


def test_divide_by_row_sum_keeps_rows_that_sum_to_zero():
    rows = torch.tensor([[1.0, 3.0], [0.0, 0.0], [1.0, -1.0]])
    torch.testing.assert_close(divide_by_row_sum(rows), torch.tensor([[0.25, 0.75], [0.0, 0.0], [1.0, -1.0]]))


def test_unknown_architecture_raises():
    with raises("settings.invalid", InputError, name="architecture"):
        a_model(architecture="gnn")


# --- training ---------------------------------------------------------------------------------------------------

SHORT = {
    "ba-shapes": Recipe(epochs=8),
    "ba-2motifs": Recipe(epochs=2, batch_size=300),
    "citation": replace(RECIPES["citation"], epochs=2, hidden=16, saint_nodes=300),
}


@pytest.mark.parametrize("name", SHORT)
def test_training_depends_on_the_seed_alone(name):
    dataset = load(name, Options(nodes=500) if name == "citation" else Options())
    global_state = torch.random.get_rng_state()
    first, again, other = (train_gnn(dataset, SHORT[name], seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), global_state)
    for weight in first:
        assert torch.equal(first[weight], again[weight]), weight
    assert not torch.equal(first["head.weight"], other["head.weight"])


def test_training_learns(ba_shapes):
    recipe = Recipe(epochs=150)
    before = accuracy(new_model(ba_shapes, recipe, 0), ba_shapes)
    after = accuracy(train_gnn(ba_shapes, recipe, 0), ba_shapes)
    assert before["test"] < 0.6
    assert after["test"] > 0.75


def test_best_weights_on_validation_are_kept(ba_shapes):
    """The accuracy varies between epochs, but more epochs only raise the accuracy of the returned model."""
    reached = [
        accuracy(train_gnn(ba_shapes, Recipe(lr=0.02, epochs=epochs), 0), ba_shapes)["val"]
        for epochs in (1, 30, 33, 52, 54, 61)
    ]
    assert reached == sorted(reached)
    assert reached[0] < reached[-1]


def test_training_stops_early(ba_shapes):
    """A learning rate below what float32 can add never improves: one best epoch, then `patience` more."""
    passes = []

    def count(module, *_):
        passes.extend([None] * isinstance(module, GNN))

    hook = torch.nn.modules.module.register_module_forward_hook(count)
    try:
        train_gnn(ba_shapes, Recipe(epochs=50, patience=4, lr=1e-30), 0)
    finally:
        hook.remove()
    assert len(passes) == 5 * 2  # a training pass and a validation pass each


def test_batches_cover_the_training_graphs_once(ba_2motifs):
    parts = list(batches(ba_2motifs, Recipe(batch_size=300), torch.Generator().manual_seed(0)))
    assert [graph.batch_size for graph, *_ in parts] == [300, 300, 200]
    labels = torch.cat([labels for _, _, labels, _ in parts])
    expected = ba_2motifs.labels[ba_2motifs.train]
    assert labels.bincount().tolist() == expected.bincount().tolist()
    assert not torch.equal(labels, expected)  # shuffled


def test_saint_batches_are_subgraphs_with_training_rows():
    dataset = load("citation", Options(nodes=500))
    recipe = Recipe(saint_nodes=200)
    parts = list(batches(dataset, recipe, torch.Generator()))
    assert len(parts) == 3
    allowed = set(dataset.train.tolist())
    for graph, features, labels, rows in parts:
        drawn = graph.ndata[dgl.NID]
        assert 0 < graph.num_nodes() <= 200
        torch.testing.assert_close(features, dataset.features[drawn])
        assert torch.equal(labels, dataset.labels[drawn])
        assert set(drawn[rows].tolist()) == allowed & set(drawn.tolist())


def test_eval_mode_restores_the_mode_if_the_model_raises():
    class Raises(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen, self.live = torch.nn.Linear(1, 1).eval(), torch.nn.Linear(1, 1)

        def forward(self, graph, features):
            assert not self.live.training
            assert not torch.is_grad_enabled()
            raise RuntimeError("no")

    model = Raises()
    with pytest.raises(RuntimeError, match="no"), eval_mode(model):
        model(None, None)
    assert (model.training, model.frozen.training, model.live.training) == (True, False, True)
    assert torch.is_grad_enabled()


def test_eval_mode_takes_any_callable():
    with eval_mode(lambda graph, features: features):
        assert not torch.is_grad_enabled()


def test_take_graphs_keeps_the_order():
    sizes = [4, 2, 7, 3]
    graphs = [a_graph(nodes=size, edges=2 * size, seed=size)[0] for size in sizes]
    chosen = torch.tensor([2, 0, 3])
    taken, nodes = take_graphs(dgl.batch(graphs), chosen)
    assert taken.batch_num_nodes().tolist() == [7, 4, 3]
    assert nodes.tolist() == [*range(6, 13), *range(4), *range(13, 16)]
    for part, place in zip(dgl.unbatch(taken), chosen.tolist(), strict=True):
        found, expected = (
            sorted(zip(*map(torch.Tensor.tolist, g.edges()), strict=True)) for g in (part, graphs[place])
        )
        assert found == expected


# --- checkpoints ------------------------------------------------------------------------------------------------


def test_checkpoint_round_trip(ba_shapes, tmp_path):
    model = a_model(architecture="gat", hidden=8, layers=2, dropout=0.3)
    save_gnn(model, tmp_path / "model.pt", {"seed": 3})
    loaded, details = load_gnn(tmp_path / "model.pt", ba_shapes)
    assert loaded.config == model.config
    assert details == {"seed": 3}
    assert not loaded.training
    with torch.no_grad():
        logits = loaded(ba_shapes.graph, ba_shapes.features)
        torch.testing.assert_close(logits, model.eval()(ba_shapes.graph, ba_shapes.features))
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


@pytest.mark.parametrize(
    ("task", "changes", "fields"),
    [
        ("node", {"in_dim": 11}, {"field": "in_dim", "expected": 10, "got": 11}),
        ("node", {"num_classes": 5}, {"field": "num_classes", "expected": 4, "got": 5}),
        ("graph", {}, {"field": "task", "expected": "node", "got": "graph"}),
    ],
)
def test_model_of_another_data_set_raises(ba_shapes, tmp_path, task, changes, fields):
    save_gnn(a_model(task, **changes), tmp_path / "model.pt", {})
    with raises("gnn.other_data", InputError, dataset="ba-shapes", **fields):
        load_gnn(tmp_path / "model.pt", ba_shapes)


@pytest.mark.parametrize("share", [0, 0.3, 0.7, 0.99])
def test_truncated_checkpoint(ba_shapes, tmp_path, share):
    path = tmp_path / "model.pt"
    save_gnn(a_model(), path, {})
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(LaraError) as caught:
        load_gnn(path, ba_shapes)
    assert "\n" not in str(caught.value)


def test_other_files_raise(ba_shapes, tmp_path):
    path = tmp_path / "model.pt"
    path.write_text("weights: none\n")
    with pytest.raises(LaraError):
        load_gnn(path, ba_shapes)
    for content, got in (({"format": "something else"}, "something else"), ([1, 2], "list")):
        torch.save(content, path)
        with raises("gnn.format", InputError, expected=FORMAT, got=got):
            load_gnn(path, ba_shapes)
    with raises("gnn.missing", InputError, dataset="ba-shapes"):
        load_gnn(tmp_path / "nowhere.pt", ba_shapes)


class Unsafe:
    def __reduce__(self):
        return print, ("code was run",)


def test_checkpoint_never_runs_code(ba_shapes, tmp_path, capsys):
    torch.save({"format": FORMAT, "config": Unsafe()}, tmp_path / "model.pt")
    with pytest.raises(LaraError):
        load_gnn(tmp_path / "model.pt", ba_shapes)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"hidden": 8}, "gnn.weights"),
        ({"layers": 2}, "gnn.weights"),
        ({"hidden": 16_000}, "gnn.weights"),
        ({"architecture": "gnn"}, "file.content"),
        ({"readout": "sum"}, "file.content"),
        ({"colour": "red"}, "file.content"),
    ],
)
def test_settings_that_do_not_fit_the_weights(ba_shapes, tmp_path, changes, code):
    path, model = tmp_path / "model.pt", a_model()
    store(model, path, **changes)
    with raises(code) as caught:
        load_gnn(path, ba_shapes)
    assert "\n" not in str(caught.value)


def test_changed_settings_raise(ba_shapes, tmp_path):
    path = tmp_path / "model.pt"
    save_gnn(a_model(), path, {})
    content = torch.load(path, weights_only=True)
    torch.save({**content, "details": {"seed": 7}}, path)
    with raises("gnn.changed"):
        load_gnn(path, ba_shapes)


def store(model, path, **changes):
    """Store a model with changed settings, under a valid seal."""
    shape = {"config": {**asdict(model.config), **changes}, "details": {}}
    torch.save({"format": FORMAT, **shape, "weights": model.state_dict(), "seal": short_hash(shape)}, path)


def plain_arrays():
    rng = np.random.default_rng(0)
    shapes = {"conv1": (10, 20), "conv2": (20, 20), "conv3": (20, 20), "lin": (4, 60)}
    arrays = {f"{name}.weight": rng.random(shape) for name, shape in shapes.items()}
    return arrays | {f"conv{i}.bias": rng.random(20) for i in (1, 2, 3)} | {"lin.bias": rng.random(4)}


@pytest.mark.parametrize(
    ("changes", "code", "fields"),
    [
        ({"conv2.bias": None}, "gnn.missing_arrays", {"missing": "conv2.bias"}),
        ({"conv2.weight": np.ones((19, 20))}, "gnn.weights", {}),
        ({"conv1.weight": np.ones(10)}, "gnn.array", {"name": "conv1.weight", "dims": 2, "got": "float64 (10,)"}),
        ({"conv1.weight": np.full((10, 20), "a")}, "gnn.array", {"got": "<U1 (10, 20)"}),
        ({"lin.weight": np.ones((5, 60)), "lin.bias": np.ones(5)}, "gnn.other_data", {"field": "num_classes"}),
    ],
)
def test_plain_arrays_that_do_not_fit(ba_shapes, tmp_path, changes, code, fields):
    path = tmp_path / "weights.npz"
    np.savez(path, **plain_arrays())
    assert load_gnn(path, ba_shapes)[0].config.divide_by_row_sum
    np.savez(path, **{name: array for name, array in {**plain_arrays(), **changes}.items() if array is not None})
    with raises(code, InputError, **fields):
        load_gnn(path, ba_shapes)


# --- the cache of trained models -------------------------------------------------------------------------------


def test_trained_model_is_cached(ba_shapes, fresh_cache):
    first, path, _ = get_gnn(ba_shapes, Recipe(epochs=2), seed=0)
    written = path.stat().st_mtime_ns
    again, *_ = get_gnn(ba_shapes, Recipe(epochs=2), seed=0)
    assert path.stat().st_mtime_ns == written
    torch.testing.assert_close(first.state_dict(), again.state_dict())


def test_damaged_cached_model_is_trained_again(ba_shapes, fresh_cache, notices):
    first, path, _ = get_gnn(ba_shapes, Recipe(epochs=2), seed=0)
    path.write_bytes(path.read_bytes()[:500])
    again, *_ = get_gnn(ba_shapes, Recipe(epochs=2), seed=0)
    assert notices.has("gnn.trained_again")
    torch.testing.assert_close(first.state_dict(), again.state_dict())
    load_gnn(path, ba_shapes)


def test_cache_path_depends_on_everything(ba_shapes):
    base = Recipe()
    changed = {"architecture": "gin", "readout": "max-mean", "schedule": "cosine"}
    recipes = [replace(base, **{f: changed.get(f, value + 1)}) for f, value in asdict(base).items() if f not in changed]
    recipes += [replace(base, **{field: value}) for field, value in changed.items()]
    paths = {gnn_path(ba_shapes, recipe, 0) for recipe in [base, *recipes]}
    paths |= {gnn_path(ba_shapes, base, 1), gnn_path(load("ba-shapes", Options(seed=1)), base, 0)}
    assert len(recipes) == len(asdict(base))
    assert len(paths) == len(recipes) + 3


def test_training_goes_on_without_the_cache(ba_shapes, tmp_path, monkeypatch, notices):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DGL_LARA_CACHE", str(tmp_path / "file"))
    model, *_ = get_gnn(ba_shapes, Recipe(epochs=1), seed=0)
    assert model(ba_shapes.graph, ba_shapes.features).shape == (700, 4)
    assert notices.has("gnn.not_cached")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_edge_weights_of_one_change_nothing(architecture):
    graph, features = a_graph()
    model = GNN(ModelConfig(architecture, "node", 10, 2)).eval()
    ones = torch.ones(graph.num_edges())
    assert torch.allclose(model(graph, features), model(graph, features, ones), atol=1e-5)
    assert not torch.allclose(model(graph, features), model(graph, features, ones / 2), atol=1e-3)


def test_weight_zero_removes_an_edge_of_a_gcn():
    graph, features = a_graph()
    model = GNN(ModelConfig("gcn", "node", 10, 2)).eval()
    weight = torch.ones(graph.num_edges())
    weight[[0, 5]] = 0
    without = dgl.remove_edges(graph, torch.tensor([0, 5]))
    assert torch.allclose(model(without, features), model(graph, features, weight), atol=1e-5)


def test_weights_of_messages_only_leave_the_degrees():
    graph, features = a_graph()
    model = GNN(ModelConfig("gcn", "node", 10, 2, layers=1)).eval()
    twin = GNN(replace(model.config, weigh_degrees=False)).eval()
    twin.load_state_dict(model.state_dict())
    assert torch.equal(twin(graph, features), model(graph, features))
    layer, none = twin.layers[0], torch.zeros(graph.num_edges())
    scale = 1 / (graph.in_degrees().float() + 1).unsqueeze(1)
    torch.testing.assert_close(layer(graph, features, none), features @ layer.weight * scale + layer.bias)
    assert not torch.allclose(twin(graph, features, none), model(graph, features, none), atol=1e-3)


def test_head_of_a_node_model_reads_its_embeddings():
    graph, features = a_graph()
    model = GNN(ModelConfig("gcn", "node", 10, 2)).eval()
    assert torch.allclose(model.head(model.embed(graph, features)), model(graph, features))


@pytest.mark.parametrize("widths", [(10, 4), (10, 20)])
def test_sage_layer_equals_dgl(widths):
    graph, features = a_graph()
    layer = SAGELayer(*widths, "mean")
    expected = SAGEConv.forward(layer, graph, features)
    torch.testing.assert_close(layer(graph, features), expected)
    with torch.no_grad():
        torch.testing.assert_close(layer(graph, features), expected)
    assert torch.equal(features, a_graph()[1])  # inputs stay unchanged

"""LARA as an algorithm of PyTorch Geometric's `Explainer`: masks by closed forms, PyG's tools and metrics on them."""

import re
from pathlib import Path

import matplotlib as mpl
import pytest
import torch
from codes import raises
from games import random_graph
from processes import Forked

from dgl_lara import LARA, Features, TrainingConfig
from dgl_lara._util.randomness import generator, seeded
from dgl_lara.blackbox.adapters import from_pyg
from dgl_lara.errors import InputError, LaraError, ModelError, message
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.metrics.characterization_score import characterization_score
from dgl_lara.metrics.common.label_flips import masked_predictions
from dgl_lara.metrics.fidelity import SPARSITIES
from dgl_lara.metrics.fidelity_curve import fidelity_curve_area
from dgl_lara.metrics.unfaithfulness import unfaithfulness

pyg = pytest.importorskip("torch_geometric", reason="needs PyTorch Geometric: pip install 'dgl-lara[pyg]'")

from torch_geometric import explain as theirs  # noqa: E402
from torch_geometric.explain import metric  # noqa: E402

from dgl_lara.pyg import LARAExplainer, explain_each  # noqa: E402

mpl.use("Agg")
QUICK = TrainingConfig(hidden=8, dim=3, masks=1, steps=3)
PAGE = (Path(__file__).parents[1] / "docs" / "pyg.md").read_text()


def some_graph(nodes=30, edges=40, seed=0, columns=4):
    edge_index = torch.stack(random_graph(nodes, edges, seed).edges())
    return torch.randn(nodes, columns, generator=generator(seed)), edge_index


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = pyg.nn.SGConv(4, 3, K=2)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


class Pooled(torch.nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.one, self.two = pyg.nn.GCNConv(4, 8), torch.nn.Linear(8, classes)

    def forward(self, x, edge_index, batch=None):
        return self.two(pyg.nn.global_add_pool(self.one(x, edge_index).relu(), batch))


class Changed(torch.nn.Module):
    """A model with something done to its answer."""

    def __init__(self, model, change):
        super().__init__()
        self.model, self.change = model, change

    def forward(self, x, edge_index):
        return self.change(self.model(x, edge_index))


def explainer_of(model, algorithm=None, level="node", mode="multiclass_classification", returns="raw", **settings):
    settings = {"explanation_type": "model", "edge_mask_type": "object", **settings}
    model_config = {"mode": mode, "task_level": level, "return_type": returns}
    return theirs.Explainer(model, algorithm or LARAExplainer(config=QUICK), model_config=model_config, **settings)


@pytest.fixture(scope="module")
def linear():
    """Entries of x and edges of a linear model, learned well enough to be compared with what is known."""
    model, (x, edge_index) = Linear(), some_graph()
    config = TrainingConfig(hidden=16, dim=5, masks=4, steps=120, lr=1e-2)
    algorithm = LARAExplainer(hops=2, config=config)
    explainer_of(model, algorithm, node_mask_type="attributes", edge_mask_type=None).algorithm.train(
        model, x, edge_index
    )
    return model, x, edge_index, algorithm


@pytest.fixture(scope="module")
def nodes():
    """Nodes and edges of the same, hardly learned."""
    model, (x, edge_index) = Linear(), some_graph()
    explainer = explainer_of(model, LARAExplainer(hops=2, config=QUICK), node_mask_type="object")
    assert explainer.algorithm.train(model, x, edge_index, index=torch.arange(20)) is explainer.algorithm
    return model, x, edge_index, explainer


def closed_form(model, x, edge_index, target, label):
    """(num_nodes, columns): (Â²)_iv x_vc W_c."""
    adjacency = torch.eye(len(x)).index_put((edge_index[1], edge_index[0]), torch.tensor(1.0), accumulate=True)
    scale = adjacency.sum(1).rsqrt()
    adjacency = scale.unsqueeze(1) * adjacency * scale
    return (adjacency @ adjacency)[target].unsqueeze(1) * x * model.conv.lin.weight[label].detach()


@pytest.mark.parametrize("kind", ["model", "phenomenon"])
def test_features_of_a_linear_model(linear, kind):
    """Entries, columns and several targets at once; of the predicted class, and of one that is asked for."""
    model, x, edge_index, algorithm = linear
    labels = model(x, edge_index).argmax(1) if kind == "model" else torch.arange(30) % 3
    target = None if kind == "model" else labels
    several = torch.tensor([3, 11, 25])
    for index in (7, several):
        which = torch.as_tensor(index).reshape(-1)
        expected = torch.stack([closed_form(model, x, edge_index, i, labels[i]) for i in which]).mean(0)
        assert expected.std() > 0.01
        requested = {"explanation_type": kind, "edge_mask_type": None}
        entries = explainer_of(model, algorithm, node_mask_type="attributes", **requested)(
            x, edge_index, target=target, index=index
        )
        columns = explainer_of(model, algorithm, node_mask_type="common_attributes", **requested)(
            x, edge_index, target=target, index=index
        )
        assert entries.node_mask.shape == (30, 4) and columns.node_mask.shape == (1, 4)
        torch.testing.assert_close(entries.node_mask.sum(0, keepdim=True), columns.node_mask, atol=1e-5, rtol=1e-4)
        for found, truth in ((entries, expected), (columns, expected.sum(0, keepdim=True))):
            assert (found.node_mask - truth).square().sum() < 0.1 * truth.square().sum()


def test_nodes_and_edges_are_those_of_lara(nodes):
    model, x, edge_index, explainer = nodes
    found = explainer(x, edge_index, index=6)
    assert found.validate() and found.node_mask.shape == (30, 1) and found.edge_mask.shape == (edge_index.shape[1],)
    frame = explainer.algorithm.laras["edges"].explain([6]).to_frame()
    scores = {frozenset(pair): s for *pair, s in frame[["u", "v", "score"]].itertuples(index=False)}
    expected = [scores.get(frozenset(pair), 0.0) for pair in edge_index.T.tolist()]
    assert 0 < len(scores) < edge_index.shape[1] / 2
    torch.testing.assert_close(found.edge_mask, torch.tensor(expected), atol=1e-5, rtol=1e-4)
    mine = explainer.algorithm.laras["nodes"].explain([6])
    own = torch.zeros(30).index_put((mine.players.player,), mine.scores)
    torch.testing.assert_close(found.node_mask[:, 0], own, atol=1e-5, rtol=1e-4)


def test_directions_and_loops(nodes):
    model, x, edge_index, _ = nodes
    looped = torch.cat([edge_index, torch.tensor([[6], [6]])], dim=1)
    algorithm = LARAExplainer(hops=2, config=QUICK, directed=True)
    explainer = explainer_of(model, algorithm)
    algorithm.train(model, x, looped)
    mask = explainer(x, looped, index=6).edge_mask
    into = [place for place, (_, end) in enumerate(edge_index.T.tolist()) if end == 6]
    back = [edge_index.T.tolist().index([6, edge_index[0, place]]) for place in into]
    assert mask[-1] == 0 and (mask[into] != mask[back]).any()


def test_tools_of_pyg(nodes, tmp_path):
    """Subgraph, pictures, thresholds, metrics; the subgraph drops what speaks against the class."""
    model, x, edge_index, explainer = nodes
    found = explainer(x, edge_index, index=6)
    part = found.get_explanation_subgraph()
    assert len(part.x) == int((found.node_mask > 0).sum()) < int((found.node_mask != 0).sum())
    found.visualize_graph(str(tmp_path / "graph.png"), backend="networkx")
    assert (tmp_path / "graph.png").stat().st_size > 1000
    hard = found.threshold("topk_hard", 5)
    assert hard.node_mask.sum() == hard.edge_mask.sum() == 5
    for score in (*metric.fidelity(explainer, hard), metric.unfaithfulness(explainer, hard)):
        assert 0 <= score <= 1


def test_feature_importance(linear, tmp_path):
    model, x, edge_index, algorithm = linear
    explainer = explainer_of(model, algorithm, node_mask_type="attributes", edge_mask_type=None)
    explainer(x, edge_index, index=2).visualize_feature_importance(str(tmp_path / "bars.png"), top_k=3)
    assert (tmp_path / "bars.png").stat().st_size > 1000


def test_each_is_what_one_call_gives(nodes):
    model, x, edge_index, explainer = nodes
    explainer = explainer_of(
        model, explainer.algorithm, node_mask_type="object", threshold_config={"threshold_type": "topk", "value": 8}
    )
    calls = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    found = list(explain_each(explainer, x, edge_index, index=torch.tensor([6, 2, -1])))
    handle.remove()
    assert len(calls) == 1
    for one, index in zip(found, (6, 2, 29), strict=True):
        alone = explainer(x, edge_index, index=index)
        assert sorted(one.keys()) == sorted(alone.keys())
        for name in ("node_mask", "edge_mask", "prediction", "target", "index", "x", "edge_index"):
            torch.testing.assert_close(one[name], alone[name])
        assert metric.fidelity(explainer, one) == metric.fidelity(explainer, alone)


def test_graphs_and_new_ones(tmp_path):
    """Trained on a batch; explains its graphs, and one that it has never seen."""
    graphs = [pyg.data.Data(x, edge_index) for x, edge_index in (some_graph(6 + i, 9, i) for i in range(5))]
    model, batch = Pooled(), pyg.data.Batch.from_data_list(graphs)
    explainer = explainer_of(model, level="graph", node_mask_type="object")
    explainer.algorithm.train(model, batch.x, batch.edge_index, batch=batch.batch)
    found = explainer(batch.x, batch.edge_index, batch=batch.batch, index=2)
    assert (found.node_mask[:, 0] != 0).equal(batch.batch == 2)
    assert found.edge_mask[batch.batch[batch.edge_index[0]] != 2].abs().max() == 0
    alone = explainer(graphs[2].x, graphs[2].edge_index)  # g is the same, the samples of training are not there
    assert alone.validate() and alone.node_mask.abs().min() > 0
    each = list(explain_each(explainer, batch.x, batch.edge_index, batch=batch.batch))
    assert len(each) == 5
    torch.testing.assert_close(each[2].node_mask, found.node_mask)
    together = explainer(batch.x, batch.edge_index, batch=batch.batch)
    torch.testing.assert_close(together.edge_mask, sum(one.edge_mask for one in each) / 5)
    hard = found.threshold("topk_hard", 3)
    assert all(0 <= score <= 1 for score in metric.fidelity(explainer, hard))
    unseen, edges = some_graph(9, 12, 77)
    torch.testing.assert_close(explainer(unseen, edges).node_mask, explainer(unseen, edges).node_mask)
    found.visualize_graph(str(tmp_path / "graph.png"), backend="networkx")


def test_a_graph_changed_in_place_is_another_graph(nodes):
    model, x, edge_index, explainer = nodes
    before = explainer(x, edge_index, index=6).node_mask
    changed = x.clone()
    changed[6] *= 3
    assert not torch.allclose(explainer(changed, edge_index, index=6).node_mask, before)
    changed.copy_(x)
    torch.testing.assert_close(explainer(changed, edge_index, index=6).node_mask, before)


@pytest.mark.parametrize(
    ("mode", "returns", "change", "value"),
    [
        ("multiclass_classification", "log_probs", lambda z: z.log_softmax(1), lambda z: z.log_softmax(1)),
        ("multiclass_classification", "probs", lambda z: z.softmax(1), lambda z: z.log_softmax(1)),
        ("binary_classification", "raw", lambda z: z[:, 0], lambda z: torch.stack([-z[:, 0], z[:, 0]], 1)),
        ("binary_classification", "probs", lambda z: z[:, :1].sigmoid(), lambda z: torch.stack([-z[:, 0], z[:, 0]], 1)),
        ("regression", "raw", lambda z: z[:, 0], lambda z: z[:, :1]),
    ],
)
def test_what_is_explained_of_each_mode(mode, returns, change, value):
    model, (x, edge_index) = Linear(), some_graph()
    explainer = explainer_of(
        Changed(model, change), mode=mode, returns=returns, algorithm=LARAExplainer(2, config=QUICK)
    )
    explainer.algorithm.train(explainer.model, x, edge_index)
    found = explainer(x, edge_index, index=6)
    assert found.edge_mask.abs().max() > 0
    game = explainer.algorithm.laras["edges"].game
    torch.testing.assert_close(game.full_values, value(model(x, edge_index)).detach(), atol=1e-4, rtol=1e-4)
    if mode != "regression":
        assert found.target[6] == game.explained_class[6]


# --- edge data, several types


class Weighted(torch.nn.Module):
    """Sums the neighbours, each by the weight of its edge."""

    def forward(self, x, edge_index, edge_weight):
        return x[:, :3].index_add(0, edge_index[1], edge_weight.unsqueeze(1) * x[edge_index[0], :3])


def test_edge_data_is_passed_on_and_distinguishes_graphs():
    x, edge_index = some_graph()
    weight = torch.rand(edge_index.shape[1], generator=generator(5)) + 0.5
    model = Weighted()
    explainer = explainer_of(model, LARAExplainer(hops=1, config=QUICK), node_mask_type="object", edge_mask_type=None)
    explainer.algorithm.train(model, x, edge_index, edge_weight=weight)
    found = explainer(x, edge_index, edge_weight=weight, index=6)
    game = explainer.algorithm.laras["nodes"].game
    torch.testing.assert_close(game.full_logits, model(x, edge_index, weight))
    mine = explainer.algorithm.laras["nodes"].explain([6])
    own = torch.zeros(30).index_put((mine.players.player,), mine.scores)
    torch.testing.assert_close(found.node_mask[:, 0], own, atol=1e-5, rtol=1e-4)
    assert explainer.algorithm._laras_on(model, x, edge_index, {"edge_weight": weight}) is explainer.algorithm.laras
    elsewhere = explainer.algorithm._laras_on(model, x, edge_index, {"edge_weight": 2 * weight})["nodes"]
    torch.testing.assert_close(elsewhere.game.full_logits, model(x, edge_index, 2 * weight))
    each = next(explain_each(explainer, x, edge_index, edge_weight=weight, index=6))
    torch.testing.assert_close(each.edge_weight, weight)
    torch.testing.assert_close(each.node_mask, found.node_mask)
    for more in ({"edge_weight": weight[:-1]}, {"edge_attr": weight}, {"pos": x}):
        with raises("pyg.other_data", InputError, got=next(iter(more))):
            explainer.algorithm.train(model, x, edge_index, **{"edge_weight": weight, **more})


def test_masks_by_type_and_by_relation(tmp_path):
    """Those of the very LARA, parted; PyG's own object and its tools."""
    data = pyg.data.HeteroData()
    data["user"].x, data["item"].x = (torch.randn(12, 4, generator=generator(seed)) for seed in (1, 2))
    ends = torch.randint(12, (2, 30), generator=generator(3)).unique(dim=1)
    there, back = ("user", "buys", "item"), ("item", "bought_by", "user")
    data[there].edge_index, data[back].edge_index = ends, ends.flip(0)

    class Typed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = pyg.nn.HeteroConv({one: pyg.nn.SAGEConv((4, 4), 4) for one in data.edge_types})

        def forward(self, x, edge_index):
            return self.conv(self.conv(x, edge_index), edge_index)["user"]

    model = Typed()
    algorithm = LARAExplainer(hops=2, config=QUICK, target_type="user")
    explainer = explainer_of(model, algorithm, node_mask_type="object")
    algorithm.train(model, data.x_dict, data.edge_index_dict, index=torch.arange(9))
    found = explainer(data.x_dict, data.edge_index_dict, index=5)
    assert isinstance(found, theirs.HeteroExplanation) and found.validate()
    mine = algorithm.laras["nodes"].explain([5])
    own = torch.zeros(24).index_put((mine.players.player,), mine.scores)
    torch.testing.assert_close(found["user"].node_mask[:, 0], own[:12], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found["item"].node_mask[:, 0], own[12:], atol=1e-5, rtol=1e-4)
    assert own[:12].abs().max() > 0 and own[12:].abs().max() > 0
    edges = algorithm.laras["edges"]
    scores, kind = edges.explain([5]), edges.game.player_set
    assert isinstance(kind, EdgePlayers)
    one, other = kind.endpoints(scores.players.player)
    by_pair = {(int(u), int(v) - 12): float(score) for u, v, score in zip(one, other, scores.scores, strict=True)}
    expected = torch.tensor([by_pair.get((int(u), int(v)), 0.0) for u, v in ends.T])
    assert 0 < len(by_pair) < ends.shape[1]
    for relation in (there, back):  # both directions are one player
        torch.testing.assert_close(found[relation].edge_mask, expected, atol=1e-5, rtol=1e-4)
    each = list(explain_each(explainer, data.x_dict, data.edge_index_dict, index=torch.tensor([5, 7])))
    torch.testing.assert_close(each[0]["item"].node_mask, found["item"].node_mask)
    torch.testing.assert_close(each[1]["item"].x, data["item"].x)
    part = found.get_explanation_subgraph()
    assert len(part["user"].x) == int((own[:12] > 0).sum())
    changed = {"user": data["user"].x * 2, "item": data["item"].x}
    assert explainer(changed, data.edge_index_dict, index=5)["user"].node_mask.shape == (12, 1)  # another graph
    with raises("target_type.missing", InputError):
        explainer_of(model).algorithm.train(model, data.x_dict, data.edge_index_dict)


def test_settings_that_are_not_supported(caplog):
    for settings, text in (
        ({"level": "edge"}, message("pyg.edge_level")),
        (
            {"mode": "regression", "algorithm": LARAExplainer(value="probability")},
            message("pyg.regression_value", got="probability"),
        ),
    ):
        with pytest.raises(ValueError):
            explainer_of(Linear(), **settings)
        assert text in caplog.text


def test_mistakes(nodes):
    model, x, edge_index, trained = nodes
    fresh = explainer_of(model)
    columns = explainer_of(model, trained.algorithm, edge_mask_type=None, node_mask_type="common_attributes")
    with raises("pyg.not_trained", LaraError, players="features"):
        columns(x, edge_index, index=0)
    trained = explainer_of(model, trained.algorithm, node_mask_type="object")
    other = explainer_of(Linear(), trained.algorithm, node_mask_type="object")
    binary, regression = (
        explainer_of(model, mode=mode).algorithm.train for mode in ("binary_classification", "regression")
    )
    train, typed = fresh.algorithm.train, {"a": x}
    for call, kind, code, fields in (
        (lambda: fresh(x, edge_index, index=0), LaraError, "pyg.not_trained", {"players": "edges"}),
        (lambda: next(explain_each(fresh, x, edge_index)), LaraError, "pyg.not_trained", {}),
        (lambda: train(0, model, x, edge_index), InputError, "pyg.arguments", {"got": "int"}),
        (lambda: train(model, typed, edge_index), InputError, "pyg.data", {"x": "dict"}),
        (lambda: train(model, x, torch.eye(30).to_sparse()), InputError, "pyg.data", {}),
        (lambda: train(model, x, edge_index, edge_weight=x), InputError, "pyg.other_data", {"got": "edge_weight"}),
        (lambda: train(model, x, edge_index, index=99), InputError, "pyg.index", {"most": 29}),
        (lambda: trained(x, edge_index, index=30), InputError, "pyg.index", {"most": 29}),
        (lambda: other(x, edge_index, index=0), LaraError, "pyg.other_model", {}),
        (lambda: binary(model, x, edge_index), ModelError, "pyg.several_columns", {"got": 3}),
        (lambda: regression(model, x, edge_index), ModelError, "pyg.several_columns", {"got": 3}),
    ):
        with raises(code, kind, **fields):
            call()
    phenomenon = explainer_of(model, trained.algorithm, node_mask_type="object", explanation_type="phenomenon")
    with raises("pyg.target", InputError, count=30):
        phenomenon(x, edge_index, index=0, target=torch.zeros(3, dtype=torch.long))
    with raises("pyg.needs_target", InputError):
        next(explain_each(phenomenon, x, edge_index))
    backward = Linear()
    backward.conv.flow = "target_to_source"
    with raises("pyg.reversed_layer", InputError, layer="conv"):
        from_pyg(backward, pyg.data.Data(x, edge_index))


def test_it_stays_a_torch_module(nodes):
    algorithm = nodes[3].algorithm
    assert not algorithm.eval().training and algorithm.train().training
    assert not list(algorithm.parameters())  # the model is not its part


def test_metrics_of_eval_are_those_of_pyg():
    """Columns of x are removed as PyG masks them, so that both ask the model the same."""
    x, edge_index = some_graph(30, 40, 3, 6)
    with seeded(4):
        model = pyg.nn.GCN(6, 8, 2, 3)
    lara = LARA(*from_pyg(model, pyg.data.Data(x, edge_index)), hops=2, config=QUICK, players=Features())
    mine = lara.fit(range(30)).explain(range(30), corrected=False)
    predictions = masked_predictions(lara.game, mine)["paper"]
    explainer = explainer_of(model, node_mask_type="common_attributes", edge_mask_type=None)
    prediction = model.eval()(x, edge_index).detach()
    plus, minus, off = (torch.zeros(5, 30, dtype=torch.float64) for _ in range(3))
    for place, sparsity in enumerate(SPARSITIES):
        for node in range(30):
            mask = mine[node].batch.important(sparsity).float().unsqueeze(0)
            one = theirs.Explanation(x=x, edge_index=edge_index, node_mask=mask, index=torch.tensor([node]))
            one._model_args, one.prediction, one.target = [], prediction, prediction.argmax(1)
            plus[place, node], minus[place, node] = metric.fidelity(explainer, one)
            off[place, node] = metric.unfaithfulness(explainer, one)
    plus, minus = plus.mean(1), minus.mean(1)
    assert plus.min() > 0 and minus.max() < 1 and off.std() > 0.01
    for ours, expected in zip(predictions.fidelity, (plus, minus), strict=True):
        torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(unfaithfulness(predictions.full, predictions.only), off, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        characterization_score(*predictions.fidelity, plus_weight=0.3),
        metric.characterization_score(plus, minus, 0.3, 0.7),
    )
    where = torch.tensor(SPARSITIES, dtype=torch.float64)
    torch.testing.assert_close(
        fidelity_curve_area(*predictions.fidelity, where), metric.fidelity_curve_auc(plus, minus, where)
    )


def test_where_scores_are_not_defined():
    nothing, one = torch.zeros(2), torch.ones(2)
    assert characterization_score(nothing, nothing).tolist() == [0, 0]
    assert fidelity_curve_area(one, one, torch.tensor([0.0, 1.0])).isnan()


@pytest.mark.long
def test_without_pyg_one_sentence():
    """The rest of the package does not need it."""
    code = (
        "import sys; import dgl_lara.lara; assert 'torch_geometric' not in sys.modules\n"
        "sys.modules['torch_geometric'] = None\n"
        "try:\n    from dgl_lara.pyg import LARAExplainer\nexcept ImportError as error:\n    print(error)"
    )
    code, printed, errors = Forked(code).result()
    assert (code, errors) == (0, "") and "'dgl-lara[pyg]'" in printed and printed.count("\n") == 1


def test_the_page_runs(tmp_path, monkeypatch, capsys):
    """docs/pyg.md, with training cut short."""
    blocks = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 5
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dgl_lara.inference.fitting.default", lambda task, count, **more: QUICK)
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert {path.name for path in tmp_path.iterdir()} >= {"why5.png", "columns.png"}
    assert "fid+" in capsys.readouterr().out

"""What goes wrong with a model of one's own: one clear sentence each, in Python and on the command line."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import dgl
import numpy as np
import pandas as pd
import pytest
import torch
from codes import raises, run
from games import PooledGCN, SmallGCN, random_graph
from test_bulk import bulk

from dgl_lara import LARA
from dgl_lara._util.tables import text_table
from dgl_lara.errors import InputError, ModelError
from dgl_lara.game.game import Game
from dgl_lara.inference.fitted import Fitted
from dgl_lara.metrics.agreement import METRIC
from dgl_lara.metrics.common.metric import EvalCase
from dgl_lara.training.config import TrainingConfig

GRAPH = random_graph(40, 46, 0)
FEATURES = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
QUICK = TrainingConfig(hidden=16, dim=5, masks=4, steps=20)

# Each function builds a model that cannot be explained; the sentence is what the user is told.
CODE = """
import dgl
import torch
from torch import nn

linear = nn.Linear(3, 2)


def elsewhere():
    return nn.Sequential(nn.Linear(3, 2, device="meta"))


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = dgl.nn.GraphConv(5, 2, allow_zero_in_degree=True)

    def forward(self, graph, x):
        return self.conv(graph, x)


def wide():
    return Wide()


def fewer_rows():
    return lambda graph, x: x[1:]


def random():
    return lambda graph, x: linear(nn.functional.dropout(x))


def nan():
    return lambda graph, x: x / x.new_zeros(())


def nan_when_removed():
    return lambda graph, x: x.log() if graph.num_nodes() < 30 else x


def picky():
    conv = dgl.nn.GraphConv(3, 2)
    return lambda graph, x: conv(graph, x)


def reads_more():
    return lambda graph, x: x * graph.ndata["norm"]


def raises():
    def f(graph, x):
        raise ValueError("I am out of order")

    return f
"""
CODES = {
    "elsewhere": "model.device",
    "wide": "model.feature_columns",
    "fewer_rows": "model.rows",
    "random": "model.not_deterministic",
    "nan": "model.not_finite",
    "nan_when_removed": "model.not_finite",
    "picky": "model.zero_in_degree",
    "reads_more": "model.missing_key",
    "raises": "model.failed",
}


@pytest.mark.parametrize("mistake", CODES)
def test_in_python(mistake):
    names = {}
    exec(CODE, names)
    with raises(CODES[mistake]):
        LARA(names[mistake](), GRAPH, FEATURES, hops=1, config=QUICK).fit(range(40))


@pytest.mark.parametrize("mistake", CODES)
def test_on_the_command_line(mistake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    src, dst = GRAPH.edges()
    np.savez("graph.npz", src=src, dst=dst, x=FEATURES, y=np.arange(40) % 2)
    Path("faulty.py").write_text(CODE)
    words = ["train", "--graph", "graph.npz", "--model", f"faulty:{mistake}", "--epochs", "5", "--out", "run"]
    result = run(*words)
    sys.modules.pop("faulty", None)
    assert isinstance(result.exception, SystemExit) and result.exit_code in (1, 2)
    assert "Traceback" not in result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("Error")]
    assert f"[{CODES[mistake]}]" in line


def test_dropout_in_train_mode_is_no_mistake():
    class Dropping(SmallGCN):
        def forward(self, graph, h):
            return super().forward(graph, torch.nn.functional.dropout(h, 0.5, self.training))

    game = Game.create(Dropping().train(), GRAPH, FEATURES, hops=2)
    torch.testing.assert_close(game.full_logits, Game.create(SmallGCN(), GRAPH, FEATURES).full_logits)


def test_features_that_are_no_numbers_are_not_blamed_on_the_model():
    features = FEATURES.clone()
    features[7, 0] = torch.nan
    with raises("model.features_not_finite"):
        LARA(SmallGCN(), GRAPH, features, hops=1, config=QUICK).fit(range(40))


def erases_its_features(graph, x):
    return SmallGCN()(graph, x.mul_(0))


def grows_its_graph(graph, x):
    graph.add_edges(0, 1)
    return SmallGCN()(graph, x)


def answers_by_size(graph, x):
    return SmallGCN()(graph, x)[:, : 3 if graph.num_nodes() == 40 else 2]


@pytest.mark.parametrize(
    ("model", "code", "fields"),
    [
        (erases_its_features, "model.changes_inputs", {"changed": "features"}),
        (grows_its_graph, "model.changes_inputs", {"changed": "graph"}),
        (lambda graph, x: SmallGCN()(graph, x).to_sparse(), "model.sparse_output", {}),
    ],
)
def test_models_that_break_the_rules(model, code, fields):
    with raises(code, ModelError, **fields):
        LARA(model, GRAPH, FEATURES.clone(), hops=1, config=QUICK).fit(range(40))


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (answers_by_size, "model.columns"),
        (lambda graph, x: torch.zeros(graph.num_nodes(), 3), "model.constant"),
        (lambda graph, x: SmallGCN()(graph, x) * 1e-30, "model.constant"),
        (lambda graph, x: SmallGCN()(graph, x) * 1e-4 + 1e5, "model.constant"),
    ],
)
def test_models_that_cannot_be_explained(model, code):
    with raises(code, ModelError):
        LARA(model, GRAPH, FEATURES.clone(), hops=1, config=QUICK).fit(range(40))


def test_features_of_another_graph():
    with raises("features.rows", InputError, count=40, got=39):
        LARA(SmallGCN(), GRAPH, FEATURES[1:], config=QUICK).fit(range(40))


def test_several_kinds_of_nodes():
    graph = dgl.heterograph({("a", "to", "b"): ([0], [0])})
    with raises("graph.heterogeneous"):
        Game.create(SmallGCN(), graph, FEATURES)


def test_a_failure_keeps_its_cause():
    names = {}
    exec(CODE, names)
    with pytest.raises(ModelError) as caught:
        Game.create(names["raises"](), GRAPH, FEATURES)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_graph_without_edges_is_explained_by_each_node_itself():
    graph = dgl.graph(([], []), num_nodes=40)
    lara = LARA(SmallGCN(), graph, FEATURES, config=QUICK).fit(range(40))
    frame = lara.explain(range(40)).to_frame()
    assert lara.game.hops == 0
    assert frame.player.tolist() == frame.target.tolist() == list(range(40))


def test_an_isolated_target_is_its_own_only_player():
    graph = dgl.add_nodes(GRAPH, 1)
    features = torch.cat([FEATURES, torch.ones(1, 3)])
    lara = LARA(SmallGCN(), graph, features, hops=2, config=TrainingConfig(hidden=32, dim=8, steps=200))
    explanations = lara.fit(range(41)).explain([40])
    assert explanations.players.player.tolist() == [40]
    game = lara.game
    phi = (game.full_values[40] - game.null_values)[game.explained_class[40]]  # the game of one player
    torch.testing.assert_close(explanations.scores[0], phi, rtol=0.3, atol=0.1)


def test_graphs_without_edges():
    batch = dgl.batch([dgl.graph(([], []), num_nodes=4) for _ in range(10)])
    lara = LARA(PooledGCN(), batch, FEATURES, task="graph", config=QUICK).fit(range(10))
    assert lara.explain([3]).players.player.tolist() == [12, 13, 14, 15]


# --- what is given in Python ----------------------------------------------------------------------------------------


def test_features_as_an_array_are_taken():
    lara = LARA(SmallGCN(), GRAPH, FEATURES.double().numpy(), hops=2, config=QUICK).fit(range(40))
    torch.testing.assert_close(lara.game.full_logits, Game.create(SmallGCN(), GRAPH, FEATURES).full_logits)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        *((given, "features.type") for given in ({"a": FEATURES}, "features", [object()])),
        *((given, "features.shape") for given in (FEATURES[:, 0], FEATURES[:, :0], FEATURES.to(torch.complex64))),
    ],
)
def test_invalid_features(given, code):
    with raises(code, InputError):
        LARA(SmallGCN(), GRAPH, given)


def test_features_of_several_kinds_of_nodes():
    graph = dgl.heterograph({("a", "to", "b"): ([0], [0])})
    with raises("target_type.missing", InputError, types="a, b"):
        LARA(SmallGCN(), graph, {"a": FEATURES, "b": FEATURES})
    with raises("graph.type", got="str"):
        LARA(SmallGCN(), "graph", FEATURES)
    with raises("graph.type", got="Tensor"):
        LARA(SmallGCN(), torch.zeros(2, 3, dtype=torch.long), FEATURES)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ((GRAPH, SmallGCN(), FEATURES), "model.is_graph"),
        ((SmallGCN(), GRAPH.to_networkx(), FEATURES), "graph.type_networkx"),
        (((SmallGCN(), GRAPH, FEATURES),), "model.is_tuple"),
        ((SmallGCN, GRAPH, FEATURES), "model.is_class"),
    ],
)
def test_arguments_in_another_order(given, code):
    with raises(code, InputError):
        LARA(*given)


@pytest.mark.parametrize(
    ("model", "features", "code"),
    [
        (lambda graph, x: x.numpy(), FEATURES, "model.numpy_output"),
        (SmallGCN(), FEATURES.double(), "model.feature_dtype"),
        (SmallGCN(), FEATURES.long(), "model.feature_dtype"),
        (lambda graph, x: x[:, :0], FEATURES, "model.rows"),
        (lambda graph, x: x.to(torch.complex64), FEATURES, "model.complex_output"),
    ],
)
def test_outputs_and_features_of_a_wrong_type(model, features, code):
    with raises(code, ModelError):
        Game.create(model, GRAPH, features)


@pytest.mark.parametrize("declared", ["two", 2.5, True, -1, 10**9, [2]])
def test_a_model_that_declares_no_number_of_hops(declared):
    model = SmallGCN()
    model.num_hops = declared
    with raises("hops.declared", ModelError):
        LARA(model, GRAPH, FEATURES, config=QUICK).fit(range(40))


@pytest.mark.parametrize("classes", [[1.7], [True], ["one"], [2**63], [None]])
def test_invalid_classes(classes):
    one = bulk("walk", False)
    lara = LARA.of_game(one.game).with_fitted(Fitted(one.explainer, TrainingConfig()))
    with raises("classes.range", most=2):
        lara.explain([3], classes=classes)


def test_text_and_empty_lists_in_place_of_numbers(fitted):
    with raises("classes.range", got="['ant']"):
        fitted.explain([3], classes=["ant"])
    with raises("classes.pair", got="[[]]"):
        fitted.explain([3], classes=[[]])
    with raises("targets.type", got="'5'"):
        fitted.explain("5")


def test_a_model_that_uses_the_full_graph_raises_a_notice(notices):
    Game.create(lambda graph, x: x - x.mean(dim=0), GRAPH, FEATURES, "node", 1)
    assert notices.codes == ["context.unbounded"] and notices.fields("context.unbounded") == {"hops": 4}


@pytest.mark.parametrize(
    ("given", "code", "fields"),
    [
        ({"value": "logits"}, "value.unknown", {"got": "logits"}),
        ({"hops": -1}, "hops.range", {"got": -1, "most": 64}),
        ({"hops": "3"}, "hops.range", {"got": "3"}),
        ({"hops": True}, "hops.range", {"got": True}),
        ({"features": torch.ones(7, 2)}, "features.rows", {"got": 7, "count": 9}),
    ],
)
def test_invalid_arguments_raise_before_fit(given, code, fields):
    with raises(code, InputError, **fields):
        LARA(lambda graph, x: x, random_graph(9, 20, 0), **{"features": torch.ones(9, 2), **given})


def test_agreement_over_neighbours_that_count_nothing_is_no_figure():
    """An R2 of -768,704,127, or of 41."""
    linear = torch.nn.Linear(3, 3)
    lara = LARA(lambda graph, x: linear(x), GRAPH, FEATURES, hops=2, config=QUICK).fit(range(20))
    assert math.isnan(lara.state_.best_of_neighbours)
    targets = torch.arange(20, 40)
    case = EvalCase(lara.game, targets, reference_pairs=200)
    table = METRIC.table(case, lara.explain(targets))
    assert table["neighbours only"].isna().all() and table["R2 corrected"].notna().all()
    assert "only_noise" in {code.partition(".")[2] for code in METRIC.notes(table)}
    assert " - " in text_table(*METRIC.summary(table))


@pytest.fixture(scope="module")
def fitted():
    return LARA(SmallGCN(), GRAPH, FEATURES, hops=1, config=QUICK).fit(range(40))


@pytest.mark.parametrize(
    ("call", "code", "got"),
    [
        (lambda lara, known: lara.refine(known, "5"), "settings.invalid", "'5'"),
        (lambda lara, known: lara.refine(known, 2.5), "settings.invalid", "2.5"),
        (lambda lara, known: lara.refine([1, 2], 4), "explanations.type", "list"),
        (lambda lara, known: lara.verify(known, 0), "settings.invalid", "0"),
        (lambda lara, known: lara.verify(known, True), "settings.invalid", "True"),
        (lambda lara, known: lara.verify([5]), "explanations.type", "list"),
        (lambda lara, known: lara.top([1], None), "settings.invalid", "None"),
        (lambda lara, known: lara.top([1], float("nan")), "settings.invalid", "nan"),
        (lambda lara, known: lara.explain([1j]), "targets.type", "[1j]"),
        (lambda lara, known: lara.explain([1, True]), "targets.type", "[1, True]"),
        (lambda lara, known: lara.fit([1, 2], resume="x"), "lara.resume", "str"),
        (lambda lara, known: lara.fit([1, 2], callback=None), "lara.callbacks", "function, NoneType"),
    ],
)
def test_invalid_arguments_of_methods(fitted, call, code, got):
    known = fitted.explain([1, 2])
    with raises(code, InputError, got=got):
        call(fitted, known)


@pytest.mark.parametrize(
    ("given", "code", "got"),
    [
        ({"memory": "4GB"}, "settings.invalid", "'4GB'"),
        ({"memory": 0}, "settings.invalid", "0"),
        ({"config": {"steps": 3}}, "settings.invalid", "{'steps': 3}"),
        ({"store": "a.pt"}, "settings.invalid", "'a.pt'"),
        ({"compute_device": "tpu"}, "device.invalid", "'tpu'"),
        ({"features": FEATURES.to_sparse()}, "features.dense", "torch.sparse_coo on cpu"),
        ({"features": FEATURES.to("meta")}, "features.dense", "torch.strided on meta"),
    ],
)
def test_invalid_arguments(given, code, got):
    with raises(code, InputError, got=got):
        LARA(SmallGCN(), GRAPH, **{"features": FEATURES, **given})


def test_equivalent_inputs_give_equal_scores(fitted):
    """Features that a gradient is asked of or that pandas holds, a graph without its list of edges."""
    expected = fitted.explain([3]).scores
    for graph, features in (
        (GRAPH, FEATURES.clone().requires_grad_()),
        (GRAPH, pd.DataFrame(FEATURES.numpy())),
        (GRAPH.formats("csc"), FEATURES),
    ):
        lara = LARA(SmallGCN(), graph, features, hops=1, config=QUICK).fit(range(40))
        assert not lara.features.requires_grad
        torch.testing.assert_close(lara.explain([3]).scores, expected, atol=1e-3, rtol=1e-3)
    with pytest.raises(TypeError):
        fitted.explain([3])["a"]


@pytest.mark.parametrize("value", ["logit", "probability"])
def test_a_model_that_is_zero_outside_coalitions_is_explained(value):
    """Its untouched answers are all alike, so there is no size by which to store what coalitions say (an infinity in
    the errors, a division by zero in the correction)."""
    for seed in (13, 24):
        graph = random_graph(30, 30, seed)
        features = torch.randn(30, 3, generator=torch.Generator().manual_seed(seed))
        model = SmallGCN(seed=seed)
        lara = LARA(lambda g, x, model=model: torch.relu(model(g, x) - 3), graph, features, hops=2, value=value,
                    config=replace(QUICK, shared_pairs=64))  # fmt: skip
        found = lara.fit(range(15), range(15, 30)).explain(range(30))
        assert found.scores.isfinite().all() and found.variance.isfinite().all()


def test_a_model_that_hardly_changes_on_validation_targets_is_noted(notices):
    """Their agreement was -2,393,687,719,935."""

    def asleep(graph, x):
        output = SmallGCN()(graph, x)
        return torch.where(x[:, :1] > 1.2, output, output * 1e-7)

    awake = FEATURES[:, 0] > 1.2
    lara = LARA(asleep, GRAPH, FEATURES, hops=2, config=QUICK).fit(
        awake.nonzero().flatten(), (~awake).nonzero().flatten()
    )
    assert notices.has("validation.only_noise")
    assert -100 < lara.agreement <= 1

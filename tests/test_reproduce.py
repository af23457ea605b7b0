"""`dgl-lara reproduce`: the scripts are there, and a small real run has the paper's figures beside ours."""

import sys
from dataclasses import replace

import dgl
import pandas as pd
import pytest
import torch
from codes import raises, refused, run
from games import gcn_game

from dgl_lara.baselines import orphicx
from dgl_lara.baselines.random import Random
from dgl_lara.cli.reproduce import WHAT, measure_side_by_side, script
from dgl_lara.datasets import Options, load
from dgl_lara.evaluation import benchmark as module
from dgl_lara.evaluation.benchmark import METHODS, Benchmark, fit_method, run_unit
from dgl_lara.game.game import Game
from dgl_lara.gnns.models import GNN, ModelConfig
from dgl_lara.metrics.fidelity import SPARSITIES, fidelity, fidelity_column

DUAL = "paper's form, dual"
PLUS = fidelity_column("F+", "paper")


# --- the command


def test_help_lists_everything():
    result = run("reproduce", "--help")
    assert result.exit_code == 0
    assert [what for what in (*WHAT, "all") if what not in result.output] == []


def test_unknown_is_a_usage_error():
    result = run("reproduce", "figure-17")
    assert result.exit_code == 2 and "figure-4" in result.output


def test_only_data_sets_of_the_paper_are_taken(tmp_path):
    (tmp_path / "g.npz").write_bytes(b"")
    for name in ("nothere", tmp_path / "g.npz"):
        result = run("reproduce", "table-1", "--dataset", str(name), "--quick")
        assert result.exit_code == 2 and "Traceback" not in result.output, result.output


def test_without_the_source_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr(sys.modules[script.__module__], "EXPERIMENTS", tmp_path)
    refused(run("reproduce", "table-1", "--quick"), "reproduce.no_source", 1)


@pytest.mark.parametrize("what", WHAT)
def test_every_script_can_run(what):
    assert callable(script(what).run) and script(what).__doc__


# --- the paper's figures


def test_figures_of_the_paper_are_those_of_its_tables():
    paper = script("paper_figures")
    sets = {"ba-shapes", "ba-community", "tree-cycles", "ba-2motifs", "mutag", "ogbn-arxiv"}
    assert all(set(row) == sets for row in paper.TABLE_1.values())
    for name in sets:  # "significant improvement in throughput on all datasets"
        assert max(paper.TABLE_1, key=lambda method: paper.TABLE_1[method][name][0]) == "lara"
    for name, (plus, minus) in paper.TABLE_2["dual"].items():
        assert plus > paper.TABLE_2["single"][name][0] and minus < paper.TABLE_2["single"][name][1]
    assert max(paper.TABLE_4, key=lambda layers: paper.TABLE_4[layers][0]) == 3
    assert max(paper.TABLE_DIM, key=lambda dim: paper.TABLE_DIM[dim][0]) == 20
    assert paper.TABLE_4[3][:2] == paper.TABLE_DIM[20] == paper.LARA_FIDELITY["ba-community"]
    assert paper.TABLE_3["lara"][100_000] - paper.TABLE_3["lara"][100] == pytest.approx(416, abs=0.1)
    assert set(paper.ONLY_PLOTTED) == {what for what in WHAT if what.startswith("figure") or what == "qualitative"}


# --- a small real run


@pytest.mark.long
def test_a_table_has_ours_and_the_papers(real_data, tmp_path):
    common, table = script("common"), script("table-2")
    settings = common.Settings(quick=True, targets=1, steps=2, out=tmp_path, device="cpu", datasets=("tree-cycles",))
    written = table.run(settings)
    assert [path.name for path in written] == ["table-2.md", "table-2.csv"]
    lines = written[0].read_text().splitlines()
    assert "2 training steps" in lines[2] and "1 seed" in lines[2] and "value: logit" in lines[2]
    assert "Data: tree" in written[0].read_text()
    row = next(line for line in lines if DUAL in line)
    assert row.endswith("| 2.19 | 1.02 |")
    frame = pd.read_csv(written[1]).set_index("label")
    assert len(frame) == 4 and frame[PLUS].nunique() > 1
    assert f"{frame[PLUS][DUAL]:.2f}" in row
    # what is kept is read, not made again; and LARA is kept as it was measured
    parts = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    methods = {"lara-0", "lara-paper-0", "single-0", "paper-single-0"}
    assert {path.stem for path in parts} == methods | {f"{method}-speed" for method in methods}
    table.run(settings)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == parts
    benchmark, lara = common.lara_on("tree-cycles", settings)
    figures = fidelity(benchmark.game, lara.explain(benchmark.targets)).set_index(["definition", "sparsity"])
    ours = frame.loc["our form, dual", PLUS]
    assert figures.loc[("paper", "average"), "fidelity+"] == pytest.approx(ours, rel=1e-3)


@pytest.mark.slow
def test_data_sets_are_measured_in_processes_of_their_own(real_data, tmp_path, notices):
    words = ["reproduce", "table-targets", "--quick", "--out", str(tmp_path)]
    table = tmp_path / "table-targets.csv"
    table.write_text("complete")
    measure_side_by_side(("ba-shapes", "tree-cycles"), words, 2, tmp_path)
    assert notices.codes.count("reproduce.measured") == 2
    assert len(pd.read_csv(tmp_path / "parts" / "ba-shapes" / table.name)) == 1
    assert table.read_text() == "complete" and not list(tmp_path.glob("*.log"))


def test_a_data_set_that_fails_is_named(tmp_path):
    words = ["reproduce", "table-targets", "--value", "price"]
    with raises("reproduce.failed", name="mutag"):
        measure_side_by_side(("mutag",), words, 2, tmp_path)


def test_only_what_concerns_a_data_set():
    settings = script("common").Settings(only="ogbn-arxiv")
    assert settings.names(("ba-shapes", "ogbn-arxiv")) == ("ogbn-arxiv",) and settings.names(("mutag",)) == ()
    assert set(script("common").LONGEST_FIRST) == set(script("common").SIX)
    assert all(script(what).NAMES for what in WHAT)


def test_stand_in_where_the_data_is_not_there():
    assert script("common").present("ogbn-arxiv", None) == ("citation", 10_000)
    assert script("common").present("ba-shapes", None) == ("ba-shapes", None)


# --- quick mode of the comparison


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DGL_LARA_CACHE", str(tmp_path_factory.mktemp("cache")))
        dataset = load("ba-shapes", Options(source="generated"))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GNN(ModelConfig("gcn", "node", 10, dataset.num_classes, 8, 2)).eval()
    return dataset, Game.create(model, dataset.graph, dataset.features, "node", 2)


def made(name, benchmark):
    return METHODS[name](benchmark, 0)


def test_quick_shortens_and_is_noted(small):
    dataset, game = small
    quick, full = (Benchmark.on(dataset, game, 3, flag) for flag in (True, False))
    assert quick.lara_config().steps == full.lara_config().steps  # a minute, here
    large = replace(dataset, train=torch.arange(module.MANY_TARGETS + 1))
    assert Benchmark.on(large, game, 3, True).lara_config().steps == module.QUICK_STEPS_LARGE < 300
    assert quick.paper_config().steps < full.paper_config().steps
    steps = [made("orphicx", benchmark).config.steps for benchmark in (quick, full)]
    assert steps == [orphicx.QUICK_STEPS, None]  # the authors' epochs
    assert "quick" in script("common").Settings(quick=True).words
    assert "full training" in script("common").Settings().words


def test_rivals_learn_from_all_kinds_of_targets_in_quick_mode(small):
    dataset, game = small
    seen = []

    class Listener(Random):
        learns = True

        def fit(self, targets):
            seen.append(targets)

    benchmark = Benchmark.on(dataset, game, 3, True)
    fit_method(replace(benchmark, makers={"listener": lambda b, s: Listener(b.game, s)}), "listener", 0)
    assert len(seen[0]) == module.QUICK_LEARNERS < len(dataset.train)
    assert len(dataset.labels[seen[0]].unique()) == dataset.num_classes


def test_settings_of_the_data_set_reach_gnn_explainer(small):
    dataset, game = small
    benchmark = Benchmark.on(dataset, game, 3, True)
    assert made("gnn-explainer", benchmark).mask_features
    renamed = replace(benchmark, dataset=replace(dataset, name="ba-2motifs"))
    assert not made("gnn-explainer", renamed).mask_features


def test_a_slow_method_is_left_out_with_its_reason(small, monkeypatch):
    dataset, game = small
    benchmark = Benchmark.on(dataset, game, 3, True)
    monkeypatch.setattr(module, "QUICK_MINUTES", 0)
    record, _ = run_unit(benchmark, "graphsvx", ["fidelity"], 0)
    assert record["left out"] and PLUS not in record
    record, _ = run_unit(replace(benchmark, quick=False), "random", ["fidelity"], 0)
    assert "left out" not in record


# --- correlation with fidelity


def additive(graph, features):
    """Every node adds its own number, so that all attributions are known."""
    total = dgl.ops.copy_u_sum(graph, features) + features
    return torch.cat([total, torch.zeros_like(total)], dim=1)


def test_attributions_of_an_additive_game():
    leaves = 8
    graph = dgl.graph((torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.long)), num_nodes=leaves + 1)
    features = torch.linspace(0.5, 3, leaves + 1).unsqueeze(1)
    game = Game.create(additive, graph, features, hops=1)
    found = script("correlation").random_sets(game, torch.zeros(1, dtype=torch.long), 400, 3, keep_target=True).iloc[0]
    members, total = found["size of J"], features.sum().item()
    assert not found["holds target"] and 0 < members <= leaves
    # the target stays: removing J takes away exactly what its members add
    mean = found["fidelity+"] / members
    # f(j and target) - f(all without j) = x_j + x_0 - (total - x_j)
    removal = found["removal, one node at a time"]
    assert removal == pytest.approx(2 * mean + features[0].item() - total, abs=1e-4)
    only = features[0].item() + found["fidelity+"]
    log_full, log_only = (torch.tensor([value, 0.0]).log_softmax(0) for value in (total, only))
    assert found["MI value"] == pytest.approx((log_full.exp() * (log_only - log_full)).sum().item(), abs=1e-5)


def test_correlations_and_their_randomness():
    game = gcn_game(nodes=40, edges=70)
    targets = torch.arange(40)
    correlation = script("correlation")
    random_sets = correlation.random_sets
    found = random_sets(game, targets, 100, 0)
    assert (found["players"] >= 3).all() and (found["size of J"] >= 1).all()
    assert 0 < found["holds target"].sum() < len(found)
    assert not random_sets(game, targets, 100, 0, keep_target=True)["holds target"].any()
    pd.testing.assert_frame_equal(found, random_sets(game, targets, 100, 0))
    assert not found.equals(random_sets(game, targets, 100, 1))
    table = correlation.correlations(found).set_index("attribution")
    assert tuple(table.index) == correlation.ATTRIBUTIONS
    assert table["pearson"]["phi, Eq. 5"] > 0.3  # the mean of phi says something about what removing J costs


# --- pictures


def records():
    rows = []
    for data in ("a", "b"):
        for place, method in enumerate(METHODS):
            row: dict[str, object] = {"data": data, "method": method, "label": method, "seed": 0}
            row |= {fidelity_column(sign, "paper", s): place + s for sign in ("F+", "F-") for s in SPARSITIES}
            rows.append(row)
    return pd.DataFrame(rows)


def test_figures_show_every_method():
    plots = script("plots")
    style, fidelity_grid, radars = plots.style, plots.fidelity_grid, plots.radars
    looks = {(style(method, place)["color"], style(method, place)["linestyle"]) for place, method in enumerate(METHODS)}
    assert len(looks) == len(METHODS)
    drawn = fidelity_grid(records(), "paper", "title")
    shown = [axis for axis in drawn.axes if axis.get_visible()]
    assert len(shown) == 4 and all(len(axis.lines) == len(METHODS) for axis in shown)
    table = (
        records().pivot_table(values=fidelity_column("F+", "paper", 0.5), index="method", columns="data", sort=False)
        + 1
    )
    drawn = radars([("F+", table, False), ("speed", table, True)], pd.Series({m: m for m in METHODS}), "title")
    best = drawn.axes[0].lines[list(table.index).index(list(METHODS)[-1])].get_ydata()
    assert best == pytest.approx(1)  # the rim

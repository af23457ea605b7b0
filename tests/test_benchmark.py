"""`dgl-lara benchmark`: one table, resumed without repeating, methods that cannot are named."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from codes import run
from games import gcn_game

from dgl_lara._util.randomness import seeded
from dgl_lara._util.tables import cell, text_blocks, text_table
from dgl_lara.baselines import BASELINES
from dgl_lara.baselines.common.method import BenchmarkSetting
from dgl_lara.cli.benchmark import METHODS
from dgl_lara.errors import message
from dgl_lara.evaluation import benchmark as module
from dgl_lara.evaluation import timing
from dgl_lara.evaluation.benchmark import (
    Benchmark,
    briefly_trained,
    fit_method,
    results_folder,
    run_benchmark,
    run_unit,
)
from dgl_lara.evaluation.lara_method import LaraMethod
from dgl_lara.explanation.trust import notice_low_agreement
from dgl_lara.game.game import Game
from dgl_lara.gnns.models import GNN, ModelConfig
from dgl_lara.metrics import METRICS
from dgl_lara.reports.benchmark_table import cells_of, comparison_markdown, note_codes, summary, terminal_table
from dgl_lara.runs.open import open_run
from dgl_lara.training.config import default

FASTER = tuple(METRICS["throughput"].columns)[1:]  # LARA from scratch, LARA with stored embeddings
MEASURES = ("fidelity", "agreement", "auc", "throughput")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(
        "dgl_lara.evaluation.benchmark.default",
        lambda task, count, **more: replace(default(task, count, **more), steps=4),
    )
    monkeypatch.setattr("dgl_lara.evaluation.benchmark.REFERENCE_PAIRS", 200)
    monkeypatch.setattr("dgl_lara.training.validation.PAIRS", 32)
    monkeypatch.setattr(timing, "ROUND_SECONDS", 0.1)
    monkeypatch.setattr("dgl_lara.training.validation.TARGETS", 8)


def compare(folder, *more):
    usual = {"--seeds": 2, "--targets": 10, "--out": "out"}
    few = [word for option, value in usual.items() if option not in more for word in (option, value)]
    words = ["benchmark", "--run", folder, "--quick", *few, *more]
    return run(*words)


def test_the_command_line_knows_every_method():
    assert tuple(module.METHODS) == METHODS


@pytest.mark.long
def test_one_table(own_folders, quick_runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = compare(quick_runs["ba-shapes"], "--methods", "random,abs-gradient,lara")
    assert result.exit_code == 0, result.output
    assert "10 test targets" in result.output and ", quick" in result.output and "±" in result.output
    printed = [line for line in result.stdout.splitlines() if "written: " not in line and "test targets" not in line]
    note = message("benchmark.auc").split(",")[0]
    assert max(map(len, printed)) <= 100 and note in result.stdout
    table = pd.read_csv("out/benchmark.csv").set_index("name")
    assert list(table.index) == ["random", "abs-gradient", "lara"]
    assert (table.seeds == 2).all()
    spread = table["F+ paper, average std"]
    assert spread["random"] > 0 and spread["abs-gradient"] == 0  # two seeds, two draws
    assert (table[list(FASTER)] > 0).all(axis=None)
    figures = {"F- kept, average", "Delta kept, average", "R2", "rank correlation", "AUC", "AUC |score|", "targets/s"}
    assert figures <= set(table.columns)
    page = (tmp_path / "out" / "benchmark.md").read_text()
    assert ", quick\n" in page and module.quick_note() in page
    best = table["Delta kept, average"].idxmax()
    rows = [line for line in (tmp_path / "out" / "benchmark.md").read_text().splitlines() if line.startswith("| ")]
    header, *body = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    place = header.index("Delta kept, average")
    marked = [row[0].replace("\\|", "|") for row in body if row[place].startswith("**")]
    assert marked == [table.loc[best, "method"]]
    records = json.loads((tmp_path / "out" / "benchmark.json").read_text())["records"]
    assert len(records) == 6


def test_the_table_fits_a_terminal_and_does_not_star_chance():
    records = pd.DataFrame(
        [
            {"method": name, "label": name, "seed": 0, "targets/s": speed, "AUC": auc, "AUC |score|": 0.9, "R2": auc,
             **{f"F{sign} {of}, average": auc for sign in "+-" for of in ("paper", "kept")}}
            for name, speed, auc in (("random", 9e6, 0.5), ("orphicx", 200.0, 0.96), ("lara", 5000.0, 0.6))
        ]
    )  # fmt: skip
    header, rows = cells_of(summary(records), lambda text: f"*{text}")
    starred = {name: {column for column, cell in zip(header, row, strict=True) if cell[0] == "*"} for name, *_ in rows
               for row in rows if row[0] == name}  # fmt: skip
    assert "targets/s" in starred["lara"] and starred["random"] == set() and "AUC" in starred["orphicx"]
    assert "R2" in starred["orphicx"] and "R2" not in starred["lara"]
    assert "AUC |score|" in starred["lara"] and "AUC |score|" in starred["orphicx"]  # as good as the other
    text = terminal_table(summary(records), 60)
    assert max(map(len, text.splitlines())) <= 60 and text.count("orphicx") > 1
    assert all(column.removesuffix(", average") in text for column in header)
    first = text.split("\n\n")[0].splitlines()
    assert len({len(line) for line in first}) == 1 and len(first) == 5  # figures end where their column does
    assert text_blocks(header, rows, 500) == text_table(header, rows)
    assert "benchmark.auc" in note_codes(summary(records))
    for code in note_codes(summary(records)):
        assert message(code)[1:].rstrip(".") in comparison_markdown(summary(records), "x")


def test_notes_belong_to_the_columns_of_the_table():
    of_speed = {"targets/s": 7.0, "LARA is x times faster": 2.0, "LARA, stored, is x times faster": 5.0}
    of_graphs = {"F+ paper, average": 1.0, "F- paper, average": 0.0}
    of_nodes = {**of_graphs, "Delta kept, average": 1.0, "rank correlation": 0.5, "R2": 0.4}
    expected = [["speed"], ["fidelity"], ["fidelity", "fidelity_kept", "truth", "scale"]]
    for figures, codes in zip((of_speed, of_graphs, of_nodes), expected, strict=True):
        table = summary(pd.DataFrame([{"method": "lara", "label": "lara", "seed": 0, **figures}]))
        assert note_codes(table) == [f"benchmark.{code}" for code in codes]


def test_an_r2_above_1_is_noise():
    def table(*rows):
        names = ("method", "R2", "R2, neighbours", "rank correlation")
        return summary(
            pd.DataFrame([{**dict(zip(names, row, strict=True)), "label": row[0], "seed": 0} for row in rows])
        )

    found = table(("random", -1.0, -1.0, 0.0), ("sampled", 0.999, 1.07, 0.26), ("lara", 1.0, 1.0, 0.9))
    text = terminal_table(found, 500)
    assert [line.count("*") for line in text.splitlines()[2:5]] == [0, 2, 3]  # 1.07 is as good as 1.00
    noise = {"benchmark.above_one", "agreement.order_is_noise"}
    assert noise <= {*note_codes(found)}
    assert not noise & {*note_codes(table(("sampled", 0.999, 1.003, 0.8), ("gradient", 0.6, 0.3, 0.2)))}


def test_unavailable_metrics_are_left_out(own_folders, quick_runs, tmp_path, notices):
    requested = ["--methods", "random,lara", "--metric", "fidelity,auc", "--seeds", 1, "--targets", 1]
    found = compare(quick_runs["ba-shapes"], *requested, "--out", tmp_path / "b")
    assert found.exit_code == 0, found.output
    codes = ("benchmark.comparing", "benchmark.trains_lara", "benchmark.no_metric")
    assert all(map(notices.has, codes)) and "AUC" not in found.stdout
    files = ", ".join(str(tmp_path / "b" / f"benchmark.{ending}") for ending in ("csv", "json", "md"))
    assert found.stdout.splitlines()[-1] == f"written: {files}"


def benchmark_on(folder, targets):
    run = open_run(folder, torch.device("cpu"))
    return Benchmark.on(run.dataset, run.game, targets, True)


def test_lara_on_all_nodes_learns_from_all_nodes(own_folders, quick_runs, monkeypatch):
    learned = []
    monkeypatch.setattr(LaraMethod, "fit", lambda self, targets: learned.append(targets))
    benchmark = benchmark_on(quick_runs["ba-shapes"], 3)
    for name, count in (("lara", len(benchmark.dataset.train)), ("lara-all", 700)):
        fit_method(benchmark, name, 0)
        assert len(learned[-1]) == count
    record, _ = run_unit(benchmark_on(quick_runs["molecules"], 3), "lara-all", ["fidelity"], 0)
    assert record["left out"] == message("benchmark.new_graphs")


def test_stored_embeddings_give_the_same_explanations(own_folders, quick_runs):
    benchmark = benchmark_on(quick_runs["ba-shapes"], 40)
    lara, _ = fit_method(benchmark, "lara", 0)
    first, again = lara.explain(benchmark.targets), lara.explain_again(benchmark.targets)
    assert torch.equal(first.scores, again.scores) and first.scores.std() > 0


def test_speed_is_measured_on_a_draw_from_everything(own_folders, quick_runs, monkeypatch):
    benchmark, requested = benchmark_on(quick_runs["ba-shapes"], 3), []
    lara, rival = briefly_trained(benchmark, "lara", 0), module.METHODS["random"](benchmark, 0)
    monkeypatch.setattr(rival, "explain", lambda targets: requested.append(targets.tolist()))
    figures = timing.compare_speed(rival, lara)
    assert sorted(requested[-1]) == list(range(700)) and requested[-1][:50] != list(range(50))
    assert min(figures[name] for name in FASTER) > 0
    assert "targets/s, stored" not in figures

    def slow(targets):  # the same time for each target, then almost none for more of them
        requested.append(targets.tolist())
        time.sleep(0.02 * len(targets) if each else 0.02)

    monkeypatch.setattr(rival, "explain", slow)
    monkeypatch.setattr(timing, "ROUND_SECONDS", 0.01)
    for each in (True, False):
        timing.compare_speed(rival, lara)
        assert len(requested[-1]) < 100 if each else len(requested[-1]) == 700


def test_columns_of_speed_have_one_meaning_in_all_rows(own_folders, quick_runs, monkeypatch):
    """Times the rate of the row, they are LARA's own rate: of a row of LARA too, whose corrections take longer."""
    benchmark = benchmark_on(quick_runs["ba-shapes"], 3)
    yardstick, lara = (briefly_trained(benchmark, name, 0) for name in ("lara-amortised", "lara"))
    rival = module.METHODS["random"](benchmark, 0)
    rates = {yardstick.explain: 60.0, yardstick.explain_again: 240.0, lara.explain: 20.0, lara.explain_again: 40.0}
    monkeypatch.setattr(timing, "rate", lambda call, targets, device: rates.get(call, 5.0))
    for method in (rival, lara):
        found = timing.compare_speed(method, yardstick)
        own = found["targets/s"]
        assert [own * found[name] for name in FASTER] == [60, 240]
    assert found["targets/s, stored"] == 40


def test_an_explainer_that_is_only_timed_gives_no_warning(own_folders, quick_runs, notices, monkeypatch):
    monkeypatch.setattr("dgl_lara.explanation.trust.MIN_SHARE", 2.0)  # more than can be reached
    benchmark = benchmark_on(quick_runs["ba-shapes"], 3)
    briefly_trained(benchmark, "lara", 0)
    assert not notices.codes
    fit_method(benchmark, "lara", 0)
    assert notices.has("explainer.low_agreement")


def test_low_agreement_over_neighbours_alone_is_noticed(notices):
    for known in ((0.93, 0.7), (0.93,), (None,)):
        notice_low_agreement(*known)
    assert notices.codes == []
    notice_low_agreement(0.93, 0.25)
    assert notices.once("explainer.low_agreement_of_neighbours") and len(notices.codes) == 1
    notice_low_agreement(0.2, 0.1)
    assert notices.once("explainer.low_agreement") and len(notices.codes) == 2


@pytest.mark.long
def test_other_settings_of_lara_are_measured_again(own_folders, quick_runs, tmp_path):
    benchmark = benchmark_on(quick_runs["ba-shapes"], 3)

    def measured(dim):
        variant = replace(benchmark, makers={"x": module.lara_with("x", dim=dim)})
        run_benchmark(variant, ["x"], ["fidelity", "throughput"], 1, tmp_path)
        return [(tmp_path / name).stat().st_mtime_ns for name in ("x-0.json", "x-0-speed.json")]

    first = measured(5)
    assert measured(5) == first
    assert all(new != old for new, old in zip(measured(6), first, strict=True))


def test_another_model_or_quick_setting_has_another_folder(own_folders, quick_runs, tmp_path, monkeypatch):
    benchmark = benchmark_on(quick_runs["ba-shapes"], 3)
    folders = {results_folder(benchmark, ["fidelity"], tmp_path)}
    assert results_folder(benchmark, ["fidelity", "throughput"], tmp_path) in folders  # speed has files of its own
    folders.add(results_folder(replace(benchmark, quick=False), ["fidelity"], tmp_path))
    other = Game.create(doubled_features, benchmark.game.graph, benchmark.game.features, "node", benchmark.game.hops)
    folders.add(results_folder(replace(benchmark, game=other), ["fidelity"], tmp_path))
    monkeypatch.setattr(module, "QUICK_LEARNERS", 1)
    folders.add(results_folder(benchmark, ["fidelity"], tmp_path))
    assert len(folders) == 4


def doubled_features(graph, features):
    return features[:, :3] * 2


def test_interrupted_then_resumed(own_folders, quick_runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done, whole = [], run_unit

    def unit(benchmark, name, *rest):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(name)
        return whole(benchmark, name, *rest)

    monkeypatch.setattr("dgl_lara.evaluation.benchmark.run_unit", unit)
    words = [quick_runs["ba-shapes"], "--methods", "random,abs-gradient", "--metric", "fidelity"]
    assert compare(*words).exit_code == 130
    monkeypatch.setattr("dgl_lara.evaluation.benchmark.run_unit", lambda *a: done.append(a[1]) or whole(*a))
    assert compare(*words).exit_code == 0
    assert done == ["random", "abs-gradient", "random", "abs-gradient"]  # two seeds, nothing twice
    assert compare(*words).exit_code == 0 and len(done) == 4
    assert compare(*words, "--targets", "3").exit_code == 0 and len(done) == 8  # another question
    first, second = (json.loads(Path(f"out/benchmark{place}.json").read_text()) for place in ("", "-2"))
    assert " 10 test targets" in first["what"] and " 3 test targets" in second["what"]  # neither replaces the other


def test_a_method_that_cannot_is_left_out_with_its_reason(tmp_path, notices):
    class Data:
        train = val = test = torch.arange(12)
        motif, key, name = None, {}, "toy"

    benchmark = Benchmark.on(Data, gcn_game(), 3, True)
    records = run_benchmark(benchmark, ["gnn-explainer", "random"], ["fidelity"], 1, tmp_path)
    table = summary(records).set_index("name")
    assert (
        notices.once("benchmark.left_out")
        and len(notices.codes) == 1
        and "edge weights" in table.loc["gnn-explainer", "left out"]
    )
    assert pd.isna(table.loc["gnn-explainer", "F+ paper, average"])
    assert not pd.isna(table.loc["random", "F+ paper, average"])


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_every_baseline_counts_the_nodes_that_it_evaluates(name, monkeypatch):
    """Through the game, with weights for edges or for embeddings: the model's own count says the same."""
    there, seen = gcn_game(nodes=20, edges=30), []
    with seeded(0):
        model = GNN(ModelConfig("gcn", "node", 3, 3, hidden=6, layers=2))
    game = Game.create(model, there.graph, there.features, hops=2)
    before, states = game.caller.nodes_evaluated, GNN.states
    monkeypatch.setattr(GNN, "states", lambda self, graph, *rest: seen.append(graph) or states(self, graph, *rest))
    method = BASELINES[name].for_benchmark(game, 0, BenchmarkSetting("toy", quick=True)).with_fewer_steps()
    method.fit(torch.arange(20))
    method.explain(torch.arange(4))
    assert game.caller.nodes_evaluated - before == sum(graph.num_nodes() for graph in seen)
    assert bool(seen) == (name not in ("random", "fastdnx"))  # which use its outputs on the full graph only


def test_large_figures_are_shown_as_everywhere():
    """The same in tables that are made here and in those of speed."""
    assert [cell(some) for some in (541013.623, 609_899, -1000.0, 999.5, -0.0)] == [
        "541,014", "609,899", "-1,000", "999.500", "0.000",
    ]  # fmt: skip


@pytest.mark.parametrize("words", [["--methods", "randon"], ["--metric", "speed"], ["--dataset", "ba-shapes"]])
def test_mistakes(own_folders, quick_runs, words):
    result = compare(quick_runs["ba-shapes"], *words)
    assert result.exit_code == 2 and "Error" in result.output

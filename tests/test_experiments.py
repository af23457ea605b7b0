"""Every script of experiments/ runs, on settings so small that only its form can be judged: rows, columns, figures.

What the scripts behind `dgl-lara reproduce` say with real data beside them is in test_reproduce.py.
"""

import ast
import math
import re
from dataclasses import replace

import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from dgl_lara import gnns
from dgl_lara.baselines import gnn_explainer, orphicx
from dgl_lara.cli import main as cli
from dgl_lara.cli.reproduce import EXPERIMENTS, WHAT, script
from dgl_lara.datasets import DATASETS
from dgl_lara.evaluation import timing
from dgl_lara.evaluation.benchmark import METHODS
from dgl_lara.metrics.fidelity import fidelity_column
from dgl_lara.training import validation

NODES, GRAPHS = "tree-cycles", "molecules"
NUM_NODES = DATASETS[NODES].nodes
PLUS, MINUS = fidelity_column("F+", "paper"), fidelity_column("F-", "paper")


@pytest.fixture(autouse=True)
def short_training(monkeypatch):
    """Models that have hardly learned, and are hardly judged: what is looked at here does not depend on it."""
    for name in (NODES, GRAPHS):
        monkeypatch.setitem(gnns.RECIPES, name, replace(gnns.RECIPES[name], epochs=2))
    monkeypatch.setattr(validation, "PAIRS", 8)


def run(name, *words):
    """The script as a command."""
    result = CliRunner().invoke(script(name).main, [str(word) for word in words])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.stdout


def rows_of(markdown):
    """The cells of all lines of tables in a text, headers among them."""
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in markdown.splitlines() if line[:2] == "| "
    ]


def finite(frame, *columns):
    """As many figures, and every one of them a number."""
    return len(frame) > 0 and all(math.isfinite(value) for column in columns for value in frame[column])


# --- no script is forgotten


def test_every_script_is_covered():
    scripts = {path.stem: ast.parse(path.read_text()) for path in EXPERIMENTS.glob("*.py")}
    reproduced = {what.replace("-", "_") for what in WHAT}
    tested = {name.removeprefix("test_") for name in globals()}
    imported = {
        name
        for tree in scripts.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    elsewhere = {"kserve_client"}  # in a Python of its own: test_service.py
    for name, tree in scripts.items():
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if defined & {"main", "run"}:
            assert name in reproduced | tested, f"experiments/{name}.py has no test"
        else:
            assert name in imported | elsewhere, f"experiments/{name}.py is used by no script"
    assert set(WHAT) == set(CHECKS)


# --- the scripts behind `dgl-lara reproduce`


@pytest.fixture(scope="module")
def shared_out(tmp_path_factory):
    """One folder for all of them: what several need is measured once, as in `reproduce all`."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture
def quick(shared_out, monkeypatch):
    monkeypatch.setattr(timing, "ROUNDS", 1)
    monkeypatch.setattr(timing, "ROUND_SECONDS", 0.0)
    monkeypatch.setattr(timing, "MAX_ROUND_SECONDS", 0.0)
    monkeypatch.setattr(orphicx, "QUICK_STEPS", 2)
    monkeypatch.setitem(gnn_explainer.SETTINGS, NODES, {"epochs": 2})
    monkeypatch.setattr(script("table-3"), "PATIENCE", {True: 0.1})
    monkeypatch.setattr(script("table-4"), "LAYERS", (0, 3))  # K = 3, so the second is LARA as it is anyway
    monkeypatch.setattr(script("table-dim"), "DIMENSIONS", (10, 20))
    settings = script("common").Settings
    return settings(quick=True, targets=4, steps=2, out=shared_out, device="cpu", datasets=(NODES,))


def all_methods(frame):
    return set(frame["method"]) == set(METHODS)


# what the figures of each must be like
CHECKS = {
    "table-targets": lambda frame: len(frame) == 1 and finite(frame, "train", "validation", "test"),
    "figure-4": lambda frame: all_methods(frame) and finite(frame, PLUS, MINUS, fidelity_column("F+", "kept", 0.5)),
    "figure-1": lambda frame: len(frame) == 6 and finite(frame, PLUS, "targets/s"),
    "table-1": lambda frame: all_methods(frame) and finite(frame, "targets/s", "LARA is x times faster"),
    "table-auc": lambda frame: (
        (frame["of"] == "edges").sum() == 14 and all_methods(frame[frame["of"] == "nodes"]) and finite(frame, "AUC")
    ),
    "figure-2": lambda frame: frame["definition"].nunique() == 2 and finite(frame, "MI value", "phi, Eq. 5"),
    "figure-5": lambda frame: len(frame) == 5 and finite(frame, PLUS, MINUS, "R2"),
    "table-2": lambda frame: len(frame) == 4 and finite(frame, PLUS, MINUS, "R2"),
    "table-3": lambda frame: frame["method"].nunique() == 7 and finite(frame, "latency (s)"),
    "table-4": lambda frame: len(frame) == 4 and finite(frame, PLUS, MINUS, "R2", "targets/s"),
    "table-dim": lambda frame: len(frame) == 4 and finite(frame, PLUS, MINUS, "R2", "targets/s"),
    "qualitative": lambda frame: len(frame) == 2 and frame["in words"].str.len().gt(0).all(),
}


SLOW = ("figure-4", "figure-5", "table-3", "table-4", "table-dim")  # what they do, the others do too
LONG = ("figure-1", "table-auc")
MARKS = {**dict.fromkeys(SLOW, [pytest.mark.slow]), **dict.fromkeys(LONG, [pytest.mark.long])}


@pytest.mark.parametrize("what", [pytest.param(one, marks=MARKS.get(one, [])) for one in WHAT])
def test_reproduce(what, quick):
    written = script(what).run(quick)
    assert {f"{what}.md", f"{what}.csv"} <= {path.name for path in written}
    assert any(path.suffix == ".png" for path in written) == (what.startswith("figure") or what == "qualitative")
    assert all(path.stat().st_size > 0 for path in written)
    frame = pd.read_csv(quick.out / f"{what}.csv")
    assert CHECKS[what](frame), frame.to_string()
    text = (quick.out / f"{what}.md").read_text()
    assert rows_of(text) and "nan" not in text


def test_reproduce_of_graphs(quick):
    """What a graph task has no part in is left out: no target is kept, and no node stands at a distance."""
    settings = replace(quick, datasets=(GRAPHS,))
    script("figure-2").run(settings)
    assert set(pd.read_csv(settings.out / "figure-2.csv")["definition"]) == {"paper's definition"}


# --- the others


def test_target_accuracy():
    header, row = rows_of(run("target_accuracy", NODES, "--seeds", 2, "--epochs", 2))
    assert header[0] == "data set" and row[0] == NODES and row[-1] == "0.94"
    assert all(re.fullmatch(r"[01]\.\d{3} ± 0\.\d{3}", cell) for cell in row[2:5])


@pytest.mark.slow
def test_ablation(monkeypatch):
    ablation, words = script("ablation"), ("--steps", 2, "--targets", 4, "--reference-pairs", 20)
    found = rows_of(run("ablation", NODES, *words))[1:]
    assert [row[1] for row in found] == list(ablation.VARIANTS)
    assert all(math.isfinite(float(value)) for row in found for value in row[2:])
    assert len({row[2] for row in found}) > len(found) // 2  # a changed part changes what is learned
    few = {variant: ablation.VARIANTS[variant] for variant in ("no gate", "1 layer", "hop gate")}
    monkeypatch.setattr(ablation, "VARIANTS", few)
    (row,) = rows_of(run("ablation", GRAPHS, *words))[1:]  # players of graphs stand at no distance: no gate
    assert row[:2] == [GRAPHS, "1 layer"] and all(math.isfinite(float(value)) for value in row[2:])


@pytest.mark.long
def test_lara_figures(tmp_path):
    out = tmp_path / "new" / "lara_figures.csv"
    words = ["--seeds", 2, "--steps", 2, "--targets", 4, "--reference-pairs", 20, "--out", out]
    shown = rows_of(run("lara_figures", NODES, *words))
    frame = pd.read_csv(out)
    assert list(frame["method"]) == ["random", "sampled 300", "lara, default", "lara, default", "lara, paper"]
    assert finite(frame, "R2", "F+ paper", "F- paper", "F+ kept", "F- kept", "F+ paper error")
    assert frame["R2"].nunique() == len(frame)
    assert [row[1] for row in shown[1:]] == ["random", "sampled 300", "lara, default", "lara, paper"]


@pytest.mark.long
def test_refinement(tmp_path):
    out = tmp_path / "refinement.csv"
    words = ["--targets", 3, "--pairs", 4, "--reference-pairs", 40, "--draws", 2, "--steps", 2, "--out", out]
    run("refinement", NODES, GRAPHS, *words)
    frame = pd.read_csv(out)
    assert list(frame["dataset"]) == [NODES, GRAPHS] and (frame["targets"] == 3).all()
    assert finite(frame, "players", "amortised", "refined 4", "sampled 4", "sampled 40", "moved", "true share")
    assert (frame["moved"] > 0).all() and (frame["true share"] < 1).all() and (frame["expected share"] < 1).any()


@pytest.mark.slow
def test_serving(quick_runs, tmp_path):
    """A real service under a real load, for a few seconds: only its form."""
    where = ("--run", quick_runs["ba-shapes"], "--workers", 2, "--out", tmp_path / "out.md")
    found = rows_of(run("serving", *where, "--seconds", 1))
    assert len(found) >= 6 and all(len(row) == 3 for row in found)


@pytest.mark.slow
def test_serving_soak(quick_runs, tmp_path):
    where = ("--run", quick_runs["ba-shapes"], "--workers", 2, "--out", tmp_path / "out.md")
    reported = dict(rows_of(run("serving_soak", *where, "--minutes", 0.4))[1:])
    assert reported["wrong answers"] == "0" and int(reported["answers"].replace(",", "")) > 10


@pytest.mark.slow
def test_scaling(tmp_path):
    run("scaling", "--repeats", 1, "--nodes", 400, "--only", "dim", "--values", "5", "--out", tmp_path)
    frame = pd.read_csv(tmp_path / "scaling-dim.csv")
    assert list(frame["dim"]) == [5]
    assert finite(frame, "edges", "pass", "scores", "file", "walks", "memory (GB)", "memory before (GB)")
    assert (frame[["edges", "pass", "scores", "file", "walks"]] > 0).all(axis=None)
    assert (tmp_path / "scaling-dim.png").stat().st_size > 0


@pytest.mark.slow
def test_bulk_speed(tmp_path, monkeypatch):
    folder, out = tmp_path / "run", tmp_path / "bulk_speed.md"
    words = ["train", "--dataset", NODES, "--hidden", "8", "--dim", "4", "--epochs", "2", "--out", str(folder)]
    assert CliRunner().invoke(cli, words).exit_code == 0
    monkeypatch.setattr(script("bulk_speed"), "PAPER_TARGETS", 32)
    run("bulk_speed", "--undirected", folder, "--repeats", 1, "--singles", 3, "--copied", 1, "--out", out)
    found = rows_of(out.read_text())
    figures = {row[1]: row[2] for row in found if row[0] == "undirected" and len(row) == 3}
    assert len(figures) == 11 and all(float(value.split()[0].replace(",", "")) >= 0 for value in figures.values())
    assert float(figures["largest difference of scores, of the largest score"]) < 1e-4  # the paper's way agrees
    growth = next(row for row in found if row[0] == "undirected" and len(row) == 7)
    assert [cell == "-" for cell in growth[1:]] == [count > NUM_NODES for count in script("bulk_speed").GROWTH]
    assert len([row for row in found if row[0] == "undirected" and len(row) == 4]) == 5
    assert (folder / "embeddings.pt").exists()


@pytest.mark.slow
def test_shards(tmp_path):
    run("shards", "--nodes", 400, "--epochs", 1, "--amortised", "--out", tmp_path / "shards.md")
    rows = rows_of((tmp_path / "shards.md").read_text())[2:]
    assert rows[0][0] == "one process" and len(rows) in (2, 4)  # without Ray, or with it
    assert all(float(row[1]) > 0 for row in rows) and {row[2] for row in rows[1:]} == {"True"}


@pytest.mark.slow
def test_many_machines(tmp_path):
    quick = ["--steps", 1, "--explained", 6, "--parts", 2, "--not-judged"]
    run("many_machines", "ba-shapes", *quick, "--out", tmp_path)
    one, two = pd.read_csv(tmp_path / "many-machines-ba-shapes.csv").to_dict("records")
    assert (one["processes"], two["processes"]) == (1, 2) and two["largest score"] > 1e-3
    assert two["largest difference of a score"] < 1e-5 * max(1, two["largest score"])
    assert two["kB sent an explanation"] > 0 and two["MB a process"] > 0


@pytest.mark.slow
def test_faults(tmp_path):
    run("faults", "--kills", 3, "--soak", 2000, "--calls", 40, "--out", tmp_path / "faults.md")
    assert (tmp_path / "faults.md").stat().st_size > 200


def test_audit():
    """What is said of a release that PyPI has a page of, of the newest alone, of none; PyPI itself is not asked."""
    known = script("audit").known
    bad = {"info": {"version": "2.0"}, "vulnerabilities": [{"id": "A"}, {"id": "B", "withdrawn": "2024"}]}
    good = {"info": {"version": "2.0"}, "vulnerabilities": []}
    assert known("1.0", bad | {"info": {"version": "1.0"}}, None) == ("this one", "A")
    assert known("2.0", None, good) == ("this one", "none known")
    assert known("1.0", None, good) == ("only 2.0", "none known")
    assert known("1.0", None, None) == ("none", "not on PyPI")


def test_first_second():
    figures = dict(rows_of(run("first_second", "--nodes", 200, "--edges", 1500, "--steps", 3))[1:])
    assert figures["nodes, directed edges"].startswith("200, ")
    times = [float(figures[name]) for name in figures if name.endswith("(s)")]
    assert len(times) == 6 and all(0 <= seconds < 60 for seconds in times)
    shares = [int(text.removesuffix("%")) for text in figures.values() if text.endswith("%")]
    assert len(shares) == 2 and all(0 < share < 100 for share in shares)


@pytest.mark.long
def test_before_after():
    checkout, small = EXPERIMENTS.parent, ("--large", 400, "--small", 400)
    header, *rows = rows_of(run("before_after", checkout, checkout, "--rounds", 1, *small))
    assert header == ["cpu seconds", "old", "new", "new / old"] and len(rows) == 10
    assert all(float(cell.replace(",", "")) > 0 for row in rows for cell in row[1:])


@pytest.mark.long
def test_indices(tmp_path):
    out = tmp_path / "indices.csv"
    words = ["--seeds", 1, "--targets", 6, "--reference-pairs", 120, "--steps", 20, "--out", out]
    run("indices", "tree-cycles", "--index", "shapley", "--index", "keep-0.9", *words)
    frame = pd.read_csv(out)
    assert frame.groupby("index").method.apply(list).tolist() == [["phi itself", "amortised", "corrected"]] * 2
    assert finite(frame.set_index("method"), "R2, neighbours", "Delta kept", "AUC", "outside")


@pytest.mark.long
def test_neighbours(tmp_path):
    out = tmp_path / "neighbours.csv"
    words = ["--seeds", 1, "--targets", 6, "--reference-pairs", 120, "--steps", 20, "--out", out]
    run("neighbours", "tree-cycles", *words)
    frame = pd.read_csv(out).set_index("method")
    assert set(frame.index) == {
        "phi itself", "random", "sampled 300", "graphsvx 800", "lara, amortised", "lara, corrected",
    }  # fmt: skip
    assert finite(frame, "R2, neighbours", "Delta kept", "Delta paper", "nodes f saw")
    assert frame["pairs"].max() == 40 and frame["largest gap"].notna().sum() == 2


@pytest.mark.long
@pytest.mark.parametrize("kind", ["edges", "features"])
def test_players(kind, tmp_path, monkeypatch):
    monkeypatch.setitem(gnn_explainer.SETTINGS, "tree-cycles", {"epochs": 2})
    out = tmp_path / "players.csv"
    words = ["--seeds", 1, "--targets", 4, "--reference-pairs", 60, "--steps", 4, "--out", out]
    run("players", kind, "tree-cycles", *words)
    run("players", kind, "tree-cycles", *words, "--speed")
    frame = pd.read_csv(out).set_index("method")
    ours = {"lara, amortised", "lara, corrected", "lara, speed"}
    assert set(frame.index) == (ours | {"gnn-explainer", "pg-explainer", "|gradient|"} if kind == "edges" else ours)
    judged = frame.drop("lara, speed")
    assert finite(judged, "fidelity+", "fidelity-", "delta") and bool((frame["targets/s"].dropna() > 0).all())
    assert kind == "features" or judged["edge AUC"].between(0, 1).all()


def test_neighbours_replaces_repeated_rows(tmp_path):
    """And leaves other data sets and seeds alone."""
    out = tmp_path / "neighbours.csv"
    columns = ["data", "method", "seed", "R2"]
    store = script("neighbours").store
    store(pd.DataFrame([["a", "phi itself", None, 0.1], ["a", "x", 0, 0.2], ["a", "x", 1, 0.3]], columns=columns), out)
    store(pd.DataFrame([["a", "phi itself", None, 0.4], ["a", "x", 1, 0.5], ["b", "x", 1, 0.6]], columns=columns), out)
    assert sorted(pd.read_csv(out)["R2"]) == [0.2, 0.4, 0.5, 0.6]


@pytest.mark.long
def test_confidence():
    words = ["--seeds", 1, "--targets", 20, "--reference-pairs", 120, "--steps", 20]
    row = ast.literal_eval(run("confidence", "tree-cycles", *words))
    assert -1 <= row["rank"] <= 1 and math.isfinite(row["gap"]) and row["validation targets"] > 20
    assert 0 <= row["gap within 0.05, 20 targets, exactly right"] <= 1


def test_errors_as_if_right_are_as_expected_on_average():
    drawn = torch.Generator().manual_seed(0)
    squares, expected, error = (0.1 + torch.rand(40, generator=drawn) for _ in range(3))
    size = squares + error + 0.2 * torch.rand(40, generator=drawn)
    as_if_right = script("confidence").as_if_right
    made = [as_if_right(squares, expected, 5 * error, size, drawn) for _ in range(4000)]
    torch.testing.assert_close(torch.stack([one for one, _ in made]).mean(0), expected, rtol=0.1, atol=0)


@pytest.mark.slow
def test_by_year(tmp_path):
    """On the stand-in, whose papers are in the order of time."""
    words = ["--steps", 4, "--targets", 6, "--reference-pairs", 60, "--out", tmp_path / "by_year.csv"]
    run("by_year", *words)
    frame = pd.read_csv(tmp_path / "by_year.csv")
    assert list(frame.papers) == ["older, unseen", "newer"] and finite(frame, "R2", "R2, neighbours", "novelty")


@pytest.mark.slow
def test_recommender_settings(real_data, monkeypatch):
    monkeypatch.setattr(script("recommender_settings"), "TRIED", [{"epochs": 2}])
    rows = rows_of(run("recommender_settings"))
    assert len(rows) >= 2 and "recall@20" in rows[0]


@pytest.mark.slow
def test_bonds(real_data, tmp_path):
    words = ["--steps", 4, "--targets", 6, "--reference-pairs", 60, "--out", tmp_path / "bonds.csv"]
    run("bonds", *words)
    frame = pd.read_csv(tmp_path / "bonds.csv")
    assert list(frame.model) == ["gine", "gine-blind"] and finite(frame, "R2, edges", "rank correlation of the two")


@pytest.mark.slow
def test_typed_speed(real_data, tmp_path):
    run("typed_speed", "dblp-rgcn", "--repeats", 1, "--out", tmp_path / "typed_speed.csv")
    frame = pd.read_csv(tmp_path / "typed_speed.csv")
    assert list(frame.data) == ["dblp-rgcn"] and finite(frame, "p and t (s)", "a second") and frame["a second"][0] > 1


def test_graph_speed():
    header, _, *rows = rows_of(run("graph_speed", GRAPHS, "--rounds", 1))
    assert [row[:3:2] for row in rows] == [[GRAPHS, "clock"], [GRAPHS, "processors"]]
    assert len(header) == 7 and min(float(cell.replace(",", "")) for row in rows for cell in row[3:6]) > 1


@pytest.mark.slow
def test_own_models(real_data, tmp_path):
    out = tmp_path / "own_models.csv"
    words = ["--epochs", 3, "--steps", 2, "--targets", 5, "--fidelity-targets", 10, "--reference-pairs", 20]
    run("own_models", "cora", "--fit-on", "train", *words, "--out", out)
    frame = pd.read_csv(out)
    assert list(frame["model"]) == ["gat", "gin", "sage"] and set(frame["fit on"]) == {"train"}
    assert finite(frame, "test accuracy", "hops", "seconds", "R2", "rank correlation", "F+ gain", "F- gain")


@pytest.mark.slow
def test_out_of_core(tmp_path):
    sizes = ["--nodes", 2000, "--target-nodes", 1000, "--targets", 32, "--batch-size", 8, "--parts", 2]
    run("out_of_core", *sizes, "--work", tmp_path / "work", "--out", tmp_path / "figures.csv")
    frame = pd.read_csv(tmp_path / "figures.csv")
    assert frame.command.tolist() == ["partition", "train", "explain"]
    assert (frame.seconds > 0).all() and (frame["own memory, GB"] > 0).all()
    assert (tmp_path / "work" / "2000" / "explanations.parquet").is_file()


@pytest.mark.slow
def test_shared_masks(tmp_path):
    run("shared_masks", "tree-cycles", "--targets", 3, "--pairs", 200, "--out", tmp_path / "shared_masks.csv")
    frame = pd.read_csv(tmp_path / "shared_masks.csv")
    assert frame["shared against own"].abs().max() < 0.5 and (frame["correlation"] > 0.8).all()

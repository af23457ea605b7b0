"""`--players`: a run that holds explainers of several kinds, and every command that asks one of them."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from codes import refused, run, succeeds
from conftest import judge_hardly

from dgl_lara.reports.html import render
from dgl_lara.reports.measurements import measure
from dgl_lara.runs.folder import resume_command
from dgl_lara.runs.open import open_run

QUICK = ["--hidden", "16", "--dim", "5", "--masks", "2", "--epochs", "6"]
KINDS = ["--players", "nodes", "--players", "edges", "--players", "features"]
pytestmark = pytest.mark.usefixtures("hardly_judged")


@pytest.fixture(scope="module")
def several(quick_runs, session_cache, tmp_path_factory):
    """A run of BA-Shapes with nodes, edges and features."""
    folder = tmp_path_factory.mktemp("several") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DGL_LARA_CACHE", str(session_cache))
        judge_hardly(patch)
        target = quick_runs["ba-shapes"] / "target.pt"
        result = run("train", "--dataset", "ba-shapes", "--target", target, *QUICK, *KINDS, "--out", folder)
    assert result.exit_code == 0, result.output
    assert result.output.count("validation agreement") == 3
    return folder


def test_each_player_set_has_its_files_and_config(several):
    assert [choice["name"] for choice in json.loads((several / "config.json").read_text())["players"]] == KINDS[1::2]
    for part in (several, several / "edges", several / "features"):
        assert {"explainer.pt", "checkpoint.pt", "metrics.csv", "samples.pt"} <= {path.name for path in part.iterdir()}


@pytest.mark.parametrize("kind, noun", [("nodes", "neighbour"), ("edges", "edge"), ("features", "feature")])
def test_one_node_by_each_kind(several, kind, noun):
    result = succeeds("explain", "--run", several, "--node", 512, "--players", kind)
    assert noun in result.output and "Node 512 " in result.output


def test_the_table_of_edges_names_their_ends(several, tmp_path):
    for kind, columns in (("edges", ["u", "v"]), ("features", [])):
        out = tmp_path / f"{kind}.parquet"
        succeeds("explain", "--run", several, "--split", "test", "--players", kind, "--top", 3, "--out", out)
        frame = pd.read_parquet(out)
        assert set(frame.kind) == {kind} and set(columns) <= set(frame.columns)
        assert frame.groupby("target").size().max() == 3
        plain = run(
            "explain", "--run", several, "--split", "test", "--players", kind, "--top", 3, "--amortised", "--out", out
        )
        assert plain.exit_code == 0 and set(columns) <= set(pd.read_parquet(out).columns), plain.output


def test_evaluating_edges(several):
    more = ["--targets", 20, "--pairs", 10, "--reference-pairs", 100]  # of four none has a ground truth
    for metric in ("fidelity", "agreement", "auc"):
        result = succeeds("eval", "--run", several, "--players", "edges", "--metric", metric, *more)
        assert "players: edges" in result.output
        assert (several / "edges").is_dir() and "Traceback" not in result.output


def test_rather_than(several):
    result = succeeds("explain", "--run", several, "--node", 512, "--class", 2, "--rather-than", 1)
    assert re.search("class 2 .*class 1 ", result.output)


@pytest.mark.parametrize("named", [(2,), (2, 1)])
@pytest.mark.parametrize("bought", [[], ["--amortised"], ["--refine", 8]])
def test_a_class_of_many_targets(several, tmp_path, named, bought):
    """What is asked of many is what is asked of one after the other."""
    (tmp_path / "some.txt").write_text("512\n5\n640\n")
    options = [word for option, one in zip(("--class", "--rather-than"), named, strict=False) for word in (option, one)]
    for name, words in (("plain", []), ("asked", options)):
        out = tmp_path / f"{name}.csv"
        succeeds("explain", "--run", several, "--nodes", tmp_path / "some.txt", *bought, *words, "--out", out)
    found, plain = pd.read_csv(tmp_path / "asked.csv"), pd.read_csv(tmp_path / "plain.csv")
    assert set(found.explained_class) == {2} and set(plain.explained_class) > {2}
    assert named == (2,) or set(found.rather_than) == {1}
    for node in (512, 5, 640):
        out = tmp_path / "one.csv"
        succeeds("explain", "--run", several, "--node", node, "--top", "all", *bought, *options, "--out", out)
        mine = found[found.target == node].set_index("player").score
        alone = pd.read_csv(out).set_index("player").score
        assert mine.std() > 0
        np.testing.assert_allclose(mine, alone[mine.index], rtol=1e-3, atol=1e-4)
    for unknown in ("nobody", 9):
        wrong = run("explain", "--run", several, "--all", "--class", unknown, "--out", tmp_path / "x.csv")
        refused(wrong, "classes.unknown")
        assert f"0..3 (got {unknown})" in wrong.stderr


@pytest.mark.parametrize(
    "words, output",
    [
        (["--directed-edges"], "--players edges"),
        (["--features-of", "target"], "--players features"),
        (["--players", "features", "--feature-groups", "missing.json"], "missing.json"),
        (["--players", "links"], "'links' is not one of"),
    ],
)
def test_mistakes_in_training(quick_runs, tmp_path, words, output):
    target = quick_runs["ba-shapes"] / "target.pt"
    result = run("train", "--dataset", "ba-shapes", "--target", target, *QUICK, *words, "--out", tmp_path / "run")
    assert result.exit_code == 2 and output in result.output, result.output


def test_a_kind_that_the_run_does_not_hold(quick_runs):
    result = run("explain", "--run", quick_runs["ba-shapes"], "--node", 5, "--players", "edges")
    refused(result, "run.players")
    assert "--players edges" in result.output


def test_rather_than_needs_a_class(quick_runs):
    result = run("explain", "--run", quick_runs["ba-shapes"], "--node", 5, "--rather-than", 1)
    assert result.exit_code == 2 and "--class" in result.output
    twice = run("explain", "--run", quick_runs["ba-shapes"], "--node", 5, "--class", 1, "--rather-than", 1)
    refused(twice, "classes.same")


def test_the_settings_are_handed_back_and_the_run_can_be_deleted(several, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(several, copy)
    settings = run("runs", "config", copy)
    (tmp_path / "run.toml").write_text(settings.output)
    succeeds("train", "--config", tmp_path / "run.toml", "--out", tmp_path / "again")
    config = json.loads((tmp_path / "again/config.json").read_text())
    assert [players["name"] for players in config["players"]] == ["nodes", "edges", "features"]
    succeeds("runs", "delete", copy, "--yes")
    assert not copy.exists()


def test_groups_of_features_are_handed_back(quick_runs, session_cache, monkeypatch, tmp_path):
    monkeypatch.setenv("DGL_LARA_CACHE", str(session_cache))
    (tmp_path / "groups.json").write_text('{"first": [0, 1, 2], "last": [9]}')
    where = ["--dataset", "ba-shapes", "--target", quick_runs["ba-shapes"] / "target.pt", *QUICK]
    requested = ["--players", "features", "--feature-groups", tmp_path / "groups.json", "--out", tmp_path / "one"]
    succeeds("train", *where, *requested)
    (tmp_path / "groups.json").unlink()
    (tmp_path / "run.toml").write_text(run("runs", "config", tmp_path / "one").stdout)
    succeeds("train", "--config", tmp_path / "run.toml", "--out", tmp_path / "two")
    one, two = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("one", "two"))
    assert one == two and one["players"][0]["groups"] == [["first", [0, 1, 2]], ["last", [9]]]


def test_a_run_of_several_kinds_is_resumed(several, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(several, copy)
    shutil.rmtree(copy / "edges")  # as if it had been interrupted before its second kind
    succeeds("train", "--resume", copy)
    assert (copy / "edges/explainer.pt").is_file()
    unbroken, again = (pd.read_csv(folder / "edges/metrics.csv") for folder in (several, copy))
    pd.testing.assert_frame_equal(again, unbroken)


@pytest.mark.long
def test_report_on_edges_has_no_target_among_the_players(quick_runs, session_cache, monkeypatch, tmp_path):
    monkeypatch.setenv("DGL_LARA_CACHE", str(session_cache))
    where = ("--dataset", "ba-shapes", "--target", quick_runs["ba-shapes"] / "target.pt", "--out", tmp_path / "run")
    succeeds("train", *where, *QUICK, "--players", "edges")
    edges = open_run(tmp_path / "run", torch.device("cpu"))
    page = render(measure(edges, "test", 16, pairs=10, reference_pairs=100, seed=0))
    assert "player (edge)" in page
    of_nodes = r"fidelity with the target kept|\(target kept\)|neighbours only|neighbours alone|Two definitions"
    assert not re.search(of_nodes, page)


def test_a_kind_that_is_not_trained_yet_names_the_run(several, tmp_path):
    copy = shutil.copytree(several, tmp_path / "copy")
    (copy / "features/explainer.pt").unlink()
    found = run("explain", "--run", copy, "--node", 5, "--players", "features")
    refused(found, "run.not_trained", 1)
    assert resume_command(copy, False) in found.output

"""`train` and `eval` as a user runs them."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from codes import refused, run, succeeds
from games import random_graph
from processes import command

from dgl_lara.cli.train import _training_changes
from dgl_lara.evaluation import timing
from dgl_lara.runs.folder import resume_command
from dgl_lara.training import validation

QUICK = ["--hidden", "16", "--dim", "5", "--masks", "2"]


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A quickly trained model of BA-Shapes, as a file."""
    folder = tmp_path_factory.mktemp("target")
    os.environ["DGL_LARA_CACHE"], before = str(folder), os.environ.get("DGL_LARA_CACHE")
    succeeds("target", "--dataset", "ba-shapes", "--epochs", 30, "--out", folder / "f.pt")
    if before is None:
        del os.environ["DGL_LARA_CACHE"]
    else:
        os.environ["DGL_LARA_CACHE"] = before
    return folder / "f.pt"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_words_of_one_option_are_not_read_as_those_of_another():
    changes = {"train_on": "all", "batch_size": "all", "pool": "auto", "shared_pairs": "0", "dim": None}
    assert _training_changes(changes) == {"train_on": "all", "batch_size": 0, "pool": None, "shared_pairs": 0}


@pytest.mark.long
def test_train_then_eval_of_the_newest_run(target, here, monkeypatch):
    monkeypatch.setattr(timing, "ROUNDS", 1)
    monkeypatch.setattr(timing, "ROUND_SECONDS", 0.0)
    succeeds("train", "--dataset", "ba-shapes", "--target", target, "--epochs", 40, *QUICK)
    (folder,) = (here / "runs").iterdir()
    assert folder.name.startswith("ba-shapes-")
    kept = {path.name for path in folder.iterdir()}
    parts = {"target.pt", "checkpoint.pt", "explainer.pt", "samples.pt", "embeddings.pt"}
    assert kept == {"config.json", "environment.json", "metrics.csv", *parts}
    config = json.loads((folder / "config.json").read_text())
    assert (config["dataset"], config["hops"], config["training"]["hidden"]) == ("ba-shapes", 3, 16)
    environment = json.loads((folder / "environment.json").read_text())
    assert {"dgl-lara", "torch", "dgl", "python"} <= set(environment["versions"])
    history = pd.read_csv(folder / "metrics.csv")
    assert history.step.tolist()[-1] == 40 and history.agreement.iloc[-1] > 0.3

    result = run(
        "eval", "--metric", "all", "--targets", 20, "--pairs", 10, "--reference-pairs", 100, "--json", "all.json"
    )
    assert result.exit_code == 0, result.output
    for word in (
        "fidelity",
        "agreement",
        "auc",
        "throughput",
        "random",
        "sampled 10",
        "lara",
        "20 test nodes",
        "in training, shared by all 700 nodes), none after it",
        "logit",
    ):
        assert word in result.output
    assert "latency" in result.output and "Traceback" not in result.output
    figures = json.loads((here / "all.json").read_text())
    table = pd.DataFrame(figures["fidelity"])
    assert set(table.method) == {"random", "sampled 10", "lara", "lara, amortised"}
    assert set(table.sparsity) == {"0.3", "0.4", "0.5", "0.6", "0.7", "average"}
    assert set(table.definition) == {"paper", "kept"}
    average = table[table.sparsity == "average"].set_index(["definition", "method"]).delta
    assert average["paper", "lara"] > average["paper", "random"]
    for name in ("eval-fidelity.csv", "eval-fidelity.png", "eval-fidelity.pdf", "eval-auc.csv", "eval-agreement.json"):
        assert (folder / name).stat().st_size > 100


@pytest.mark.long
def test_graph_task_and_paper_preset(here):
    quick = ["--dataset", "molecules", "--epochs", 1, "--preset", "paper", "--out", "m"]
    succeeds("target", "--dataset", "molecules", "--epochs", 2, "--out", "f.pt")
    succeeds("train", *quick, "--target", "f.pt")
    config = json.loads((here / "m" / "config.json").read_text())
    assert config["preset"] == "paper" and config["training"]["lr"] == 1e-4
    result = succeeds("eval", "--run", "m", "--targets", 10, "--pairs", 10)
    assert "10 test graphs" in result.output and "kept  " not in result.output


@pytest.mark.long
def test_interrupted_by_ctrl_c_then_resumed_equals_unbroken(here):
    """A real process, a real signal; many steps on a small graph."""
    src, dst = random_graph(60, 80, 0).edges()
    features = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    np.savez("graph.npz", src=src, dst=dst, x=features, y=np.arange(60) % 2)
    succeeds("target", "--dataset", "graph.npz", "--epochs", 2, "--out", "f.pt")
    words = ["train", "--dataset", "graph.npz", "--target", "f.pt", "--epochs", "120", *QUICK, "--out"]
    succeeds(*words, "a")
    process = command(*words, "b")
    deadline = time.monotonic() + 300
    while not Path("b/checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    code, _, errors = process.result()
    assert code == 130
    assert resume_command(Path("b"), False) in errors and "Traceback" not in errors
    step = torch.load("b/checkpoint.pt", weights_only=True)["step"]
    assert 0 < step < 120
    succeeds("train", "--resume", "b")
    first, second = (torch.load(f"{run}/explainer.pt", weights_only=True)["weights"] for run in ("a", "b"))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert Path("a/metrics.csv").read_text() == Path("b/metrics.csv").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train"], "[options.missing]"),
        (["train", "--dataset", "ba-shapes", "--batch-size", "none"], "[option.count_or_word]"),
        (["train", "--dataset", "ba-shapes", "--gate", "door"], "'door' is not one of"),
        (["train", "--dataset", "ba-shapes", "--target", "none.pt"], "does not exist"),
        (["train", "--resume", "nowhere"], "[run.no_folder]"),
        (["train", "--resume", "nowhere", "--lr", "0.1"], "--lr. [train.resume_option]"),
        (["train", "--resume", "nowhere", "--seed", "0"], "--seed. [train.resume_option]"),
        (["train", "--resume", "nowhere", "--players", "edges"], "--players. [train.resume_option]"),
        (["train", "--resume", "nowhere", "--undirected"], "--undirected. [train.resume_option]"),
        (["train", "--dataset", "ba-shapes", "--device", "cuda"], "[device.no_cuda]"),
        (["eval"], "[run.none]"),
        (["eval", "--dataset", "mutag"], "[run.none]"),
        (["eval", "--run", __file__], "[run.is_file]"),
        (["train", "--dataset", "ba-shapes", "--epochs", "0"], "[settings.invalid]"),
        (["eval", "--run", "nowhere"], "[run.no_folder]"),
        (["eval", "--run", "a", "--dataset", "mutag"], "[options.exclusive]"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(here, arguments, sentence):
    if "cuda" in arguments and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_existing_run_and_damaged_files(target, here):
    arguments = ["train", "--dataset", "ba-shapes", "--target", target, "--epochs", 2, *QUICK, "--out", "a"]
    succeeds(*arguments)
    refused(run(*arguments), "run.exists")
    checkpoint = Path("a/checkpoint.pt")
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    refused(run("train", "--resume", "a"), "file.no_checkpoint", 1)
    Path("a/explainer.pt").unlink()
    refused(run("eval", "--run", "a"), "run.not_trained", 1)
    Path("a/config.json").write_text("{")
    refused(run("eval", "--run", "a"), "file.content", 1)


def test_little_memory_means_mini_batches(target, here, monkeypatch, notices):
    monkeypatch.setattr(validation, "PAIRS", 8)
    monkeypatch.setattr(validation, "TARGETS", 8)
    words = ["train", "--dataset", "ba-shapes", "--target", target, "--epochs", 1, *QUICK, "--out", "s"]
    succeeds(*words, "--memory", "1MB", "--targets", 60)
    assert notices.has("train.mini_batches", batch_size=256)
    notices.records.clear()
    training = json.loads((here / "s" / "config.json").read_text())["training"]
    assert (training["batch_size"], training["targets"]) == (256, 60)
    narrow = [word for word in words if word not in ("--hidden", "16")]
    succeeds(*narrow[:-1], "n", "--memory", "1MB", "--lr", 0.03)
    training = json.loads((here / "n" / "config.json").read_text())["training"]
    assert (training["targets"], training["hidden"], training["lr"]) == (20_000, 64, 0.03)  # what was given stays
    notices.records.clear()
    succeeds(*words[:-1], "w", "--memory", "1GB")
    assert not notices.has("train.mini_batches")


def test_interrupted_before_there_is_anything_to_resume(here, monkeypatch, notices):
    def stop(*a, **b):
        raise KeyboardInterrupt

    monkeypatch.setattr("dgl_lara.gnns.training.get_gnn", stop)
    found = run("train", "--dataset", "ba-shapes", "--out", "r")
    assert found.exit_code == 130 and not (here / "r").exists() and "Traceback" not in found.output
    assert notices.has("train.shipped_model")

"""User models on the command line: `train --graph --model --weights`, then other commands on the run folder."""

import json
import re
import sys
from pathlib import Path

import dgl
import numpy as np
import pandas as pd
import pytest
import torch
from codes import refused, run, succeeds
from games import random_graph

from dgl_lara.blackbox.identity import weights_hash
from dgl_lara.errors import catalogue
from dgl_lara.runs.open import open_run

MODEL = "my_module:build_model"
QUICK = ["--hidden", "16", "--dim", "5", "--masks", "2", "--epochs", "3"]
pytestmark = pytest.mark.usefixtures("hardly_judged")
BUILD = ["--model", MODEL]
CODE = """
import dgl
import torch
from helper_of_mine import scaled
from dgl_lara.blackbox.adapters import element, features_in_graph


class Mine(torch.nn.Module):
    def __init__(self, in_dim=3, classes=2):
        super().__init__()
        self.linear = torch.nn.Linear(in_dim, classes)

    def forward(self, graph, x):
        return scaled(self.linear(dgl.ops.copy_u_sum(graph, x) + x))


class ReadsTheGraph(Mine):
    def forward(self, graph):
        return super().forward(graph, graph.ndata["h"]), "more"


def build_model(in_dim, num_classes):
    return Mine(in_dim, num_classes)


def pyg_model(in_dim, num_classes):
    from torch_geometric.nn import GraphSAGE
    from dgl_lara.blackbox.adapters import pyg

    return pyg(GraphSAGE(in_dim, 8, 2, num_classes))


def unwrapped_pyg_model(in_dim, num_classes):
    from torch_geometric.nn import GraphSAGE

    return GraphSAGE(in_dim, 8, 2, num_classes)


def build_without_arguments(hidden=3):
    return Mine()


def adapted():
    return element(features_in_graph(ReadsTheGraph(), "h"), 0)


def function():
    return lambda graph, x: (dgl.ops.copy_u_sum(graph, x) + x)[:, :2]


def wants_three(a, b, c):
    return Mine()


def gives_nothing():
    return None


def fails():
    raise KeyError("the cupboard is bare")
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a graph, a module with its helper, and weights."""
    monkeypatch.chdir(tmp_path)
    graph = random_graph(60, 80, 0)
    drawn = torch.Generator().manual_seed(0)
    graph.ndata["feat"] = torch.randn(60, 3, generator=drawn)
    graph.ndata["label"] = torch.arange(60) % 2
    dgl.save_graphs("my_graph.bin", graph)
    Path("my_module.py").write_text(CODE)
    Path("helper_of_mine.py").write_text("def scaled(x):\n    return 2 * x\n")
    weights = {"linear.weight": torch.randn(2, 3, generator=drawn), "linear.bias": torch.randn(2, generator=drawn)}
    torch.save(weights, "my.pt")
    yield tmp_path
    for module in ("my_module", "helper_of_mine"):
        sys.modules.pop(module, None)


def train(model, *words):
    return run("train", "--graph", "my_graph.bin", "--model", model, *words, *QUICK, "--out", "mine")


def expected(graph, features):
    weights = torch.load("my.pt", weights_only=True)
    return 2 * ((dgl.ops.copy_u_sum(graph, features) + features) @ weights["linear.weight"].T + weights["linear.bias"])


@pytest.mark.long
def test_train_eval_explain_from_another_folder(here, monkeypatch, notices):
    result = train(MODEL, "--weights", "my.pt")
    assert result.exit_code == 0, result.output
    assert "K = 1 hops (measured" in result.output
    assert "fidelity --trust" in result.output  # the proposed command is complete
    stored = json.loads((here / "mine" / "config.json").read_text())["model"]
    assert stored == {"module": "my_module", "function": "build_model", "file": str(here / "my_module.py")}
    required = expected(dgl.load_graphs("my_graph.bin")[0][0], dgl.load_graphs("my_graph.bin")[0][0].ndata["feat"])
    Path("my.pt").unlink()  # the run has its own copy
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    del sys.modules["my_module"]
    torch.testing.assert_close(open_run(str(here / "mine"), trust=True).game.full_logits, required)
    result = succeeds("eval", "--run", here / "mine", "--trust", "--targets", 5, "--pairs", 10)
    assert "lara" in result.output
    succeeds("explain", "--run", here / "mine", "--trust", "--all", "--top", 3, "--out", "all.csv")
    assert pd.read_csv("all.csv").target.nunique() == 60
    result = run(
        "explain", "--run", here / "mine", "--trust", "--node", 3, "--refine", 8, "--verify", "--picture", "three.svg"
    )
    assert result.exit_code == 0, result.output
    assert "Node 3 " in result.output and "refined with" in result.output
    assert "fidelity+" in result.output and Path("three.svg").read_text().startswith("<?xml")
    quick = ["--targets", 5, "--seeds", 1, "--quick", "--methods", "random,gnn-explainer", "--metric", "fidelity"]
    succeeds("benchmark", "--run", here / "mine", "--trust", *quick, "--out", "compared")
    assert notices.has("benchmark.left_out")
    succeeds("report", "--run", here / "mine", "--trust", "--targets", 5, "--pairs", 10, "--reference-pairs", 100)
    assert MODEL in (here / "mine" / "report.html").read_text()
    succeeds("train", "--resume", here / "mine", "--trust")


@pytest.mark.parametrize("function", ["build_without_arguments", "adapted"])
def test_other_ways_to_build(here, function):
    result = train(f"my_module:{function}", "--weights", "my.pt")
    assert result.exit_code == 0, result.output
    game = open_run(here / "mine", torch.device("cpu"), trust=True).game
    torch.testing.assert_close(game.full_logits, expected(game.graph, game.features))


def test_a_model_of_pytorch_geometric(here):
    """From PyG's own arrays, with names, to a picture. An unwrapped model raises."""
    pytest.importorskip("torch_geometric")
    graph = dgl.load_graphs("my_graph.bin")[0][0]
    arrays = {"edge_index": torch.stack(graph.edges()), "x": graph.ndata["feat"], "y": graph.ndata["label"]}
    np.savez("my_graph.npz", class_names=["left", "right"], **{name: array.numpy() for name, array in arrays.items()})
    words = ["train", "--graph", "my_graph.npz", *QUICK, "--out", "mine"]
    refused(run(*words, "--model", "my_module:unwrapped_pyg_model"), "model.unwrapped_pyg", 1)
    result = succeeds(*words, "--model", "my_module:pyg_model")
    assert "pyg_model" in result.stdout and "--weights" in result.stdout
    output = succeeds("explain", "--run", "mine", "--trust", "--node", 3, "--picture", "three.svg")
    assert re.match(r"Node 3 is class (left|right)", output.stdout)
    assert re.search(r"(left|right)$", output.stdout.splitlines()[5]) and Path("three.svg").exists()


def test_a_graph_without_labels(here):
    """A user model needs no labels, from training to a report. A shipped GNN cannot be trained."""
    graph = dgl.load_graphs("my_graph.bin")[0][0]
    np.savez("bare.npz", edge_index=torch.stack(graph.edges()).numpy(), x=graph.ndata["feat"].numpy())
    words = ["train", "--graph", "bare.npz", *QUICK, "--out", "mine"]
    for wrong, code in (([], "gnn.no_labels"), (["--model", MODEL], "user_model.no_classes")):
        failed = run(*words, *wrong)
        assert failed.exit_code == 2 and f"[{code}]" in failed.stderr
    succeeds(*words, "--model", "my_module:build_without_arguments", "--weights", "my.pt")
    explained = succeeds("explain", "--run", "mine", "--trust", "--node", 3)
    assert "Node 3 " in explained.stdout
    succeeds("report", "--run", "mine", "--trust", "--targets", 5, "--pairs", 0, "--reference-pairs", 100)
    page = Path("mine/report.html").read_text()
    assert ", 2 classes." in page
    codes = ("report.accuracy", "caveat.model_errors", "examples.wrong")
    starts = [catalogue()[code].partition("{")[0] for code in codes]
    assert not [start for start in starts if start in page] and all(starts)


def test_names_of_other_classes_are_ignored(here, notices):
    graph = dgl.load_graphs("my_graph.bin")[0][0]
    arrays = {"edge_index": torch.stack(graph.edges()).numpy(), "x": graph.ndata["feat"].numpy()}
    np.savez("mine.npz", class_names=["left", "right", "middle"], **arrays)
    words = ["--model", "my_module:build_without_arguments", "--weights", "my.pt", *QUICK, "--out", "mine"]
    succeeds("train", "--graph", "mine.npz", *words)
    output = succeeds("explain", "--run", "mine", "--trust", "--node", 3)
    assert re.match("Node 3 is class [01] ", output.stdout)
    assert notices.once("run.class_names")


def test_output_names_the_explained_model(here):
    words = ["train", "--graph", "my_graph.bin", *QUICK]
    ours = succeeds(*words, "--out", "a")
    assert "gcn" in ours.stdout and "MODULE:FUNCTION" in ours.stdout
    named = run(*words, "--target", "a/target.pt", "--out", "b")
    assert "a/target.pt" in named.stdout and "MODULE:FUNCTION" not in named.stdout
    own = train(MODEL, "--weights", "my.pt")
    assert f" {MODEL}\n" in own.stdout


def test_hash_of_a_plain_function_depends_on_its_file(here):
    result = train("my_module:function")
    assert result.exit_code == 0, result.output
    assert not (here / "mine" / "weights.pt").exists()
    first = weights_hash(open_run(here / "mine", torch.device("cpu"), trust=True).model)
    assert first == weights_hash(open_run(here / "mine", torch.device("cpu"), trust=True).model)
    Path("my_module.py").write_text(CODE + "\n# changed\n")
    assert first != weights_hash(open_run(here / "mine", torch.device("cpu"), trust=True).model)


def test_weights_of_a_random_model_are_kept(here):
    """Without --weights, the run stores the weights of the model that was built."""
    result = train(MODEL)
    assert result.exit_code == 0, result.output
    one, two = (open_run(here / "mine", torch.device("cpu"), trust=True) for _ in range(2))
    torch.testing.assert_close(one.game.full_logits, two.game.full_logits, rtol=0, atol=0)
    assert weights_hash(one.model) == weights_hash(two.model)


@pytest.mark.parametrize(
    ("words", "exit_code", "code"),
    [
        (["--model", "my_module"], 2, "user_model.name"),
        (["--model", "my_module.py:build_model"], 2, "user_model.file_name"),
        (["--model", "your_module:build_model"], 2, "user_model.no_module"),
        (["--model", "my_module:build"], 2, "user_model.no_function"),
        (["--model", "my_module:wants_three"], 2, "user_model.arguments"),
        (["--model", "my_module:gives_nothing"], 2, "user_model.not_callable"),
        (["--model", "my_module:fails"], 1, "user_model.failed"),
        (["--model", "broken:build_model"], 1, "user_model.import_failed"),
        (["--model", "my_module:function", "--weights", "my.pt"], 2, "weights.no_module"),
        ([*BUILD, "--weights", "none.pt"], 2, "weights.missing"),
        ([*BUILD, "--weights", "my_module.py"], 2, "weights.unreadable"),
        ([*BUILD, "--weights", "nested.pt"], 2, "weights.not_a_state_dict"),
        ([*BUILD, "--weights", "names.pt"], 2, "weights.names"),
        ([*BUILD, "--weights", "wide.pt"], 2, "weights.shape"),
        (["--weights", "my.pt"], 2, "options.requires"),
        ([*BUILD, "--target", "t.pt"], 2, "options.exclusive"),
        (["--dataset", "ba-shapes"], 2, "options.exclusive"),
    ],
)  # fmt: skip
def test_mistakes_give_one_error(here, words, exit_code, code):
    weights = torch.load("my.pt", weights_only=True)
    Path("broken.py").write_text("def build_model(:\n")
    torch.save({"epoch": 3, "model": weights}, "nested.pt")
    torch.save({"fc.weight": weights["linear.weight"], "linear.bias": weights["linear.bias"]}, "names.pt")
    torch.save({**weights, "linear.weight": torch.zeros(2, 4)}, "wide.pt")
    result = run("train", "--graph", "my_graph.bin", *words, *QUICK, "--out", "mine")
    assert result.exit_code == exit_code, result.output
    assert f"[{code}]" in result.output and "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)
    assert not (here / "mine").exists()


def test_changed_code_gives_a_notice(here, notices):
    assert train(MODEL, "--weights", "my.pt").exit_code == 0
    Path("my_module.py").write_text(CODE + "\n# changed\n")
    succeeds("explain", "--run", "mine", "--trust", "--node", 3)
    assert notices.once("run.other_code")


TWO = (
    CODE
    + """

def half():
    return build_model(3, 2)


def small():
    model = build_model(3, 2)
    return lambda graph, x: model(graph, x) / 100
"""
)


def test_another_function_of_a_file_is_another_model(here, notices):
    Path("my_module.py").write_text(TWO)
    result = train("my_module:half", "--weights", "my.pt")
    assert result.exit_code == 0, result.output
    words = ["explain", "--run", "mine", "--node", 3]
    refused(run(*words, "--model", "my_module:small"), "run.other_function")
    succeeds(*words, "--model", "my_module:half")
    config = json.loads(Path("mine/config.json").read_text())
    config["model"]["function"] = "build_model"
    Path("mine/config.json").write_text(json.dumps(config))
    succeeds(*words, "--trust")
    assert notices.has("run.other_code")


def test_a_run_without_its_code(here):
    assert train(MODEL, "--weights", "my.pt").exit_code == 0
    Path("my_module.py").unlink()
    refused(run("eval", "--run", "mine", "--trust"), "user_model.file_gone")


# --- whose code is run ------------------------------------------------------------------------------------------------


@pytest.fixture
def sent(here):
    """A run folder from another person, whose model leaves a mark when its code is run."""
    result = train(MODEL, "--weights", "my.pt")
    assert result.exit_code == 0, result.output
    helper = here / "mine" / "helper.py"
    helper.write_text(f"open({str(here / 'was-run')!r}, 'w').close()\n" + CODE)
    config = json.loads((here / "mine" / "config.json").read_text())
    config["model"] = {"module": "helper", "function": "build_model", "file": str(helper)}
    (here / "mine" / "config.json").write_text(json.dumps(config))
    yield here / "mine"
    sys.modules.pop("helper", None)


COMMANDS: dict[str, list[str]] = {
    "eval": ["eval", "--targets", "3", "--pairs", "5"],
    "explain": ["explain", "--node", "3"],
    "report": ["report", "--targets", "3", "--pairs", "5", "--reference-pairs", "100"],
    "benchmark": ["benchmark", "--targets", "3", "--seeds", "1", "--methods", "random",
                  "--metric", "fidelity", "--out", "b"],
    "train": ["train"],
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_code_of_a_run_folder_needs_trust(sent, here, command):
    words = [*COMMANDS[command], "--resume" if command == "train" else "--run", sent]
    result = run(*words)
    assert result.exit_code == 2 and not (here / "was-run").exists()
    assert str(sent / "helper.py") in result.output and "--trust" in result.output
    succeeds(*words, "--trust")
    assert (here / "was-run").exists()


def test_a_named_model_is_run_in_its_place(sent, here):
    succeeds("explain", "--run", sent, "--node", 3, *BUILD)
    assert not (here / "was-run").exists()


def test_empty_names_raise(here):
    """`--model "$UNSET"` must not explain a shipped GNN."""
    for words in (["--model", ""], ["--target", ""], ["--out", ""], ["--resume", ""]):
        result = run("train", "--graph", "my_graph.bin", *QUICK, *words)
        assert result.exit_code == 2 and "Traceback" not in result.output, words
        assert "must name" in result.output
    assert not (here / "runs").exists()


def test_a_model_that_uses_the_full_graph_raises_a_notice(here, notices):
    Path("my_module.py").write_text(
        CODE + "\n\ndef whole():\n    return lambda graph, x: x[:, :2] - x[:, :2].mean(0)\n"
    )
    succeeds("train", "--graph", "my_graph.bin", "--model", "my_module:whole", "--hops", 2, *QUICK, "--out", "mine")
    assert notices.has("context.unbounded")

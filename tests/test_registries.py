"""An alternative is one file: a gate, an objective, a metric and a method from folders of their own, used by name."""

import json
import subprocess
import sys

import numpy as np
import pytest
from codes import raises
from games import random_graph

from dgl_lara.baselines import BASELINES
from dgl_lara.explainer.gates import GATES
from dgl_lara.metrics import METRICS
from dgl_lara.training.objectives import OBJECTIVES

FILES = {
    "explainer.gates": ("near_only", '''
"""w = 1 for the target and its neighbours, 0 further out."""
from dgl_lara.explainer.gate import Gate

class NearOnly(Gate):
    def terms(self, hops):
        return 1

    def weights(self, graph, players, hops):
        return (players.hop <= 1).float().unsqueeze(1)

GATE = NearOnly()
'''),
    "training.objectives": ("absolute_error", '''
"""|d - sum sigma phi_hat| in the place of its square."""
from dgl_lara.training.objective import Objective

class AbsoluteError(Objective):
    every_class = True

    def loss(self, step, table):
        return ((step.responses() - step.predicted_responses()) / step.explainer.unit).abs().mean()

OBJECTIVE = AbsoluteError()
'''),
    "metrics": ("positive_share", '''
"""How many of the scores speak for the class."""
import pandas as pd
from dgl_lara.metrics.common.metric import Metric

class PositiveShare(Metric):
    columns = {"share above 0": 1}

    def table(self, case, explanations):
        return pd.DataFrame([{"share above 0": float((explanations.scores > 0).float().mean())}])

    def values(self, table):
        return {"share above 0": table["share above 0"].iloc[0]}

METRIC = PositiveShare()
'''),
    "baselines": ("far_first", '''
"""The further away, the higher."""
from dgl_lara.baselines.common.method import Method

class FarFirst(Method):
    def explain(self, targets):
        players = self.game.players(targets)
        return self.result(players, players.hop.float())

METHOD = FarFirst
'''),
}  # fmt: skip


@pytest.fixture
def dgl_lara(tmp_path):
    """dgl_lara(commands): one after the other in a process with one more file in each registry's folder; what each
    prints."""
    lines = ["import importlib, json, sys"]
    for package, (name, code) in FILES.items():
        folder = tmp_path / package
        folder.mkdir()
        (folder / f"{name}.py").write_text(code)
        lines.append(f"importlib.import_module('dgl_lara.{package}').__path__.append({str(folder)!r})")
    lines += [
        "from click.testing import CliRunner",
        "from dgl_lara.cli import main",
        "done = [CliRunner().invoke(main, words) for words in json.loads(sys.argv[1])]",
        "print(json.dumps([[one.exit_code, one.output] for one in done]))",
    ]
    script = tmp_path / "with_more.py"
    script.write_text("\n".join(lines))

    def call(*commands):
        words = json.dumps([[str(word) for word in command] for command in commands])
        done = subprocess.run([sys.executable, str(script), words], capture_output=True, text=True, check=True)
        results = json.loads(done.stdout.splitlines()[-1])
        assert [code for code, _ in results] == [0] * len(commands), results
        return [text for _, text in results]

    return call


@pytest.mark.long
def test_one_file_is_enough(own_folders, dgl_lara, tmp_path):
    graph, target, run = tmp_path / "graph.npz", tmp_path / "f.pt", tmp_path / "run"
    src, dst = random_graph(60, 80, 0).edges()
    np.savez(graph, src=src, dst=dst, x=np.eye(60, 3), y=np.arange(60) % 2)
    quick = ["--hidden", 8, "--dim", 2, "--masks", 1, "--epochs", 2, "--out", run]
    compared = ["--methods", "random,far-first", "--metric", "positive-share,fidelity", "--targets", 3, "--seeds", 1]
    helped, listed, _, _, _, shown, table = dgl_lara(
        ["train", "--help"],
        ["benchmark", "--help"],
        ["target", "--dataset", graph, "--epochs", 2, "--out", target],
        ["train", "--dataset", graph, "--target", target, *quick, "--gate", "near-only", "--objective",
         "absolute-error"],
        ["explain", "--run", run, "--all", "--out", tmp_path / "e.csv"],
        ["eval", "--run", run, "--metric", "positive-share", "--targets", 5, "--pairs", 10],
        ["benchmark", "--run", run, *compared, "--out", tmp_path / "b"],
    )  # fmt: skip
    assert "near-only" in helped and "absolute-error" in helped
    unfolded = "".join(listed.split())  # a help text breaks lines at hyphens
    assert "far-first" in unfolded and "positive-share" in unfolded
    far = [line.split(",") for line in (tmp_path / "e.csv").read_text().splitlines()[1:]]
    assert {float(row[3]) for row in far if int(row[2]) > 1} == {0.0}
    assert "share above 0" in shown and "lara" in shown
    assert "far-first" in table and "share above 0" in table


@pytest.mark.parametrize("registry", [GATES, OBJECTIVES, METRICS, BASELINES])
def test_every_file_of_a_registry_defines_its_entry(registry):
    assert len(registry) >= 3
    for name in registry:
        assert registry[name] is not None
        assert type(registry[name]).__module__ != "builtins" or isinstance(registry[name], type)
    with pytest.raises(KeyError):
        registry["no-such-thing"]
    with raises("choice.unknown", known=", ".join(registry.names)) as caught:
        registry.check(registry.names[0] + "s")
    assert f"'{registry.names[0]}'" in caught.value.fields["hint"]

"""Run folders written by 0.1.0 open, explain, evaluate and go on; the numbers are those that 0.1.0 gave."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from dgl_lara.cli import main

STORED = Path(__file__).parent / "runs_of_0.1.0"
NAMES = ("ba-shapes", "molecules")  # the first with stored embeddings, the second without


def call(*words):
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(params=NAMES)
def run(request, tmp_path, own_folders):
    return Path(shutil.copytree(STORED / request.param, tmp_path / request.param))


def check(run, stored):
    """Every stored row is among the rows now: the same score on the same rank, and of the same player (of two players
    that score the same, either may stand first)."""
    out = run / "explanations.csv"
    call("explain", "--run", run, "--all", "--top", "1000", "--out", out)
    wanted, now = pd.read_csv(STORED / stored), pd.read_csv(out)
    assert len(wanted) > 150 and wanted.score.std() > 1e-5
    for key in ("rank", "player"):
        found = wanted.merge(now, on=["target", key], suffixes=(" then", ""))
        assert len(found) == len(wanted)
        assert (found["explained_class"] == found["explained_class then"]).all()
        assert (found.score - found["score then"]).abs().max() < 1e-6


def test_explains_as_it_did(run):
    check(run, f"{run.name}.csv")


def test_goes_on_from_its_checkpoint(run):
    config = run / "config.json"
    config.write_text(config.read_text().replace('"epochs": 3', '"epochs": 5'))
    call("train", "--resume", run)
    history = pd.read_csv(run / "metrics.csv")
    assert history.epoch.max() == 5
    check(run, f"{run.name}-resumed.csv")


def test_is_evaluated_and_asked_about_one_target(run):
    output = call("eval", "--run", run, "--targets", "5", "--pairs", "10")
    assert "lara" in output and "fidelity+" in output
    what = "--node" if run.name == "ba-shapes" else "--graph"
    assert "is class" in call("explain", "--run", run, what, "3")

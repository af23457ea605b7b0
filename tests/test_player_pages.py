"""docs/edges.md, features.md and global.md are true: their blocks and their commands run."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from codes import refused, run, succeeds
from games import SmallGCN, random_graph

from dgl_lara.training.config import TrainingConfig

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("edges.md", "features.md", "global.md")
QUICK = TrainingConfig(masks=2, steps=8, hidden=16, dim=5)
pytestmark = pytest.mark.usefixtures("hardly_judged")


def blocks_of(page):
    return re.findall(r"```python\n(.+?)```", (DOCS / page).read_text(), re.DOTALL)


def commands_of(page):
    return re.findall(r"^\$ dgl-lara (.+)$", (DOCS / page).read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run(page, tmp_path, monkeypatch, capsys):
    """The reader's model, graph and features are small ones; training is cut short."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dgl_lara.inference.fitting.default", lambda task, count, **more: QUICK)
    features = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
    names = {"model": SmallGCN(), "graph": random_graph(40, 50, 0), "features": features}
    for block in blocks_of(page):
        exec(block, names)
    printed = capsys.readouterr().out
    assert len(blocks_of(page)) >= 2 and "Node " in printed
    assert list(tmp_path.glob("*.png"))


@pytest.mark.long
def test_commands_run(session_cache, tmp_path, monkeypatch):
    """Training is cut short, everything else is as written."""
    monkeypatch.chdir(tmp_path)
    target = ["target", "--dataset", "ba-shapes", "--epochs", "20", "--out", "target.pt"]
    succeeds(*target)
    for words in map(shlex.split, [command for page in PAGES for command in commands_of(page)]):
        quick = ["--hidden", "16", "--dim", "5", "--masks", "1", "--epochs", "2", "--target", "target.pt"]
        quick = quick if words[0] == "train" else []
        if words[0] == "summary":
            quick = ["--targets", "40"]
        result = run(*words, *quick)
        if result.exit_code:  # a model of twenty epochs may predict fewer classes
            refused(result, "summary.class_of_no_target")
    made = {path.name for path in tmp_path.iterdir()}
    assert {"edges512.png", "kinds512.html", "features512.png", "summary.png", "summary.csv"} <= made
    page = Path("kinds512.html").read_text()
    assert '"shape":"nodes"' in page and '"shape":"edges"' in page and '"shape":"bars"' in page

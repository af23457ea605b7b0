"""docs/fraud.md, recommender.md and bonds.md are true: each runs by itself, and its model has learned what it says."""

import re
from pathlib import Path

import pytest
import torch

from dgl_lara.training.config import TrainingConfig

DOCS = Path(__file__).parents[1] / "docs"
QUICK = TrainingConfig(masks=2, steps=8, hidden=16, dim=5)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    def run(page):
        """What its blocks define; training of the explainer is cut short."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("dgl_lara.inference.fitting.default", lambda task, count, **more: QUICK)
        text = (DOCS / page).read_text()
        assert "generated" in text.lower() and text.count("\n") < 60
        names: dict = {}
        with torch.random.fork_rng():
            for block in re.findall(r"```python\n(.+?)```", text, re.DOTALL):
                exec(block, names)
        return names, capsys.readouterr().out

    return run


def test_fraud(run):
    names, printed = run("fraud.md")
    right = names["model"](names["graph"], names["x"]).argmax(1) == names["fraud"]
    assert right.float().mean() > 0.95
    assert re.search(r"nodes\s+type\s+merchant", printed) and re.search(r"edges\s+relation\s+pays", printed)


def test_recommender(run):
    names, printed = run("recommender.md")
    f, graph, x, u, i = (names[name] for name in ("f", "graph", "x", "u", "i"))
    mine = (u % 2 == i % 2).float().mean()
    scores = f(graph, x, u, i), f(graph, x, u, (i + 1) % 40)
    assert mine > 0.8 and (scores[0] > scores[1]).float().mean() > 0.7
    assert names["best"] % 2 == 1 and re.search(r"nodes\s+type\s+user", printed)


def test_bonds(run):
    names, _ = run("bonds.md")
    graph, active = names["graph"], names["active"]
    right = names["model"](graph, names["atoms"], graph.edata["bond"]).argmax(1) == active
    assert 0.2 < active.float().mean() < 0.8 and right.float().mean() > 0.9
    assert names["lara"].explainer_.config.edge_columns  # what bonds are is seen
    assert len(names["why"].scores) == 6

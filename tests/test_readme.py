"""The README is true: its commands parse, its Python runs, the files it names exist."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from games import SmallGCN, random_graph

from dgl_lara.cli import main
from dgl_lara.training.config import default

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = [line.split("#")[0] for line in re.findall(r"^\$ dgl-lara (.+)$", README, re.MULTILINE)]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command):
    name, *arguments = shlex.split(command)
    main.commands[name].make_context(name, arguments)


def test_it_is_short_and_shows_what_a_new_user_needs():
    """Install, five commands, a service in four lines, a picture of each, one table, where it loses; everything else is
    in docs/."""
    assert len(README.splitlines()) <= 120 and len(COMMANDS) == 7
    assert README.count("\n|---") == 1 and "**Where LARA loses:**" in README and "![" in README
    assert "`OMP_NUM_THREADS=1` gives these very figures" in README  # with two threads other neighbours are named
    headings = re.findall(r"^## (.+)$", README, re.MULTILINE)
    assert headings == ["Install", "Five commands", "Your own model", "In production", "How good it is", "Further"]


def test_python_example_runs(monkeypatch):
    """Training is cut short, everything else is as written."""
    short = lambda task, count, **more: replace(default(task, count, **more), steps=40)  # noqa: E731
    monkeypatch.setattr("dgl_lara.inference.fitting.default", short)
    (code,) = re.findall(r"```python\n(.+?)```", README, re.DOTALL)
    code = code.replace("[512, 640]", "[5, 6]").replace("[512]", "[5]")
    graph, features = random_graph(60, 80, 0), torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    model = SmallGCN()
    model.num_hops = 2
    names = {"model": model, "graph": graph, "features": features, "train_nodes": range(60)}
    exec(code, names)
    assert set(names["explanations"].to_frame().target) == {5, 6}


def test_named_files_exist():
    for name in re.findall(r"`((?:\w+/)*\w+\.py)`", README):
        assert (ROOT / name).exists() or (ROOT / "dgl_lara" / name).exists(), name
    for link in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / link).exists(), link


def test_make_targets_exist():
    targets = re.findall(r"^\$ make (\w+)", README, re.MULTILINE)
    assert targets == ["demo", "test"]
    for target in targets:
        assert f"\n{target}:" in (ROOT / "Makefile").read_text()

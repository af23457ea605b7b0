"""docs/your_own_model.md is true: its blocks run one after the other, its commands parse."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dgl_lara.cli import main
from dgl_lara.datasets import load
from dgl_lara.errors import LaraError
from dgl_lara.training.config import TrainingConfig

TEXT = (Path(__file__).parents[1] / "docs" / "your_own_model.md").read_text()
BLOCKS = re.findall(r"```python\n(.+?)```", TEXT, re.DOTALL)
FILES = re.findall(r'```python title="(.+?)"\n(.+?)```', TEXT, re.DOTALL)
COMMANDS = re.findall(r"^\$ dgl-lara (.+)$", TEXT, re.MULTILINE)
QUICK = TrainingConfig(masks=1, steps=4, hidden=16, dim=5)


@pytest.fixture
def cora(request):
    """From the data folder, else downloaded; skipped where neither can be."""
    from conftest import REAL_DATA

    if REAL_DATA:
        request.getfixturevalue("real_data")
    try:
        return load("cora")
    except LaraError as error:
        pytest.skip(f"needs Cora: {error}")


def test_there_is_something_to_run():
    assert len(BLOCKS) >= 10 and len(COMMANDS) == 4 and len(FILES) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command):
    name, *arguments = shlex.split(command)
    main.commands[name].make_context(name, arguments)


@pytest.mark.long
def test_blocks_then_the_commands_that_train(cora, tmp_path, monkeypatch, capsys):
    """Training is cut short, everything else is as written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dgl_lara.inference.fitting.default", lambda task, count, **more: QUICK)
    monkeypatch.setattr("dgl_lara.training.validation.TARGETS", 16)
    monkeypatch.setattr("dgl_lara.training.validation.PAIRS", 32)  # of a link half of them say nothing
    names = {"range": range}
    for block in BLOCKS:
        exec(block.replace("range(60)", "range(15)").replace("pairs=64", "pairs=8"), names)
    printed = capsys.readouterr().out
    assert "K = 2, agreement with phi" in printed and "no better than random" in printed
    assert set(names["frame"].target) == {1708, 2000}
    Path("my_module.py").write_text(
        BLOCKS[1].split("torch.manual_seed")[0]
        + "\n\ndef build_model(in_dim, classes):\n    return Net(in_dim, classes)\n"
    )
    for file, code in FILES:
        Path(file).write_text(code)
    for command in COMMANDS[:2]:
        name, *words = shlex.split(command)
        assert name == "train"
        quick = ["--epochs", "2", "--masks", "1", "--hidden", "16", "--dim", "5"]
        result = CliRunner().invoke(main, [name, *words, *quick])
        assert result.exit_code == 0, result.output
    for module in ("my_module", "my_pyg"):
        sys.modules.pop(module, None)

"""The documents are true: links lead somewhere, commands parse, pictures and files are there, the site builds."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dgl_lara.cli import main

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "data/*.md", "experiments/*.md", "experiments/results/*.md")
    for path in ROOT.glob(pattern)
)
GUIDES = [path for path in PAGES if path.parent == ROOT / "docs"]


def without_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def commands_of(path):
    lines = re.findall(r"^\$ dgl-lara (.+)$", path.read_text(), re.MULTILINE)
    return [re.split(r"\s+#|\s+>", line)[0] for line in lines]


def anchors_of(path):
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_there_are_pages():
    names = {path.name for path in GUIDES}
    assert {"results.md", "speed.md", "rivals.md", "paper_map.md", "gallery.md", "api.md", "command_line.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link, anchor in re.findall(r"\]\(([^()\s#:]*)(#[^()\s]*)?\)", without_code(page.read_text())):
        target = (page.parent / link).resolve() if link else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor[1:] in anchors_of(target), f"{page.name} links to {link}{anchor}"


@pytest.mark.parametrize(
    ("page", "command"), [(page.name, command) for page in GUIDES for command in commands_of(page)]
)
def test_commands_parse(page, command):
    name, *arguments = shlex.split(command)
    parsed = main.commands[name]
    context = parsed.make_context(name, list(arguments), resilient_parsing=name == "runs" or "--config" in arguments)
    if isinstance(parsed, click.Group) and arguments:
        sub, *rest = arguments
        parsed.commands[sub].make_context(sub, rest, parent=context)
    elif "--config" in arguments:  # the file is the reader's; its options are known
        known = {option for parameter in parsed.params for option in parameter.opts}
        assert {word for word in arguments if word.startswith("--")} <= known


@pytest.mark.parametrize("page", GUIDES, ids=lambda path: path.name)
def test_named_source_files_exist(page):
    for name in re.findall(r"`((?:\w+/)*\w+\.py)`", page.read_text()):
        if name.startswith("my_"):
            continue  # the reader's own
        found = [path for room in ("dgl_lara", "tests", "docs", "experiments") for path in (ROOT / room).rglob(name)]
        assert found or (ROOT / name).exists(), f"{page.name}: {name}"


def test_the_documented_settings_file_is_understood(tmp_path, monkeypatch):
    tomllib = pytest.importorskip("tomllib")
    (text,) = re.findall(r"```toml\n(.+?)```", (ROOT / "docs" / "command_line.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(text)
    for command, table in tomllib.loads(text).items():
        context = main.commands[command].make_context(command, ["--config", "run.toml"])
        options = {option.opts[0].lstrip("-"): option for option in main.commands[command].params}
        for name, value in table.items():
            several = getattr(options[name], "multiple", False) and not isinstance(value, list)
            assert context.params[options[name].name] == ((value,) if several else value), name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_as_documented(shell):
    assert f"{shell}_source" in (ROOT / "docs" / "command_line.md").read_text()
    environment = {**os.environ, "_DGL_LARA_COMPLETE": f"{shell}_source"}
    script = "from dgl_lara.cli import main; main(prog_name='dgl-lara')"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert found.returncode == 0 and "_DGL_LARA_COMPLETE" in found.stdout, found.stderr


def test_every_picture_of_the_gallery_has_its_command():
    text = (ROOT / "docs" / "gallery.md").read_text()
    shown = re.findall(r"\]\(images/([\w.-]+)\)", text)
    made = [word for command in commands_of(ROOT / "docs" / "gallery.md") for word in shlex.split(command)]
    assert len(shown) >= 5 and set(shown) <= set(made)


@pytest.mark.long
def test_the_site_builds_without_a_warning(tmp_path):
    """Every link inside the site, every anchor, every name of the API."""
    pytest.importorskip("mkdocstrings", reason="needs the documentation's packages: pip install 'dgl-lara[docs]'")
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert built.returncode == 0, built.stdout + built.stderr
    home = (tmp_path / "site" / "index.html").read_text()
    assert 'href="docs/' not in home and 'src="experiments/results/node512.png"' in home
    assert 'href="https://fonts' not in home  # nothing is fetched from elsewhere
    assert 'id="dgl_lara.lara.LARA.explain"' in (tmp_path / "site" / "api.html").read_text()

"""No pickle is loaded, names are text in every page, and nothing uses the network unless requested."""

import ast
import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from browser import ask, is_self_contained, needs_browser
from codes import succeeds
from jinja2 import Environment, meta
from test_bulk import bulk

import dgl_lara
from dgl_lara._util.tables import cell, is_number
from dgl_lara._util.templates import HtmlTable, rendered
from dgl_lara.datasets import cache, mutagenicity, ogbn_arxiv, planetoid
from dgl_lara.errors import LaraError
from dgl_lara.inference.scorer import Scorer

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*(ROOT / "dgl_lara").rglob("*.py"), *(ROOT / "experiments").glob("*.py")])
EVIL = "<script>document.title = 'evil'</script><img src=x onerror=\"document.title='evil'\">"


def calls(path):
    """Yield (full name, keyword arguments, line) of every call, also of names that are imported under another name."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    full: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            full |= {one.asname: one.name for one in node.names if one.asname}
        elif isinstance(node, ast.ImportFrom):
            full |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    for node in nodes:
        if isinstance(node, ast.Call):
            first, dot, rest = ast.unparse(node.func).partition(".")
            words = {word.arg: ast.unparse(word.value) for word in node.keywords}
            yield full.get(first, first) + dot + rest, words, node.lineno


def findings(path):
    for name, words, line in calls(path):
        last = name.split(".")[-1]
        if name in ("torch.load", "torch.serialization.load") and words.get("weights_only") != "True":
            yield f"{path.name}:{line} torch.load without weights_only=True"
        if name in ("np.load", "numpy.load", "np.lib.format.read_array") and words.get("allow_pickle") != "False":
            yield f"{path.name}:{line} np.load without allow_pickle=False"
        if name in ("eval", "exec", "compile", "os.system", "os.popen") or last in ("read_pickle", "unsafe_load"):
            yield f"{path.name}:{line} {name}"
        if name.startswith(("pickle.", "joblib.", "dill.", "marshal.", "shelve.")) and last != "UnpicklingError":
            yield f"{path.name}:{line} {name}"
        if name == "yaml.load" or words.get("shell") == "True":
            yield f"{path.name}:{line} {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_source_loads_what_could_be_code(path):
    assert list(findings(path)) == []


def test_unsafe_calls_are_found(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text(
        "import torch, pickle, yaml\ntorch.load('a')\nnp.load('b')\npickle.loads(c)\nyaml.load(d)\neval(e)\n"
        "subprocess.run(f, shell=True)\ntorch.load('a', weights_only=True)\n"
    )
    assert len(list(findings(bad))) == 6
    bad.write_text(
        "import torch as t, numpy as n, pickle as p\nfrom torch import load as read\nfrom yaml import load\n"
        "from os import system\nfrom pickle import loads\nt.load('a')\nn.load('b')\np.loads(c)\nread('a')\nload(d)\n"
        "system(e)\nloads(f)\nread('a', weights_only=True)\n"
    )
    assert len(list(findings(bad))) == 7


def test_the_only_unpickler_builds_arrays_only():
    users = [path.name for path in SOURCES if "import pickle" in path.read_text()]
    assert users == ["planetoid.py"]
    assert set(planetoid._ArraysOnly.ALLOWED) == {
        "_reconstruct",
        "ndarray",
        "dtype",
        "csr_matrix",
        "defaultdict",
        "list",
    }


def test_only_the_service_listens():
    """dgl's server for training on several machines unpickles what it receives (GHSA-3x5x-fw77-g54c, not fixed).
    Processes of torch send numbers and texts, because what sends objects pickles them."""
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        imports = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        allowed = ["import torch.distributed as dist"] if path.name == "distributed.py" else []
        pattern = r"(torch|dgl)[. ].*distributed|socketserver"
        assert not any(re.search(pattern, line) for line in imports if line not in allowed), path
        assert not re.search(r"dgl\.distributed|start_server|_object\(|_object_list\(", path.read_text()), path
        if path.parent.name != "serve":  # which listens on the loopback by default
            assert not re.search(r"\.listen\(|\.bind\(", path.read_text()), path


# --- pages ------------------------------------------------------------------------------------------------------------


def evil_page():
    one = bulk("walk", False)
    found = Scorer(one.explainer, one.game, one.embeddings).explain(torch.arange(3))
    return found.named([EVIL] * 80, [EVIL] * 3)[0].to_html()


def test_names_are_text_in_a_page():
    assert "<script>document.title" not in evil_page() and "<img src=x" not in evil_page()


def test_every_part_of_a_report_is_escaped():
    """Templates escape by default, and only our own pictures are marked as safe."""
    table = HtmlTable([EVIL], [[EVIL]])
    source = (Path(dgl_lara.__file__).parent / "reports" / "report.html").read_text()
    pages = Environment()
    pages.filters["cell"], pages.tests["a_number"] = cell, is_number
    parts: dict = dict.fromkeys(meta.find_undeclared_variables(pages.parse(source)), EVIL)
    parts |= dict.fromkeys(("accuracy", "fidelity", "agreement", "truth", "speed", "settings", "deviations"), table)
    parts |= {
        "summary": [EVIL],
        "what": [EVIL],
        "caveats": [EVIL],
        "local": True,
        "kept": True,
    }
    parts["examples"] = {EVIL: [(EVIL, EVIL)]}
    parts["general"] = {"about": EVIL, "picture": EVIL, "table": table, "typical": [EVIL]}
    page = rendered("dgl_lara.reports", "report.html", **parts)
    assert "<script>document.title" not in page and "<img src=x" not in page and "&lt;script&gt;" in page
    marked = [path.name for path in SOURCES if "Markup(" in path.read_text()]
    assert marked == ["html.py", "html.py"]


@pytest.mark.browser
@needs_browser[1]
def test_names_do_nothing_in_a_browser(tmp_path):
    title = ask(evil_page(), "return document.title", tmp_path)
    assert title != "evil" and "Node" in title


# --- the network ------------------------------------------------------------------------------------------------------


def test_downloads_are_secure_and_checked():
    for module in (mutagenicity, ogbn_arxiv, planetoid):
        assert module.URL.startswith("https://")
    assert len(mutagenicity.CHECKSUM) == len(ogbn_arxiv.CHECKSUM) == len(ogbn_arxiv.SPLIT_CHECKSUM) == 64
    assert all(len(checksum) == 64 for checksum in planetoid.CHECKSUMS.values())
    # the service, and scripts that use it on this machine, use plain HTTP
    elsewhere = [
        path for path in SOURCES if path.parent.name != "serve" and not path.name.startswith(("serv", "explore"))
    ]
    others = {path.name: [line for line in path.read_text().splitlines() if '"http://' in line] for path in elsewhere}
    assert not any(others.values())


def test_a_download_that_is_redirected_to_http_is_refused(tmp_path, monkeypatch):
    class Reply:
        url, headers = "http://elsewhere/data.zip", {}  # noqa: RUF012

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: Reply())
    with pytest.raises(LaraError, match="not secure"):
        cache.download("https://here/data.zip", tmp_path / "data.zip", "")
    assert list(tmp_path.iterdir()) == []


def test_commands_use_no_network(quick_runs, tmp_path, monkeypatch):
    def refused(*_, **__):
        raise AssertionError("network")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.chdir(tmp_path)
    few = ["--targets", "3", "--pairs", "5"]
    for words in (
        ["datasets"],
        ["explain", "--run", quick_runs["ba-shapes"], "--node", "3", "--picture", "n.html"],
        ["explain", "--run", quick_runs["ba-shapes"], "--split", "test", "--top", "2", "--out", "all.csv"],
        ["eval", "--run", quick_runs["ba-shapes"], *few],
    ):
        succeeds(*words)
    is_self_contained(Path("n.html").read_text())


def test_help_opens_no_connection():
    code = "import socket, runpy, sys; socket.socket.connect = None; sys.argv = ['dgl-lara', '--help']\n"
    code += "runpy.run_module('dgl_lara', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "explain" in done.stdout
    assert json.dumps(done.stderr) == '""'

"""Imports go one way: a module may import only from rooms that stand before its own in ROOMS (docs/architecture.md)."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dgl_lara"

# From the ground up; those of one line do not know each other. A room is a folder, or a module of the root.
ROOMS = [
    {"messages", "constants"},
    {"errors"},
    {"_util"},
    {"graphs"},
    {"blackbox"},
    {"game"},
    {"datasets", "attribution", "explainer", "explanation"},
    {"gnns", "training", "metrics"},
    {"baselines"},
    {"inference"},
    {"lara_io", "explained_model"},
    {"lara"},
    {"lara_partitioned"},
    {"lara_distributed"},
    {"runs", "evaluation", "pyg"},
    {"reports", "serve", "shards"},
    {"cli"},
    {"__main__"},
]

# Beyond the order: who must not know whom.
FORBIDDEN = [
    ("explainer", "attribution", "g never imports what teaches it"),
    ("metrics", "explainer", "metrics never import what they judge"),
    ("metrics", "training", "metrics never import what they judge"),
    ("metrics", "baselines", "metrics never import what they judge"),
    ("blackbox", "game", "what is explained knows nothing of explaining"),
    ("_util.tables", "", "plain text needs nothing of ours"),
]

# What `--help` loads: names of alternatives come from file names, not from importing them.
LIGHT = [
    "runs.folder",
    "constants", "errors", "messages", "datasets", "gnns", "_util", "_util.writable", "_util.registry", "explainer",
    "explainer.gates", "training", "training.objectives", "metrics", "baselines",
]  # fmt: skip


@cache
def modules():
    """'datasets.storage' -> its path; a package counts under its folder's name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name:
            found[name] = path
    return found


@cache
def imports_of(path, types=True):
    """Return the modules of ours that a file imports anywhere, functions included.

    Args:
        path: The file.
        types: Include imports for type checkers alone.
    """
    found = set()
    tree = ast.parse(path.read_text())
    if not types:
        tree.body = [
            node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name.removeprefix("dgl_lara.") for name in names if name.startswith("dgl_lara.")}
    return {name for name in found if name in modules()}


def room(name):
    return name.split(".")[0]


def floor(name):
    floors = [number for number, rooms in enumerate(ROOMS) if room(name) in rooms]
    assert floors, f"{name} is new: give its room a place in ROOMS"
    return floors[0]


def is_inside(name, family):
    return not family or name == family or name.startswith(family + ".")


@pytest.mark.parametrize("name", modules())
def test_a_module_imports_only_from_rooms_before_its_own(name):
    for other in imports_of(modules()[name]):
        assert room(name) == room(other) or floor(other) < floor(name), f"{name} imports {other}"


def test_no_two_modules_import_each_other():
    """Within a room too: the sorter raises where there is a circle. A package's own file only loads what is in it."""
    graph = {
        name: {other for other in imports_of(path, types=False) - {name} if not other.startswith(name + ".")}
        for name, path in modules().items()
    }
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)


@pytest.mark.parametrize(("family", "stranger", "reason"), FORBIDDEN)
def test_strangers(family, stranger, reason):
    for name, path in modules().items():
        if is_inside(name, family):
            assert not [other for other in imports_of(path) if is_inside(other, stranger)], f"{name}: {reason}"


def test_reader_sees_imports():
    assert imports_of(modules()["gnns.registry"]) == {
        "_util.randomness", "datasets.dataset", "gnns", "gnns.base", "gnns.hetero", "gnns.models", "gnns.recommender",
    }  # fmt: skip
    assert "gnns.checkpoint" in imports_of(modules()["cli.target"])  # inside a function


@pytest.mark.parametrize(
    "name", [*LIGHT, *(name for name in modules() if is_inside(name, "cli") and name != "cli.explain_single")]
)
def test_what_help_needs_loads_nothing_heavy(name):
    """At the top level of these files: the standard library, click and light modules of ours."""
    light = {f"dgl_lara.{other}" for other in LIGHT} | {"dgl_lara"}
    for node in ast.parse(modules()[name].read_text()).body:
        if isinstance(node, ast.ImportFrom) and room(node.module) in ("dgl_lara", "torch", "dgl", "numpy"):
            assert node.module in light or node.module.startswith("dgl_lara.cli."), node.module
        if isinstance(node, ast.Import):
            assert not {alias.name for alias in node.names} & {"torch", "dgl", "numpy", "pandas", "networkx"}


def test_a_task_is_an_object_and_its_name_is_hardly_compared_with():
    """A third kind of target is a new file, not a branch in forty."""
    compared = re.compile(r"""[=!]= ?["'](node|graph|link)["']|["'](node|graph|link)["'] ?[=!]=""")
    found = [
        f"{name}:{number}"
        for name, path in modules().items()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if compared.search(line)
    ]
    assert len(found) <= 10, found

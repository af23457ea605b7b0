"""Imports go one way (DESIGN, section 6): a module may import only what stands before it in ORDER."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dgl_lara"

# A folder stands for all its modules, except where one of them is listed by itself.
ORDER = [
    "errors", "choices", "memory", "progress", "randomness", "reports.tables",
    "datasets", "targets",
    "listing", "neighborhood", "removal", "blackbox", "adapters", "value", "attribution",
    "reports.layout", "reports.scene", "reports.pictures", "reports.templates", "reports.interactive", "words",
    "explainer", "inputs", "sampling", "lessons", "losses", "validation", "training", "explanation",
    "walks", "inference", "layerwise", "bulk", "export", "own_model", "runs", "lara", "one_call",
    "baselines", "metrics", "trust", "evaluation", "benchmark", "reports", "cli", "__main__",
]  # fmt: skip

# Beyond the order: who must not know whom.
FORBIDDEN = [
    ("explainer", "attribution", "g never imports what teaches it"),
    ("metrics", "explainer", "metrics never import what they judge"),
    ("metrics", "training", "metrics never import what they judge"),
    ("metrics", "baselines", "metrics never import what they judge"),
    ("reports.tables", "", "plain text needs nothing of ours"),
]


def modules():
    """'datasets.storage' -> its path; a package counts under its folder's name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name:
            found[name] = path
    return found


def imports_of(path):
    """Modules of ours that a file imports anywhere, functions included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name.removeprefix("dgl_lara.") for name in names if name.startswith("dgl_lara.")}
    return {name for name in found if name in modules()}


def place(name):
    """Where a module stands in ORDER: its own entry, else its folder's."""
    entry = name if name in ORDER else name.split(".")[0]
    assert entry in ORDER, f"{name} is new: give it a place in ORDER"
    return ORDER.index(entry)


def is_inside(name, family):
    return not family or name == family or name.startswith(family + ".")


@pytest.mark.parametrize("name", modules())
def test_a_module_imports_only_what_stands_before_it(name):
    for other in imports_of(modules()[name]):
        same_family = name.split(".")[0] == other.split(".")[0] and other != name
        assert place(other) < place(name) or same_family, f"{name} imports {other}"


@pytest.mark.parametrize(("family", "stranger", "reason"), FORBIDDEN)
def test_strangers(family, stranger, reason):
    for name, path in modules().items():
        if is_inside(name, family):
            assert not [other for other in imports_of(path) if is_inside(other, stranger)], f"{name}: {reason}"


def test_reader_sees_imports():
    assert imports_of(modules()["targets.models"]) == {"targets"}
    assert "targets.checkpoint" in imports_of(modules()["cli.target"])  # inside a function


@pytest.mark.parametrize(
    "name", ["choices", "datasets", "targets", "errors", *(name for name in modules() if is_inside(name, "cli"))]
)
def test_what_help_needs_loads_nothing_heavy(name):
    """At the top level of these files: the standard library, click and light modules of ours."""
    light = {"dgl_lara.choices", "dgl_lara.datasets", "dgl_lara.targets", "dgl_lara.errors", "dgl_lara", "click"}
    for node in ast.parse(modules()[name].read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in ("dgl_lara", "torch", "dgl", "numpy"):
            assert node.module in light or node.module.startswith("dgl_lara.cli.")
        if isinstance(node, ast.Import):
            assert not {alias.name for alias in node.names} & {"torch", "dgl", "numpy", "pandas", "networkx"}

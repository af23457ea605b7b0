"""environment.yml (conda, CUDA) and constraints.txt (pip, tested) agree with the ranges of setup.py."""

import ast
import re
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"pytorch": "torch"}


def ranges_of_setup():
    """Name -> range, from the literal RUNTIME; the file is read, not run."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "RUNTIME":
            requirements = [Requirement(text) for text in ast.literal_eval(node.value)]
            return {requirement.name: requirement.specifier for requirement in requirements}
    raise AssertionError("setup.py has no RUNTIME")


def environment():
    return yaml.safe_load((ROOT / "environment.yml").read_text())


def conda_packages():
    """Name -> range, as pip would write it: no channel, one '=' is '==', build labels are cut off."""
    found = {}
    lines = [line for line in environment()["dependencies"] if isinstance(line, str)]
    for line in [*lines, *pip_packages()]:
        name, bounds = re.fullmatch(r"([A-Za-z0-9_.-]+)(.*)", line.split("::")[-1]).groups()
        bounds = re.sub(r"^=(?!=)", "==", bounds)
        bounds = re.sub(r"(==\d+\.\d+\.\d+)\.[a-z].*", r"\1", bounds)  # 2.4.0.th24.cu124
        found[CONDA_NAMES.get(name, name)] = SpecifierSet(bounds)
    return found


def pip_packages():
    (section,) = [line["pip"] for line in environment()["dependencies"] if isinstance(line, dict)]
    return [line for line in section if not line.startswith("-")]


def constraints():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {pin.name: pin.specifier for pin in pins}


def bounds_of(specifier):
    """The versions a range names as its lowest or only one."""
    return [Version(part.version) for part in specifier if part.operator in ("==", ">=", "~=")]


def test_readers_see_something():
    assert ranges_of_setup()["dgl"].contains("1.1.3")
    assert conda_packages()["dgl"] == SpecifierSet("==2.4.0")
    assert conda_packages()["torch"] == SpecifierSet("==2.4.0")
    assert constraints()["dgl"] == SpecifierSet("==1.1.3")


@pytest.mark.parametrize("name", [*ranges_of_setup(), "pytest"])
def test_environment_names_every_dependency(name):
    assert name in conda_packages()


@pytest.mark.parametrize("name", ranges_of_setup())
def test_environment_lies_within_the_ranges_of_setup(name):
    expected, given = ranges_of_setup()[name], conda_packages()[name]
    assert all(expected.contains(version) for version in bounds_of(given))
    assert not bounds_of(expected) or bounds_of(given), "an open range here could go below the one of setup.py"


def test_environment_has_what_dgls_recipe_forgets():
    assert {"pandas", "pydantic", "pyyaml", "packaging"} <= set(conda_packages())


@pytest.mark.parametrize("name", ranges_of_setup())
def test_constraints_pin_every_dependency_within_its_range(name):
    (pin,) = constraints()[name]
    assert pin.operator == "=="
    assert ranges_of_setup()[name].contains(pin.version)


def test_dgl_for_a_single_torch_release_is_excluded():
    assert not any(ranges_of_setup()["dgl"].contains(version) for version in ("2.0.0", "2.1.0", "2.2.1"))
    assert all(ranges_of_setup()["dgl"].contains(version) for version in ("1.1.3", "2.4.0"))


def test_environment_takes_the_python_of_setup():
    (expected,) = re.findall(r'python_requires="(.+?)"', (ROOT / "setup.py").read_text())
    assert all(SpecifierSet(expected).contains(version) for version in bounds_of(conda_packages()["python"]))
    assert SpecifierSet(expected).contains("3.11")

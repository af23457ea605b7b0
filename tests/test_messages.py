"""The catalogue of messages and the code that uses it belong together."""

import ast
import pickle
import string
from pathlib import Path

import pytest

import dgl_lara
from dgl_lara.errors import InputError, catalogue

RAISED = {"HttpError", "InputError", "LaraError", "ModelError", "UsageError", "notice", "message"}
SOURCES = sorted(Path(dgl_lara.__file__).parent.rglob("*.py"))


def used():
    """Yield (file:line, code, field names or None) of every error and notice with a literal code."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RAISED and node.args:
                code = node.args[0]
                if isinstance(code, ast.Constant) and isinstance(code.value, str) and " " not in code.value:
                    names = {keyword.arg for keyword in node.keywords}
                    yield f"{path.name}:{node.lineno}", code.value, None if None in names else names


def texts():
    """Yield file:line of every error and notice whose first argument is a text instead of a code."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RAISED and node.args:
                literals = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
                if any(" " in str(literal) for literal in literals):
                    yield f"{path.name}:{node.lineno}"


def placeholders(text):
    return {name.partition(".")[0].partition("[")[0] for _, name, _, _ in string.Formatter().parse(text) if name}


def test_each_code_has_a_text_and_its_fields():
    for where, code, names in used():
        assert code in catalogue(), f"{where}: {code} is not in the catalogue"
        if names is not None:
            assert placeholders(catalogue()[code]) <= names, f"{where}: {code}"


def test_errors_and_notices_have_a_code():
    assert list(texts()) == []


def test_an_error_survives_pickling():
    error = InputError("hops.unknown", got=3)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.code, copy.fields) == (InputError, "hops.unknown", {"got": 3})


def test_an_unknown_code_is_its_own_text():
    assert str(InputError("no.such.code")) == "no.such.code"


@pytest.mark.parametrize("code", sorted(catalogue()))
def test_a_text_is_plain(code):
    text = catalogue()[code]
    assert ";" not in text, "one idea a sentence"
    assert not {"whoever", "nobody", "somebody", "told", "says"} & set(text.lower().split())

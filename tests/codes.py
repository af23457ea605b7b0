"""Assertions about errors and notices by code, so that rewording a text breaks no test."""

import logging
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from dgl_lara.cli import main
from dgl_lara.errors import LaraError


def run(*words):
    """Run dgl-lara with these words."""
    return CliRunner().invoke(main, list(map(str, words)))


def succeeds(*words):
    """Run dgl-lara and check that it succeeds."""
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result


def refused(result, code, exit_code=2):
    """Check that a command ended with this code on one line."""
    assert result.exit_code == exit_code, result.output
    assert f"[{code}]" in result.output and "Traceback" not in result.output


@contextmanager
def raises(code, kind=LaraError, **fields):
    """Expect an error with this code and these fields."""
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code
    for name, value in fields.items():
        assert caught.value.fields[name] == value, name


class Notices(logging.Handler):
    """Collect the notices of a test: `codes` in order, `fields(code)` of the last one with that code."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)

    @property
    def codes(self):
        return [record.code for record in self.records]

    def has(self, code, **fields):
        """Return whether a notice has this code and these fields."""
        return any(record.code == code and fields.items() <= record.fields.items() for record in self.records)

    def once(self, code):
        return self.codes.count(code) == 1

    def fields(self, code):
        return next(record.fields for record in reversed(self.records) if record.code == code)

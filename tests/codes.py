"""Assertions about errors and notices by code, so that rewording a text breaks no test."""

import logging
from contextlib import contextmanager

import pytest

from dgl_lara.errors import LaraError


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

    def fields(self, code):
        return next(record.fields for record in reversed(self.records) if record.code == code)

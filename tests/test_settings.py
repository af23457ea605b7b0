"""Settings check their values, from Python and from files."""

import dataclasses
import pickle
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from codes import raises
from pydantic import Field

from dgl_lara._util.settings import Choice, from_dict, settings, to_dict
from dgl_lara.errors import InputError


@settings
class Inner:
    name: Literal["inner"] = "inner"
    on: bool = False


@settings
class Outer:
    size: Annotated[int, Field(ge=1, le=4000)] = 1
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.5
    word: Annotated[str, Choice(("a", "b"))] = "a"
    layers: Annotated[int, Field(ge=0)] | None = None
    inner: Inner = Inner()
    rows: tuple[Inner, ...] = ()
    path: Path | None = None

    def __post_init__(self):
        if self.size == 13:
            raise InputError("settings.missing", name="luck")


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ({"size": 0}, "size", "a whole number of at least 1 and of at most 4,000"),
        ({"size": True}, "size", "a whole number of at least 1 and of at most 4,000"),
        ({"size": 1.0}, "size", "a whole number of at least 1 and of at most 4,000"),
        ({"rate": float("nan")}, "rate", "a number above 0 and below 1"),
        ({"rate": "0.5"}, "rate", "a number above 0 and below 1"),
        ({"word": "c"}, "word", "one of a, b"),
        ({"layers": -1}, "layers", "a whole number of at least 0 or None"),
    ],
)
def test_an_invalid_value(values, name, expected):
    with raises("settings.invalid", InputError, name=name, expected=expected):
        Outer(**values)
    with raises("file.content"):
        from_dict(Outer, values, "x.json")


def test_unknown_and_missing_names():
    with raises("settings.unknown", name="siz", hint="Did you mean 'size'?"):
        Outer(siz=2)  # type: ignore[call-arg]
    with raises("file.content") as caught:
        from_dict(Outer, {"inner": {"off": True}}, "x.json")
    assert "inner.off" in str(caught.value)
    contents: list[object] = [[], "text", {"size": object()}, {"rows": [{"on": 3}]}]
    for content in contents:
        with raises("file.content"):
            from_dict(Outer, content, "x.json")


def test_values_are_compared_with_each_other():
    with raises("settings.missing", InputError, name="luck"):
        Outer(size=13)


def test_copies_and_files():
    numbers: dict[str, Any] = {"size": np.int64(3), "rate": np.float64(0.25)}
    value = Outer(**numbers, rows=(Inner(on=True),), path=Path("x"))
    assert (type(value.size), type(value.rate)) == (int, float)
    assert from_dict(Outer, to_dict(value), "x.json") == value == pickle.loads(pickle.dumps(value))
    assert dataclasses.replace(value, word="b").word == "b"
    assert dataclasses.asdict(value)["rows"] == ({"name": "inner", "on": True},)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.size = 2  # type: ignore[misc]
    with raises("settings.invalid"):
        dataclasses.replace(value, size=0)
    with raises("settings.invalid") as caught:
        Outer(size=0)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

"""Settings: frozen dataclasses whose values pydantic checks, whether they come from Python or from a file."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import core_schema
from typing_extensions import dataclass_transform

from dgl_lara._util.schema import abbreviated
from dgl_lara.errors import InputError, LaraError

T = TypeVar("T")
CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)
LIMITS = (("ge", "of at least {:,}"), ("gt", "above {:,}"), ("le", "of at most {:,}"), ("lt", "below {:,}"))
TYPE_NAMES: dict[object, str] = {bool: "True or False", str: "a text", dict: "a table", list: "a list", tuple: "a list"}


@dataclasses.dataclass(frozen=True)
class Choice:
    """Annotation of a text that is one of some words: `Annotated[str, Choice(("a", "b"))]`."""

    words: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.literal_schema(list(self.words))


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, Field))
def settings(cls: type[T]) -> type[T]:
    """Make a frozen dataclass that checks its values against its annotations.

    A number states its bounds as `Annotated[int, Field(ge=1, le=64)]`, a word its choices as
    `Annotated[str, Choice(WORDS)]`. NumPy numbers become
    plain ones. `__post_init__` may compare values with each other and raise an InputError.

    Args:
        cls: A class with annotated fields.

    Returns:
        The dataclass. Its constructor raises InputError "settings.invalid", "settings.unknown" or "settings.missing".
    """
    made: Any = dataclass(cls, frozen=True, config=CONFIG)
    validated: Callable[..., None] = made.__init__

    @wraps(validated)
    def __init__(self: T, *args: Any, **values: Any) -> None:
        try:
            validated(self, *map(_plain, args), **_plain(values))
        except ValidationError as error:
            raise _first_error(made, error) from None

    made.__init__ = __init__
    return made


def from_dict(cls: Any, content: object, where: object) -> Any:
    """Return the settings that a file holds.

    Args:
        cls: A class made by `settings`, or another type that pydantic knows.
        content: What was read, such as the dictionary of a JSON file.
        where: The file, for the error.

    Returns:
        An instance of `cls`. Tables within the content become the settings that their fields name.

    Raises:
        LaraError: "file.content" if a value is missing, unknown or invalid. It names the first one.
    """
    try:
        return TypeAdapter(cls).validate_json(json.dumps(_plain(content)))
    except TypeError as error:  # a value that JSON does not have, such as a tensor
        raise LaraError("file.content", where=str(where), problem=f"{error}.") from None
    except ValidationError as error:
        raise LaraError("file.content", where=str(where), problem=str(_first_error(cls, error))) from None


def to_dict(value: Any) -> dict[str, Any]:
    """Return settings as plain values for a JSON file."""
    return TypeAdapter(type(value)).dump_python(value, mode="json")


def _plain(value: Any) -> Any:
    """Replace NumPy numbers, also within tables and lists, by plain ones."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def _first_error(cls: Any, error: ValidationError) -> LaraError:
    """Return the first problem that pydantic found as one of our errors."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, LaraError):  # raised by a __post_init__
        return cause
    name = ".".join(map(str, first["loc"])) or getattr(cls, "__name__", "the content")
    if first["type"] in ("unexpected_keyword_argument", "unexpected_positional_argument"):
        known = list(_fields(_annotation(cls, first["loc"][:-1])))
        close = difflib.get_close_matches(str(first["loc"][-1]), known, n=1)
        hint = f"Did you mean '{close[0]}'?" if close else f"Known are {', '.join(known)}."
        return InputError("settings.unknown", name=name, hint=hint)
    if first["type"] in ("missing", "missing_argument"):
        return InputError("settings.missing", name=name)
    expected = _expected(_annotation(cls, first["loc"])) or first["msg"]
    return InputError("settings.invalid", name=name, expected=expected, got=abbreviated(first["input"]))


def _annotation(cls: Any, location: tuple[int | str, ...]) -> Any:
    """Follow field names from a class to the annotation of a value within it."""
    annotation = cls
    for name in location:  # numbers and the tags of unions are no fields
        inner = get_args(annotation)[-1] if get_origin(annotation) is dict else annotation
        annotation = _fields(annotation).get(str(name), inner)
    return annotation


def _fields(annotation: Any) -> dict[str, Any]:
    """Return the annotation of each field of the settings that an annotation allows."""
    return {
        field.name: get_type_hints(cls, include_extras=True)[field.name]
        for cls in _types(annotation)
        if dataclasses.is_dataclass(cls)
        for field in dataclasses.fields(cls)
    }


def _types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from _types(inner)


def _expected(annotation: Any) -> str:
    """Return the values that an annotation allows, in words, or nothing if there are no words for it."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        kinds = ["None" if one is NoneType else _expected(one) for one in args]
        return " or ".join(kinds) if all(kinds) else ""
    if choices := [one.words for one in args[1:] if isinstance(one, Choice)]:
        return f"one of {', '.join(choices[0])}"
    if origin is Literal:
        return f"one of {', '.join(map(str, args))}"
    if origin is Annotated and args[0] not in (int, float):
        return _expected(args[0])
    number, bounds = (args[0], args[1:]) if origin is Annotated else (annotation, ())
    if number in (int, float):
        limits = [limit for bound in bounds for limit in getattr(bound, "metadata", [bound])]
        words = [text.format(getattr(limit, name)) for limit in limits for name, text in LIMITS if hasattr(limit, name)]
        return " ".join(["a whole number" if number is int else "a number", " and ".join(words)]).strip()
    return TYPE_NAMES.get(origin or annotation, "")

"""`--config run.toml`: options of a command from a file, a table a command; what the command line says goes before.

[train]
dataset = "cora"
train-on = "all"

`dgl-lara runs config RUN` writes such a file for a run.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from dgl_lara._util.registry import closest
from dgl_lara.cli.options import NonEmptyPath

FILE = NonEmptyPath(dir_okay=False, exists=True, path_type=Path)


def _read(context: click.Context, option: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    command = context.info_name or ""
    try:
        toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ModuleNotFoundError as error:
        raise click.UsageError("--config needs Python 3.11, or the package tomli: pip install tomli") from error
    try:
        tables = toml.loads(path.read_text("utf-8-sig"))  # TOML is UTF-8; some editors put a mark before it
    except (ValueError, OSError) as error:
        raise click.BadParameter(f"{path} is not a TOML file ({error}).") from error
    table = tables.get(command)
    if not isinstance(table, dict):
        has = ", ".join(f"[{name}]" for name in tables) or "nothing"
        raise click.BadParameter(f"{path} must have a table [{command}] for this command (it has {has}).")
    commands = context.parent.command.commands if context.parent else {}  # type: ignore[attr-defined]
    for name in tables:
        if commands and name not in commands:
            raise click.BadParameter(f"{path}: there is no command '{name}'.{closest(name, commands)}")
    known = {
        name.lstrip("-"): parameter
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and parameter.expose_value
        for name in parameter.opts
    }
    taken = {}
    for name, value in table.items():
        if name not in known:
            raise click.BadParameter(f"{path}: [{command}] has no option '{name}'.{closest(name, known)}")
        option = known[name]
        if option.multiple and not isinstance(value, list):
            value = [value]
        if value == []:
            raise click.BadParameter(f"{path}: '{name}' of [{command}] names nothing; leave it out.")
        try:
            taken[option.name] = _typed(value, option.multiple + (option.nargs != 1))
        except TypeError as error:
            raise click.BadParameter(f"{path}: '{name}' of [{command}] must be {error}.") from error
    context.default_map = taken


def _typed(value: object, depth: int) -> Any:
    """As it would be typed on the command line; lists, so deep, where an option takes several."""
    if depth and isinstance(value, list):
        return [_typed(one, depth - 1) for one in value]
    if depth or isinstance(value, dict | list):
        kind = "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a plain value"
        raise TypeError(f"{'a list' if depth else 'a plain value'} (got {kind})")
    return value if isinstance(value, bool) else str(value)


CONFIG = click.Option(
    ["--config"], type=FILE, is_eager=True, expose_value=False, callback=_read,
    help="A .toml file with options of this command.",
)  # fmt: skip


def to_toml(command: str, options: Mapping[str, Any]) -> str:
    """The same, as a file; what is None is left out."""
    lines = [f"{name} = {_value(value)}" for name, value in options.items() if value is not None]
    return "\n".join([f"[{command}]", *lines]) + "\n"


def _value(value: object) -> str:
    """TOML's numbers, truth values and basic strings are written as JSON's."""
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)

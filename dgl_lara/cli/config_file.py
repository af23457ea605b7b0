"""Option `--config run.toml`. The file has a table of options for each command. The command line has priority.

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
from dgl_lara.cli.console import UsageError
from dgl_lara.cli.options import NonEmptyPath

CONFIG_FILE = NonEmptyPath(dir_okay=False, exists=True, path_type=Path)


def _read(context: click.Context, option: click.Parameter, path: Path | None) -> None:
    """Make the values of the file the defaults of the command."""
    if path is None:
        return
    command, tables = context.info_name or "", _tables(path)
    table = tables.get(command)
    if not isinstance(table, dict):
        raise UsageError("config.no_table", path=path, command=command, tables=", ".join(tables) or "nothing")
    commands = context.parent.command.commands if context.parent else {}  # type: ignore[attr-defined]
    for name in tables:
        if commands and name not in commands:
            raise UsageError("config.no_command", path=path, name=name, hint=closest(name, commands))
    options = {
        name.lstrip("-"): parameter
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and parameter.expose_value
        for name in parameter.opts
    }
    context.default_map = {}
    for name, value in table.items():
        if name not in options:
            raise UsageError("config.no_option", path=path, command=command, name=name, hint=closest(name, options))
        one = options[name]
        values = [value] if one.multiple and not isinstance(value, list) else value
        if values == []:
            raise UsageError("config.empty", path=path, command=command, name=name)
        try:
            context.default_map[one.name] = _typed(values, one.multiple + (one.nargs != 1))
        except TypeError:
            raise UsageError("config.type", path=path, command=command, name=name, got=type(value).__name__) from None


def _tables(path: Path) -> dict[str, Any]:
    try:
        toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ModuleNotFoundError as error:
        raise UsageError("config.no_toml") from error
    try:
        return toml.loads(path.read_text("utf-8-sig"))  # TOML is UTF-8, and some editors add a byte order mark
    except (ValueError, OSError) as error:
        raise UsageError("config.not_toml", path=path, problem=error) from error


def _typed(value: object, depth: int) -> Any:
    """Return a value as it would be typed, in lists of this depth."""
    if depth and isinstance(value, list):
        return [_typed(one, depth - 1) for one in value]
    if depth or isinstance(value, dict | list):
        raise TypeError
    return value if isinstance(value, bool) else str(value)


CONFIG = click.Option(
    ["--config"], type=CONFIG_FILE, is_eager=True, expose_value=False, callback=_read,
    help="A .toml file with options of this command.",
)  # fmt: skip


def to_toml(command: str, options: Mapping[str, Any]) -> str:
    """Return options as the content of such a file, without those that are None."""
    lines = [f"{name} = {_toml_value(value)}" for name, value in options.items() if value is not None]
    return "\n".join([f"[{command}]", *lines]) + "\n"


def _toml_value(value: object) -> str:
    """Return a value as JSON, which TOML shares for numbers, booleans and basic strings."""
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)

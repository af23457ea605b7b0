"""Options that several commands share, with argument types and checks of combinations."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dgl_lara._util.writable import obstacle_to_write
from dgl_lara.cli.console import UsageError
from dgl_lara.constants import PLAYERS, RUNS, SPLITS
from dgl_lara.datasets import DATASETS, SOURCES, Options, check_name, is_path
from dgl_lara.errors import InputError, LaraError, message
from dgl_lara.gnns import recipe_for
from dgl_lara.runs.folder import is_run_file

if TYPE_CHECKING:
    import torch

    from dgl_lara.datasets.dataset import Dataset
    from dgl_lara.gnns.base import ShippedModel

MAX_SHARDS = 99_999  # file names sort in order up to here
MEMORY_UNITS = {"GB": 2**30, "MB": 2**20}
INDEX, COUNT, SEED = click.IntRange(0, 10**9), click.IntRange(1, 10**9), click.IntRange(0, 2**32 - 1)


# --- types of arguments


def fail(code: str, param: click.Parameter | None, ctx: click.Context | None, **fields: object) -> None:
    """Raise click's error about one option (exit code 2)."""
    raise click.BadParameter(f"{message(code, **fields)} [{code}]", ctx, param)


class Parsed(click.ParamType):
    """An argument that a function reads.

    Args:
        name: Shown in the help.
        parse: Returns the value of a text, or raises a LaraError.
    """

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self.parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.parse(value.strip()) if isinstance(value, str) else value
        except LaraError as error:
            fail(error.code, param, ctx, **error.fields)


def _parse_memory(text: str) -> int:
    """Return the bytes of a size such as 4GB or 500MB."""
    try:
        size = int(float(text[:-2]) * MEMORY_UNITS[text[-2:].upper()])
    except (ValueError, KeyError, OverflowError):  # infinity too
        size = 0
    if size <= 0:
        raise InputError("option.memory", got=text)
    return size


def _parse_index(text: str) -> int:
    """Return a number from 0 on."""
    if not re.fullmatch("[0-9]{1,9}", text):
        raise InputError("option.index", got=text[:40])
    return int(text)


def _parse_shard(text: str) -> tuple[int, int]:
    """Return number and total of a shard such as 0/4."""
    parts = re.fullmatch("([0-9]{1,5})/([0-9]{1,5})", text)
    number, total = map(int, parts.groups()) if parts else (0, 0)
    if number >= total:
        raise InputError("option.shard", most=MAX_SHARDS, got=text[:40])
    return number, total


def count_or(*words: str) -> Parsed:
    """Return the type of a number from 1 on, or of a word."""

    def parse(text: str) -> int | str:
        if text in words:
            return text
        if not (re.fullmatch("[0-9]{1,18}", text) and int(text) > 0):
            raise InputError("option.count_or_word", words=" or ".join(f"'{word}'" for word in words), got=text[:40])
        return int(text)

    return Parsed("|".join([*words, "integer"]), parse)


class PositiveFloat(click.FloatRange):
    """A finite number above 0."""

    def __init__(self, high: float = 1000.0) -> None:
        super().__init__(0, high, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return number if number == number else fail("option.nan", param, ctx)


class NonEmptyPath(click.Path):
    """A path that is not empty. An empty one comes from an unset shell variable."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "" or "\0" in str(value):
            fail("path.empty", param, ctx, got=str(value))
        return super().convert(value, param, ctx)


class OutputPath(NonEmptyPath):
    """A path that can be written and is no file of a run. This is checked before any work."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        if not (self.allow_dash and str(path) == "-") and (reason := obstacle_to_write(path)):
            fail("path.unwritable", param, ctx, path=path, reason=reason)
        if is_run_file(Path(os.path.realpath(path))):
            fail("path.of_run", param, ctx, path=path, folder=path.parent)
        return path


class _RunFolder(NonEmptyPath):
    """A run folder, or its name in runs/."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if os.path.isfile(value):
            fail("run.is_file", param, ctx, path=value)
        folder = Path(super().convert(value, param, ctx))
        listed = Path(RUNS) / folder
        try:
            return listed if not folder.exists() and (listed / "config.json").is_file() else folder
        except OSError as error:  # the name is too long
            fail("path.unreadable", param, ctx, path=str(folder)[:40], reason=error.strerror)


FILE = NonEmptyPath(dir_okay=False, path_type=Path)
FOLDER = NonEmptyPath(file_okay=False, path_type=Path)
NEW_FILE = OutputPath(dir_okay=False, path_type=Path)
NEW_FOLDER = OutputPath(file_okay=False, path_type=Path)
RUN = _RunFolder(file_okay=False, path_type=Path)
DATASET_NAME = Parsed("name|file", check_name)
MEMORY = Parsed("size", _parse_memory)
SHARD = Parsed("i/n", _parse_shard)
CLASS = Parsed("number|name", lambda text: _parse_index(text) if re.fullmatch("[+-]?[0-9]+", text) else text)
INDEX_OR_FILE = Parsed(
    "number|file", lambda text: Path(text) if text.endswith((".bin", ".npz")) else _parse_index(text)
)


# --- combinations of options


def options_set(besides: Collection[str] = ()) -> list[str]:
    """Return the options set on the command line or in a config file, without defaults.

    Args:
        besides: Names of parameters to leave out.
    """
    context = click.get_current_context()
    params = [param for param in context.command.params if param.expose_value and param.name not in besides]
    default = ParameterSource.DEFAULT
    return [param.opts[0] for param in params if context.get_parameter_source(param.name or "") is not default]


def check_options(
    options: Collection[str],
    one_of: Sequence[str] = (),
    exclusive: Sequence[Sequence[str]] = (),
    requires: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Raise UsageError if options do not fit together.

    Args:
        options: Options that are set.
        one_of: Exactly one of these must be set.
        exclusive: Of each group at most one may be set.
        requires: Each option needs one of the others.
    """
    if one_of and not set(one_of) & set(options):
        raise UsageError("options.missing", names=", ".join(one_of))
    for group in (one_of, *exclusive):
        if len(chosen := [name for name in group if name in options]) > 1:
            raise UsageError("options.exclusive", names=" and ".join(chosen))
    for name, others in (requires or {}).items():
        if name in options and not set(others) & set(options):
            raise UsageError("options.requires", name=name, others=" or ".join(others))


def check_ending(option: str, path: Path, endings: Sequence[str]) -> None:
    """Raise UsageError unless the file name ends in one of these."""
    if path.suffix not in endings:
        raise UsageError("option.ending", option=option, endings=", ".join(endings), got=path.name)


def check_run(folder: Path | None) -> None:
    """Raise UsageError if a folder was named that does not exist. Nothing is loaded for that."""
    if folder is not None and not folder.exists():
        raise UsageError("run.no_folder", folder=folder)


# --- shared options


def apply_options(command: Callable, options: Sequence[Callable]) -> Callable:
    """Decorate a command with options in the order of the help."""
    for option in reversed(options):
        command = option(command)
    return command


def _copied(command: Callable, replacement: Callable) -> Callable:
    """Give a replacement the name, help and options of a command."""
    replacement.__name__, replacement.__doc__ = command.__name__, command.__doc__
    replacement.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    return replacement


def dataset_options(command: Callable, required: bool = True) -> Callable:
    """Add the options of a data set. The command receives them as `options`."""

    def with_options(name: str, data_seed: int, pairs_file: Path | None, **rest: Any) -> Any:
        names = ("source", "undirected", "nodes", "data_dir", "target_type", "relation", "leave_out")
        fields = {name: rest.pop(name) for name in names}
        pairs = pairs_file.resolve() if pairs_file else None
        return command(name=name, options=Options(seed=data_seed, pairs=pairs, **fields), **rest)

    known = f"One of {', '.join(DATASETS)}, or a .npz or .bin file."
    options = [
        click.option("--dataset", "name", type=DATASET_NAME, required=required, help=known),
        click.option("--source", type=click.Choice(SOURCES), default="auto", show_default=True,
                     help="Use generated data, or the authors' original files."),
        click.option("--data-dir", type=NonEmptyPath(path_type=Path),
                     help="Folder with original data. Default is DGL_LARA_DATA, or the cache."),
        click.option("--data-seed", type=SEED, default=0, show_default="0",
                     help="Seed of generated data and random splits."),
        click.option("--undirected", is_flag=True, help="Use every edge in both directions."),
        click.option("--nodes", type=COUNT, help="Size of the data set 'citation'."),
        click.option("--target-type", help="Node type to explain, for a .bin file with several types."),
        click.option("--pairs", "pairs_file", type=FILE, help="Links to explain, u,v a line, for a .bin file."),
        click.option("--relation", help="The relation of the links (with --pairs and several node types)."),
        click.option("--leave-out", is_flag=True, help="Remove edges between the ends of a link (with --pairs)."),
    ]  # fmt: skip
    return apply_options(_copied(command, with_options), options)


def trust_options(command: Callable) -> Callable:
    """Add the options that allow the code of a user's model. The command receives `trust`."""

    def with_options(trusted: bool, own_name: str | None, **rest: Any) -> Any:
        return command(trust=own_name if own_name is not None else trusted, **rest)

    options = [
        click.option("--model", "own_name", metavar="MODULE:FUNCTION", help="Run this code as the model of the run."),
        click.option("--trust", "trusted", is_flag=True, help="Run the code of the model that the run names."),
    ]
    return apply_options(_copied(command, with_options), options)


device_option = click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True, help="Where to compute."
)
memory_option = click.option(
    "--memory", type=MEMORY, help="Working memory, such as 4GB. Default is 70 % of what is free."
)
players_option = click.option(
    "--players", type=click.Choice(PLAYERS), help="Player set to score. Default is the first one of the run."
)
seed_option = click.option("--seed", type=SEED, default=0, show_default="0", help="Seed of every random draw.")


def split_option(help: str, default: str | None = None) -> Callable:
    """Return the option --split."""
    return click.option("--split", type=click.Choice(SPLITS), default=default, show_default=default, help=help)


# --- devices, data sets, models


def choose_device(name: str) -> torch.device:
    """Return the device of --device. Each of several processes has its own."""
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("device.no_cuda")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    rank = os.environ.get("LOCAL_RANK")
    return torch.device("cuda") if rank is None else torch.device("cuda", int(rank))


def load_dataset(name: str, options: Options, device: str) -> Dataset:
    """Load a data set onto the device."""
    from dgl_lara._util.memory import reuse_freed_memory
    from dgl_lara._util.progress import status
    from dgl_lara.datasets import load

    torch_device = choose_device(device)
    with status(f"reading {name}"):
        dataset = load(name, options).to(torch_device)
    reuse_freed_memory(dataset.num_nodes)
    return dataset


def stored_name(name: str) -> str:
    """Return the name of a data set, or the full path of its file, which is valid in any folder."""
    return str(Path(name).resolve()) if is_path(name) else name


def gnn_for(dataset: Dataset, file: Path | None, seed: int) -> tuple[ShippedModel, dict]:
    """Return the model in a file, or the usual one of a data set, which is trained if necessary."""
    from dgl_lara.gnns.checkpoint import load_gnn
    from dgl_lara.gnns.training import get_gnn

    if file:
        model, details = load_gnn(file, dataset)
        return model.to(dataset.device), details
    if dataset.key.get("parts"):
        raise InputError("train.model_missing")
    typed = not dataset.graph.is_homogeneous
    stored = get_gnn(dataset, recipe_for(dataset.name, dataset.task, heterogeneous=typed), seed)
    return stored.model, stored.details

"""What several commands share: types of arguments, options, and how to get a data set, a target, a device."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dgl_lara._util.writable import unwritable
from dgl_lara.cli.console import UsageError
from dgl_lara.constants import PLAYERS, RUNS
from dgl_lara.datasets import DATASETS, SOURCES, Options, check_name, is_path
from dgl_lara.errors import InputError, LaraError
from dgl_lara.gnns import recipe_for
from dgl_lara.runs.folder import is_run_file

if TYPE_CHECKING:
    import torch

    from dgl_lara.datasets.dataset import Dataset
    from dgl_lara.gnns.base import ShippedModel


MOST_SHARDS = 99_999  # their files stand in order up to here


class NonEmptyPath(click.Path):
    """A path; an empty one is a mistake (a shell variable that was not set), not the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "" or "\0" in str(value):
            self.fail(f"must name a file or a folder (got {str(value)!r}).", param, ctx)
        return super().convert(value, param, ctx)


class OutputPath(NonEmptyPath):
    """What will be written; a place where it cannot be is refused before any work."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        if not (self.allow_dash and str(path) == "-") and (sentence := unwritable(path)):
            self.fail(sentence, param, ctx)
        if is_run_file(Path(os.path.realpath(path))):
            self.fail(f"'{path}' is a file of the run in {path.parent}; name another one.", param, ctx)
        return path


class Count(click.IntRange):
    """A whole number within bounds that no list exceeds; digits as people type them."""

    def __init__(self, low: int = 1, high: int = 10**9) -> None:
        super().__init__(low, high)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        is_number = re.fullmatch(r"[+-]?[0-9]{1,18}", str(value).strip())
        if not is_number or not int(self.min or 0) <= int(value) <= int(self.max or 0):
            self.fail(f"must be a whole number from {self.min} to {self.max:,} (got '{str(value)[:40]}').", param, ctx)
        return int(value)


class Rate(click.FloatRange):
    """A number above 0, and no infinity or NaN."""

    def __init__(self, high: float = 1000.0) -> None:
        super().__init__(0, high, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            given = float(value)
        except ValueError:
            given = nan
        if not 0 < given <= float(self.max or 0):
            self.fail(f"must be a number above 0, up to {self.max:,g} (got '{str(value)[:40]}').", param, ctx)
        return given


class NumberOrFile(click.ParamType):
    """A whole number, or the name of a .bin or .npz file."""

    name = "number|file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | Path:
        if isinstance(value, int | Path):
            return value
        if str(value).endswith((".bin", ".npz")):
            return Path(value)
        return Count(0).convert(value, param, ctx)


class ClassName(click.ParamType):
    """A class by its number, or by the name that the data set has for it."""

    name = "number|name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        return Count(0).convert(value, param, ctx) if re.fullmatch(r"[+-]?[0-9]+", str(value).strip()) else str(value)


class ShardOf(click.ParamType):
    """0/4: the first of four."""

    name = "i/n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        parts = re.fullmatch("([0-9]{1,5})/([0-9]{1,5})", value.strip())
        number, of = map(int, parts.groups()) if parts else (0, 0)
        if number >= of:
            expected = f"I/N with I from 0 to N - 1 and N at most {MOST_SHARDS:,}, like 0/4"
            self.fail(f"must be {expected} (got '{value[:40]}').", param, ctx)
        return number, of


FILE = NonEmptyPath(dir_okay=False, path_type=Path)
FOLDER = NonEmptyPath(file_okay=False, path_type=Path)
NEW_FILE = OutputPath(dir_okay=False, path_type=Path)
NEW_FOLDER = OutputPath(file_okay=False, path_type=Path)


class RunFolder(NonEmptyPath):
    """A folder, or its name in runs/ as `dgl-lara runs` lists it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if os.path.isfile(value):
            self.fail(
                f"'{value}' is a file; a run is a folder that `dgl-lara train` writes (see `dgl-lara runs`).",
                param,
                ctx,
            )
        folder = Path(super().convert(value, param, ctx))
        listed = Path(RUNS) / folder
        try:
            return listed if not folder.exists() and (listed / "config.json").is_file() else folder
        except OSError as error:  # longer than any name can be
            self.fail(f"must name a folder ({error.strerror}).", param, ctx)


RUN = RunFolder(file_okay=False, path_type=Path)


def given_options(besides: Container[str]) -> list[str]:
    """Options of this command that were typed, or stand in a settings file: a default is nobody's wish."""
    context = click.get_current_context()
    chosen = [one for one in context.command.params if one.expose_value and one.name not in besides]
    default = ParameterSource.DEFAULT
    return [one.opts[0] for one in chosen if context.get_parameter_source(one.name or "") is not default]


def check_there(run: Path | None) -> None:
    """Before anything is loaded."""
    if run is not None and not run.exists():
        raise UsageError("run.no_folder", folder=run)


class DatasetName(click.ParamType):
    """A registered name or the path of a file; an unknown one gets the list and the closest match."""

    name = "name|file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return check_name(value)
        except LaraError as error:
            self.fail(str(error), param, ctx)


class Memory(click.ParamType):
    """4GB, 500MB: a number of bytes."""

    name = "size"
    UNITS = {"GB": 2**30, "MB": 2**20}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        number, unit = str(value)[:-2], str(value)[-2:].upper()
        try:
            size = int(float(number) * self.UNITS[unit])
        except (ValueError, KeyError, OverflowError):  # infinity too
            size = 0
        if size <= 0:
            self.fail(f"must be a size like 4GB or 500MB (got '{value}').", param, ctx)
        return size


class CountOrWord(click.ParamType):
    """A whole number from 1 on, or a word with a meaning of its own."""

    def __init__(self, *words: str) -> None:
        self.words, self.name = words, f"{'|'.join(words)}|integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value in self.words:
            return value
        if not (re.fullmatch("[0-9]{1,18}", str(value)) and int(value) > 0):
            known = " or ".join(f"'{word}'" for word in self.words)
            self.fail(f"must be {known} or a whole number from 1 on (got '{str(value)[:40]}').", param, ctx)
        return int(value)


def players_option(command: Callable) -> Callable:
    """Which of the explainers that a run holds."""
    words = "Who is scored, where the run holds several kinds. Default: its first."
    return click.option("--players", type=click.Choice(PLAYERS), help=words)(command)


def dataset_options(command: Callable, required: bool = True) -> Callable:
    """The options that go with every --dataset; the command receives them as `options`."""
    known = f"One of {', '.join(DATASETS)}; or a .npz or .bin file."
    path = NonEmptyPath(path_type=Path)
    decorators = [
        click.option("--dataset", "name", type=DatasetName(), required=required, help=known),
        click.option("--source", type=click.Choice(SOURCES), default="auto", show_default=True,
                     help="Generated data, or the authors' original files."),
        click.option("--data-dir", type=path, help="Folder with original data (else DGL_LARA_DATA, else the cache)."),
        click.option("--data-seed", type=Count(0, 2**32 - 1), default=0, show_default="0",
                     help="Seed of generated data and random splits."),
        click.option("--undirected", is_flag=True, help="Use every edge in both directions."),
        click.option("--nodes", type=Count(), help="Size of the data set 'citation'."),
        click.option("--target-type", help="Of a .bin file with several node types: whose nodes are explained."),
        click.option("--pairs", "pairs_file", type=FILE, help="Of a .bin file: links to explain, u,v a line."),
        click.option("--relation", help="With --pairs and several node types: the relation that they stand for."),
        click.option("--leave-out", is_flag=True, help="With --pairs: take edges between their ends out beforehand."),
    ]  # fmt: skip

    def with_options(
        name: str,
        source: str,
        data_dir: Path | None,
        data_seed: int,
        undirected: bool,
        nodes: int | None,
        target_type: str | None,
        pairs_file: Path | None,
        relation: str | None,
        leave_out: bool,
        **rest: Any,
    ) -> Any:
        pairs = pairs_file.resolve() if pairs_file else None
        options = Options(source, data_seed, undirected, nodes, data_dir, target_type, pairs, relation, leave_out)
        return command(name=name, options=options, **rest)

    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    with_options.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for decorate in reversed(decorators):
        with_options = decorate(with_options)
    return with_options


def trust_options(command: Callable) -> Callable:
    """For commands that open a run: its model may be code of somebody else's. The command receives `trust`."""

    def with_options(trusted: bool, own_name: str | None, **rest: Any) -> Any:
        return command(trust=own_name if own_name is not None else trusted, **rest)

    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    with_options.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    trust = click.option("--trust", "trusted", is_flag=True, help="Run the code of the model that the run names.")
    again = click.option(
        "--model", "own_name", metavar="MODULE:FUNCTION", help="The run's model, named again: this code is run instead."
    )
    return again(trust(with_options))


device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where to compute.",
)
seed_option = click.option(
    "--seed", type=Count(0, 2**32 - 1), default=0, show_default="0", help="Seed of everything that is drawn."
)


def choose_device(name: str) -> torch.device:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise click.UsageError(
            "--device cuda needs a CUDA device and a CUDA build of torch and dgl; none is here. Use --device cpu."
        )
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    own = os.environ.get("LOCAL_RANK")  # of several processes each has its own
    return torch.device("cuda") if own is None else torch.device("cuda", int(own))


def load_dataset(name: str, options: Options, device: str) -> Dataset:
    from dgl_lara._util.memory import reuse_freed_memory
    from dgl_lara._util.progress import working
    from dgl_lara.datasets import load

    where = choose_device(device)
    with working(f"reading {name}"):
        dataset = load(name, options).to(where)
    reuse_freed_memory(dataset.num_nodes)
    return dataset


def stored_name(name: str) -> str:
    """A data set's name, or the full path of its file, so that a run can be opened from anywhere."""
    return str(Path(name).resolve()) if is_path(name) else name


def target_for(dataset: Dataset, target_file: Path | None, seed: int) -> tuple[ShippedModel, dict]:
    """The model named by --target, or the stored one of this data set, trained first where there is none."""
    from dgl_lara.gnns.checkpoint import load_gnn
    from dgl_lara.gnns.training import get_gnn

    if target_file:
        model, details = load_gnn(target_file, dataset)
        return model.to(dataset.device), details
    if dataset.key.get("parts"):
        raise InputError("name the model that is explained, --target or --model: none is trained on a graph in parts.")
    typed = not dataset.graph.is_homogeneous
    stored = get_gnn(dataset, recipe_for(dataset.name, dataset.task, heterogeneous=typed), seed)
    return stored.model, stored.details

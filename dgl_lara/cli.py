"""The `dgl-lara` command. A command parses, calls and prints; heavy imports happen inside, so --help is instant."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dgl_lara import __version__
from dgl_lara.datasets import DATASETS, SOURCES, Options, check_name
from dgl_lara.errors import LaraError
from dgl_lara.targets import ARCHITECTURES, PAPER_ACCURACY, recipe_for

if TYPE_CHECKING:
    import torch

    from dgl_lara.datasets.dataset import Dataset

FILE = click.Path(dir_okay=False, path_type=Path)


class DatasetName(click.ParamType):
    """A registered name or the path of a file; an unknown one gets the list and the closest match."""

    name = "name|file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return check_name(value)
        except LaraError as error:
            self.fail(str(error), param, ctx)


class Command(click.Group):
    """Turns our errors into one sentence and an exit code, and Ctrl-C into a quiet end."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LaraError as error:
            click.echo(f"Error: {error}", err=True)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            sys.exit(130)


@click.group(cls=Command, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="dgl-lara")
def main() -> None:
    """Explain any graph neural network in one feed-forward pass."""


def dataset_options(command: Callable) -> Callable:
    """The options that go with every --dataset; the command receives them as `options`."""
    known = f"One of {', '.join(DATASETS)}; or a .npz or .bin file."
    path = click.Path(path_type=Path)
    decorators = [
        click.option("--dataset", "name", type=DatasetName(), required=True, help=known),
        click.option("--source", type=click.Choice(SOURCES), default="auto", show_default=True,
                     help="Generated data, or the authors' original files."),
        click.option("--data-dir", type=path, help="Folder with original data (else DGL_LARA_DATA, else the cache)."),
        click.option("--data-seed", type=int, default=0, show_default=True,
                     help="Seed of generated data and random splits."),
        click.option("--undirected", is_flag=True, help="Use every edge in both directions."),
        click.option("--nodes", type=click.IntRange(min=1), help="Size of the data set 'citation'."),
    ]  # fmt: skip

    def with_options(
        name: str,
        source: str,
        data_dir: Path | None,
        data_seed: int,
        undirected: bool,
        nodes: int | None,
        **rest: Any,
    ) -> Any:
        return command(name=name, options=Options(source, data_seed, undirected, nodes, data_dir), **rest)

    with_options.__name__, with_options.__doc__ = command.__name__, command.__doc__
    with_options.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for decorate in reversed(decorators):
        with_options = decorate(with_options)
    return with_options


device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where to compute.",
)
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything that is drawn.")


def choose_device(name: str) -> torch.device:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise click.UsageError(
            "--device cuda needs a CUDA device and a CUDA build of torch and dgl; none is here. Use --device cpu."
        )
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def load_dataset(name: str, options: Options, device: str) -> Dataset:
    from dgl_lara.datasets import load

    return load(name, options).to(choose_device(device))


# --- datasets ---------------------------------------------------------------------------------------------------


@main.command()
@click.option("--data-dir", type=click.Path(path_type=Path), help="Folder with original data.")
def datasets(data_dir: Path | None) -> None:
    """List the data sets: size, ground truth, where each comes from, whether it is present here."""
    from dgl_lara.datasets.storage import find_files
    from dgl_lara.reports.tables import text_table

    def present(name: str) -> str:
        entry = DATASETS[name]
        found = find_files(entry.files, data_dir) if entry.files else None
        if entry.generated:
            return "yes, and the original" if found else "yes"
        return "yes" if found else "no (download)"

    header = [
        "name",
        "task",
        "graphs",
        "nodes",
        "edges",
        "labels",
        "features",
        "ground truth",
        "origin",
        "present",
    ]
    rows = [
        [name, e.task, e.graphs, e.nodes, e.edges, e.labels, e.features, e.truth, e.origin, present(name)]
        for name, e in DATASETS.items()
    ]
    click.echo(text_table(header, rows))
    click.echo("\nYour own graph: --dataset file.npz (src, dst, x, y and optional masks) or a DGL file.bin.")


# --- target -----------------------------------------------------------------------------------------------------


@main.command()
@dataset_options
@click.option("--target", "target_file", type=FILE, help="Report on this model (.pt or .npz) instead of training one.")
@click.option("--architecture", type=click.Choice(ARCHITECTURES), help="Default: the paper's choice for the data set.")
@click.option("--readout", type=click.Choice(["max", "max-mean"]), help="Pooling of a graph task's model.")
@click.option("--epochs", type=click.IntRange(min=1), help="At the most; training stops early on validation.")
@click.option("--lr", type=click.FloatRange(min=0, min_open=True), help="Learning rate of Adam.")
@click.option("--out", type=FILE, help="Store the model here too.")
@seed_option
@device_option
def target(
    name: str,
    options: Options,
    target_file: Path | None,
    seed: int,
    device: str,
    out: Path | None,
    **changes: Any,
) -> None:
    """Train a target model (or load one) and print its accuracy beside the paper's."""
    from dgl_lara.reports.tables import text_table
    from dgl_lara.targets.checkpoint import load_target, save_target
    from dgl_lara.targets.training import accuracy, get_target

    dataset = load_dataset(name, options, device)
    if target_file:
        model, _ = load_target(target_file, dataset)
        model, path = model.to(dataset.features.device), target_file
    else:
        recipe = recipe_for(dataset.name, dataset.task)
        recipe = replace(recipe, **{field: value for field, value in changes.items() if value is not None})
        model, path = get_target(dataset, recipe, seed)
    reached = accuracy(model, dataset)
    if out:
        save_target(model, out, {"dataset": dataset.name, "source": dataset.source, "seed": seed, **reached})
        path = out
    config = model.config
    click.echo(
        f"{dataset.name} ({dataset.source}): {config.architecture}, {config.layers} layers, {config.hidden} hidden"
    )
    rows: list[list[object]] = [["this model", *reached.values()]]
    if dataset.name in PAPER_ACCURACY:
        rows.append(["the paper", *PAPER_ACCURACY[dataset.name]])
    click.echo(text_table(["accuracy", "train", "validation", "test"], rows))
    click.echo(f"stored in {path}")

"""The `dgl-lara` command. A command parses, calls and prints; heavy imports happen inside, so --help is instant."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dgl_lara import __version__
from dgl_lara.choices import EMBEDDINGS, GATES, INPUTS, METRICS, OBJECTIVES, PRESETS, VALUES
from dgl_lara.datasets import DATASETS, SOURCES, Options, check_name, is_file_name
from dgl_lara.errors import LaraError
from dgl_lara.targets import ARCHITECTURES, PAPER_ACCURACY, recipe_for

if TYPE_CHECKING:
    import torch

    from dgl_lara.datasets.dataset import Dataset
    from dgl_lara.targets.models import TargetModel

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


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
        except OSError as error:
            click.echo(f"Error: {error.filename or 'a file'}: {error.strerror or error}.", err=True)
            sys.exit(1)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            sys.exit(130)


@click.group(cls=Command, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="dgl-lara")
def main() -> None:
    """Explain any graph neural network in one feed-forward pass."""


def dataset_options(command: Callable, required: bool = True) -> Callable:
    """The options that go with every --dataset; the command receives them as `options`."""
    known = f"One of {', '.join(DATASETS)}; or a .npz or .bin file."
    path = click.Path(path_type=Path)
    decorators = [
        click.option("--dataset", "name", type=DatasetName(), required=required, help=known),
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
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default="0", help="Seed of everything that is drawn."
)


def choose_device(name: str) -> torch.device:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise click.UsageError(
            "--device cuda needs a CUDA device and a CUDA build of torch and dgl; none is here. Use --device cpu."
        )
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def load_dataset(name: str, options: Options, device: str) -> Dataset:
    from dgl_lara.datasets import load
    from dgl_lara.memory import reuse_freed_memory

    reuse_freed_memory()
    where = choose_device(device)
    return load(name, options).to(where)


# --- datasets ---------------------------------------------------------------------------------------------------


@main.command()
@click.option(
    "--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder with original data."
)
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
    if path.is_file():
        click.echo(f"stored in {path}")


def stored_name(name: str) -> str:
    """A data set's name, or the full path of its file, so that a run can be opened from anywhere."""
    return str(Path(name).resolve()) if is_file_name(name) else name


def target_for(dataset: Dataset, target_file: Path | None, seed: int) -> tuple[TargetModel, dict]:
    """The model named by --target, or the stored one of this data set, trained first where there is none."""
    from dgl_lara.targets.checkpoint import load_target
    from dgl_lara.targets.training import accuracy, get_target

    if target_file:
        model, details = load_target(target_file, dataset)
        return model.to(dataset.features.device), details
    model, _ = get_target(dataset, recipe_for(dataset.name, dataset.task), seed)
    return model, {"dataset": dataset.name, "source": dataset.source, "seed": seed, **accuracy(model, dataset)}


# --- train ------------------------------------------------------------------------------------------------------


class CountOrWord(click.ParamType):
    """A whole number from 1 on, or a word with a meaning of its own."""

    def __init__(self, *words: str) -> None:
        self.words, self.name = words, f"{'|'.join(words)}|integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value in self.words:
            return value
        if not (str(value).isdigit() and int(value) > 0):
            known = " or ".join(f"'{word}'" for word in self.words)
            self.fail(f"must be {known} or a whole number from 1 on (got '{value}').", param, ctx)
        return int(value)


def training_options(command: Callable) -> Callable:
    """One option for each choice of `TrainingConfig`; what is not given comes from the preset."""
    natural = click.IntRange(min=1)
    decorators = [
        click.option("--preset", type=click.Choice(PRESETS), default="default", show_default=True,
                     help="Where all options below start from: what measured best, or the paper."),
        click.option("--objective", type=click.Choice(OBJECTIVES), help="What teaches the explainer."),
        click.option("--gate", type=click.Choice(GATES), help="How a score knows where the player stands."),
        click.option("--inputs", type=click.Choice(INPUTS), help="What the explainer sees of a node."),
        click.option("--embedding", type=click.Choice(EMBEDDINGS), help="Separate p and t, or one for both."),
        click.option("--train-on", type=click.Choice(["train", "all"]),
                     help="Targets to learn from (no label is used)."),
        click.option("--batch-size", type=CountOrWord("all"), help="Targets a step."),
        click.option("--dim", type=natural, help="Length of p and t."),
        click.option("--hidden", type=natural, help="Width of the encoder."),
        click.option("--layers", type=click.IntRange(min=0), help="GraphConv layers; 0 is an MLP. Default: K."),
        click.option("--masks", type=natural, help="Coalition pairs drawn a step."),
        click.option("--epochs", type=natural, help="Passes over the training targets."),
        click.option("--lr", type=click.FloatRange(min=0, min_open=True), help="Learning rate of Adam."),
    ]  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


@main.command()
@partial(dataset_options, required=False)
@click.option("--target", "target_file", type=FILE, help="Model to explain (.pt or .npz); else one is trained.")
@click.option("--hops", type=CountOrWord("auto", "measure"), default="auto", show_default=True,
              help="K, how far the model looks: what it declares, Eq. 13 on sampled nodes, or a number.")  # fmt: skip
@click.option("--value", type=click.Choice(VALUES), default="logit", show_default=True, help="The number explained.")
@training_options
@click.option("--out", type=FOLDER, help="Run folder. Default: runs/<dataset>-<time>.")
@click.option("--resume", type=FOLDER, help="Continue this run; all settings come from it.")
@seed_option
@device_option
def train(
    name: str | None,
    options: Options,
    target_file: Path | None,
    hops: int | str,
    value: str,
    preset: str,
    out: Path | None,
    resume: Path | None,
    seed: int,
    device: str,
    **changes: Any,
) -> None:
    """Train an explainer for a model on a data set."""
    from dgl_lara import training
    from dgl_lara.lara import choose_hops
    from dgl_lara.runs import RunConfig, create_run, open_run
    from dgl_lara.value import Game

    if (name is None) == (resume is None):
        raise click.UsageError("give either --dataset (a new run) or --resume (go on with one).")
    if resume:
        extra = [field for field, given in {**changes, "target": target_file, "out": out}.items() if given is not None]
        if extra:
            raise click.UsageError(
                f"--resume takes all settings from the run; leave out --{extra[0].replace('_', '-')}."
            )
        run = open_run(resume, choose_device(device))
        state = run.last_checkpoint()
    else:
        dataset = load_dataset(str(name), options, device)
        changes["batch_size"] = training.ALL if changes["batch_size"] == "all" else changes["batch_size"]
        given = {field: value for field, value in changes.items() if value is not None}
        count = len(dataset.split(changes["train_on"] or "train"))
        base = training.paper(dataset.task, seed) if preset == "paper" else training.default(dataset.task, count, seed)
        config = replace(base, **given)
        model, details = target_for(dataset, target_file, seed)
        how = {"auto": "declared by the model", "measure": "measured, Eq. 13"}.get(str(hops), "given")
        hops = choose_hops(model, dataset.graph, dataset.features, dataset.task, hops)
        game = Game(model, dataset.graph, dataset.features, dataset.task, hops, value)
        run = create_run(
            out, RunConfig(stored_name(str(name)), options, hops, value, config, preset), dataset, model, game, details
        )
        click.echo(f"K = {hops} ({how})")
        state = None
    training_config, dataset = run.config.training, run.dataset
    click.echo(f"{dataset.name} ({dataset.source}); run folder {run.folder}")
    try:
        ended = training.train(
            run.game, training_config, dataset.split(training_config.train_on), dataset.val, state, run.checkpoint
        )
    except KeyboardInterrupt:
        click.echo(f"Interrupted; nothing is lost. Go on with: dgl-lara train --resume {run.folder}", err=True)
        sys.exit(130)
    click.echo(f"validation agreement (R2 with phi): {ended.best:.3f} after {ended.step} steps")
    click.echo(f"next: dgl-lara eval --run {run.folder} --metric fidelity")


# --- eval -------------------------------------------------------------------------------------------------------


@main.command("eval")
@click.option("--run", "folder", type=FOLDER, help="Run to evaluate. Default: the newest.")
@click.option("--dataset", "name", type=DatasetName(), help="The newest run of this data set.")
@click.option("--metric", type=click.Choice([*METRICS, "all"]), default="fidelity", show_default=True)
@click.option("--split", type=click.Choice(["train", "val", "test"]), default="test", show_default=True)
@click.option("--targets", type=click.IntRange(min=1), default=1000, show_default=True, help="At most so many.")
@click.option("--pairs", type=click.IntRange(min=0), help="Coalition pairs of the 'sampled' row. [300; graphs: 100]")
@click.option("--reference-pairs", type=click.IntRange(min=100), default=2000, show_default=True,
              help="Coalition pairs of the phi that agreement is measured against.")  # fmt: skip
@click.option("--json", "json_file", type=FILE, help="Write the figures here too.")
@seed_option
@device_option
def evaluate(
    folder: Path | None,
    name: str | None,
    metric: str,
    split: str,
    targets: int,
    pairs: int | None,
    reference_pairs: int,
    json_file: Path | None,
    seed: int,
    device: str,
) -> None:
    """Measure a trained explainer; tables, CSV and JSON, and a plot of fidelity against sparsity."""
    from dgl_lara import evaluation
    from dgl_lara.reports.results import print_table, write_results
    from dgl_lara.runs import newest_run, open_run

    if folder and name:
        raise click.UsageError("give --run or --dataset, not both.")
    run = open_run(folder or newest_run(name and stored_name(name)), choose_device(device))
    dataset, game = run.dataset, run.game
    subject = evaluation.Subject(
        game=game,
        explainer=run.explainer(),
        inputs=run.config.training.inputs,
        targets=evaluation.some_targets(dataset.split(split), targets, seed),
        motif=dataset.motif,
        pairs=(300 if dataset.task == "node" else 100) if pairs is None else pairs,
        reference_pairs=reference_pairs,
        seed=seed,
    )
    what = f"{dataset.name} ({dataset.source}), {len(subject.targets)} {split} {dataset.task}s, value: {game.value}"
    click.echo(f"{what}; run {run.folder}")
    results = {}
    for each in METRICS if metric == "all" else (metric,):
        if each == "latency" and "throughput" in results:
            continue  # one table shows both
        results[each] = evaluation.evaluate(subject, each)
        click.echo(f"\n{each}")
        click.echo(print_table(each, results[each]))
    stem = "eval" if split == "test" else f"eval-{split}"
    written = write_results(results, run.folder, stem, what, json_file)
    click.echo("\nwritten: " + ", ".join(map(str, written)))


# --- explain ----------------------------------------------------------------------------------------------------


@main.command("explain")
@click.option("--run", "folder", type=FOLDER, help="Run to explain with. Default: the newest.")
@click.option("--all", "everything", is_flag=True, help="Explain every node (or graph).")
@click.option("--split", type=click.Choice(["train", "val", "test"]), help="Explain this split.")
@click.option("--nodes", "nodes_file", type=FILE, help="Explain the numbers in this file, one a line.")
@click.option("--top", type=CountOrWord("all"), default=20, show_default=True, help="Players kept of each target.")
@click.option("--out", type=FILE, required=True, help="A .parquet, .csv or .jsonl file.")
@device_option
def explain_command(
    folder: Path | None,
    everything: bool,
    split: str | None,
    nodes_file: Path | None,
    top: int | str,
    out: Path,
    device: str,
) -> None:
    """Explain many nodes or graphs at once and write their most important players to a file."""
    import time

    from dgl_lara.bulk import BulkExplainer
    from dgl_lara.export import explain_to_file, read_targets
    from dgl_lara.memory import reuse_freed_memory
    from dgl_lara.runs import newest_run, open_run, weights_hash

    if sum([everything, split is not None, nodes_file is not None]) != 1:
        raise click.UsageError("say what to explain: --all, --split or --nodes, one of them.")
    reuse_freed_memory()
    started = time.monotonic()
    run = open_run(folder or newest_run(), choose_device(device))
    explainer, training = run.explainer(), run.config.training
    targets = read_targets(nodes_file).to(run.game.features.device) if nodes_file else run.dataset.split(split or "all")
    about = {
        "run": run.folder.name,
        "dataset": run.dataset.name,
        "source": run.dataset.source,
        "players": f"{run.config.hops}-hop in-neighbourhood with the target"
        if run.game.task == "node"
        else "all nodes",
        "value": run.game.value,
        "gate": explainer.config.gate,
        "seed": training.seed,
        "model": weights_hash(run.target),
        "explainer": weights_hash(explainer),
    }
    bulk = BulkExplainer(explainer, run.game, run.embeddings(explainer))
    count = explain_to_file(bulk, targets, None if top == "all" else int(top), out, about)
    spent = time.monotonic() - started
    click.echo(f"{len(targets):,} explanations, {count:,} rows in {out}; {spent:.1f} s in all, loading included")

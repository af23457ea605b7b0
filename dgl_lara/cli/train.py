"""`dgl-lara train`: make an explainer for a model on a data set."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from dgl_lara.choices import EMBEDDINGS, GATES, INPUTS, OBJECTIVES, PRESETS, VALUES
from dgl_lara.cli.options import (
    FILE,
    FOLDER,
    CountOrWord,
    Memory,
    choose_device,
    dataset_options,
    device_option,
    load_dataset,
    seed_option,
    stored_name,
    target_for,
)
from dgl_lara.datasets import Options


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
        click.option("--targets", type=natural, help="Learn from so many of them, drawn at random. Default: all."),
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


@click.command()
@partial(dataset_options, required=False)
@click.option("--target", "target_file", type=FILE, help="Model to explain (.pt or .npz); else one is trained.")
@click.option("--graph", "graph_file", type=FILE, help="Your own graph, .bin or .npz; the same as --dataset FILE.")
@click.option("--model", "own_name", metavar="MODULE:FUNCTION", help="Your own model: the function that builds it.")
@click.option("--weights", "weights_file", type=FILE, help="Its weights, a state dict.")
@click.option("--hops", type=CountOrWord("auto", "measure"), default="auto", show_default=True,
              help="K, how far the model looks: what it declares, Eq. 13 on sampled nodes, or a number.")  # fmt: skip
@click.option("--value", type=click.Choice(VALUES), default="logit", show_default=True, help="The number explained.")
@training_options
@click.option("--out", type=FOLDER, help="Run folder. Default: runs/<dataset>-<time>.")
@click.option("--resume", type=FOLDER, help="Continue this run; all settings come from it.")
@click.option("--memory", type=Memory(), help="Working memory to keep to, like 4GB. [70 % of what is free]")
@seed_option
@device_option
def train(
    name: str | None,
    options: Options,
    target_file: Path | None,
    graph_file: Path | None,
    own_name: str | None,
    weights_file: Path | None,
    hops: int | str,
    value: str,
    preset: str,
    out: Path | None,
    resume: Path | None,
    memory: int | None,
    seed: int,
    device: str,
    **changes: Any,
) -> None:
    """Train an explainer for a model on a data set."""
    from dgl_lara.game.game import Game
    from dgl_lara.lara import choose_hops
    from dgl_lara.model.own_model import find_model, open_model
    from dgl_lara.runs import RunConfig, create_run, open_run
    from dgl_lara.training import loop
    from dgl_lara.utils.memory import most_of_what_is_free

    if graph_file and name:
        raise click.UsageError("give --graph or --dataset, not both.")
    name = str(graph_file.resolve()) if graph_file else name
    if (name is None) == (resume is None):
        raise click.UsageError("give either --dataset or --graph (a new run) or --resume (go on with one).")
    if own_name and target_file:
        raise click.UsageError("give --model or --target, not both.")
    if weights_file and not own_name:
        raise click.UsageError("--weights goes with --model, the function that builds the model they belong to.")
    memory = memory or most_of_what_is_free()
    if resume:
        fixed = {**changes, "target": target_file, "model": own_name, "out": out}
        extra = [field for field, given in fixed.items() if given is not None]
        if extra:
            raise click.UsageError(
                f"--resume takes all settings from the run; leave out --{extra[0].replace('_', '-')}."
            )
        run = open_run(resume, choose_device(device), memory)
        state = run.last_checkpoint()
    else:
        dataset = load_dataset(str(name), options, device)
        changes["batch_size"] = loop.ALL if changes["batch_size"] == "all" else changes["batch_size"]
        given = {field: value for field, value in changes.items() if value is not None}
        count = len(dataset.split(changes["train_on"] or "train"))
        base = loop.paper(dataset.task, seed) if preset == "paper" else loop.default(dataset.task, count, seed)
        config = replace(base, **given)
        own = find_model(own_name) if own_name else None
        model: Any
        details: dict = {}
        if own:
            model = open_model(own, weights_file, dataset)
            if not weights_file:
                click.echo(f"no --weights: the model is explained as {own_name} returns it")
        else:
            model, details = target_for(dataset, target_file, seed)
        if hops == "auto" and not hasattr(model, "num_hops"):
            hops = "measure"
        how = {"auto": "declared by the model", "measure": "measured, Eq. 13"}.get(str(hops), "given")
        if hops == "measure" and dataset.task == "graph":
            how = "the explainer's depth; every node of a graph is a player"
        hops = choose_hops(model, dataset.graph, dataset.features, dataset.task, hops)
        game = Game(model, dataset.graph, dataset.features, dataset.task, hops, value)
        needed = loop.full_graph_bytes(game, config)
        if config.batch_size == loop.ALL and changes["batch_size"] is None and needed > memory:
            config = replace(config, **{**loop.MINI_BATCHES, **given})
            click.echo(
                f"mini-batches of {config.batch_size} from {config.targets:,} targets: the whole graph at once needs "
                f"about {needed >> 30} GB; --memory or --batch-size say otherwise"
            )
        run = create_run(
            out,
            RunConfig(stored_name(str(name)), options, hops, value, config, preset, own),
            dataset,
            model,
            game,
            details,
        )
        click.echo(f"K = {hops} ({how})")
        state = None
    training_config, dataset = run.config.training, run.dataset
    click.echo(f"{dataset.name} ({dataset.source}); run folder {run.folder}")
    try:
        ended = loop.train(
            run.game, training_config, dataset.split(training_config.train_on), dataset.val, state, run.checkpoint
        )
    except KeyboardInterrupt:
        click.echo(f"Interrupted; nothing is lost. Go on with: dgl-lara train --resume {run.folder}", err=True)
        sys.exit(130)
    run.keep_answer()
    click.echo(f"validation agreement ({ended.judged_by}): {ended.best:.3f} after {ended.step} steps")
    click.echo(f"next: dgl-lara eval --run {run.folder} --metric fidelity")

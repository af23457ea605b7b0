"""Command `dgl-lara target`. Train a model to explain, or report on one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dgl_lara.cli.console import echo
from dgl_lara.cli.options import (
    COUNT,
    FILE,
    NEW_FILE,
    PositiveFloat,
    dataset_options,
    device_option,
    load_dataset,
    seed_option,
)
from dgl_lara.datasets import Options
from dgl_lara.gnns import ALL_ARCHITECTURES, PAPER_ACCURACY, recipe_for


@click.command()
@dataset_options
@click.option("--target", "target_file", type=FILE, help="Report on this model (.pt or .npz) instead of training one.")
@click.option("--architecture", type=click.Choice(ALL_ARCHITECTURES), help="Default is the data set's first choice.")
@click.option("--readout", type=click.Choice(["max", "max-mean"]), help="Pooling of a graph task's model.")
@click.option("--epochs", type=COUNT, help="Epochs, at most. Training stops early on validation.")
@click.option("--lr", type=PositiveFloat(), help="Learning rate of Adam.")
@click.option("--out", type=NEW_FILE, help="Store the model in this file too.")
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
    """Train a model to explain (or load one) and print its accuracy next to the paper's."""
    from dgl_lara._util.tables import text_table
    from dgl_lara.gnns.checkpoint import load_gnn, save_gnn
    from dgl_lara.gnns.ranking import pair_scores, popularity, ranking_quality
    from dgl_lara.gnns.recommender import Recommender
    from dgl_lara.gnns.training import accuracy, get_gnn

    dataset, is_usual = load_dataset(name, options, device), True
    if target_file:
        model, path = load_gnn(target_file, dataset)[0].to(dataset.device), target_file
        reached = accuracy(model, dataset)
    else:
        typed = not dataset.graph.is_homogeneous
        recipe = recipe_for(dataset.name, dataset.task, changes.pop("architecture"), typed)
        recipe = replace(recipe, **{field: value for field, value in changes.items() if value is not None})
        is_usual = recipe == recipe_for(dataset.name, dataset.task, heterogeneous=typed)
        model, path, details = get_gnn(dataset, recipe, seed)
        reached = {part: details[part] for part in ("train", "val", "test")}
    if out:
        save_gnn(model, out, {"dataset": dataset.name, "source": dataset.source, "seed": seed, **reached})
        path = out
    config = model.config
    echo(f"{dataset.name} ({dataset.source}): {config.architecture}, {config.layers} layers, {config.hidden} hidden")
    rows: list[list[object]] = [["this model", *reached.values()]]
    if dataset.name in PAPER_ACCURACY:
        rows.append(["the paper", *PAPER_ACCURACY[dataset.name]])
    share = "accuracy" if dataset.pairs is None else "among the first 20"
    echo(text_table([share, "train", "validation", "test"], rows))
    if dataset.pairs is not None and isinstance(model, Recommender):
        ranked = {"this model": pair_scores(model, dataset), "popularity": popularity(dataset)}
        quality = {name: ranking_quality(scores, dataset.pairs) for name, scores in ranked.items()}
        rows = [[name, *figures.values()] for name, figures in quality.items()]
        echo(text_table(["all pairs held back", *quality["popularity"]], rows))
    if path.is_file():
        use = "" if is_usual else f"; to explain it, use train --target {path}"
        echo(f"stored in {path}{use}")

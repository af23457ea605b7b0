"""Accuracy of the target models, mean and deviation over seeds, with the paper's: the table in docs/results.md.

python experiments/target_accuracy.py [DATASET ...] [--seeds 3] [--epochs N] [--data-dir DIR]
"""

from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from dgl_lara.datasets import Options, load
from dgl_lara.gnns import PAPER_ACCURACY, recipe_for
from dgl_lara.gnns.training import accuracy, get_gnn


def reached(dataset, seeds, epochs=None):
    """Return (seeds, 3) accuracy on training, validation and test. `epochs` limits those of the recipe."""
    usual = recipe_for(dataset.name, dataset.task)
    recipe = replace(usual, epochs=epochs or usual.epochs)
    return np.array([list(accuracy(get_gnn(dataset, recipe, seed)[0], dataset).values()) for seed in range(seeds)])


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seeds", default=3, show_default=True)
@click.option("--epochs", type=int, help="Of training, at most; otherwise those of the recipe.")
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(names: tuple[str, ...], seeds: int, epochs: int | None, data_dir: Path | None) -> None:
    click.echo("| data set | data | train | validation | test | test, the paper |")
    click.echo("|---|---|---|---|---|---|")
    for name in names or PAPER_ACCURACY:
        dataset = load(name, Options(data_dir=data_dir))
        found = reached(dataset, seeds, epochs)
        cells = [f"{mean:.3f} ± {std:.3f}" for mean, std in zip(found.mean(0), found.std(0), strict=True)]
        paper = f"{PAPER_ACCURACY[name][2]:.2f}" if name in PAPER_ACCURACY else "-"
        click.echo(f"| {name} | {dataset.source} | {' | '.join(cells)} | {paper} |")


if __name__ == "__main__":
    main()

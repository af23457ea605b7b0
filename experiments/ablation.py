"""Ablation of the default settings: agreement with phi on test targets when one part is changed.

    python experiments/ablation.py [DATASET ...] [--steps 400] [--targets 200] [--data-dir DIR]

It uses one seed and short training, so differences below .02 mean nothing.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from common import setting

from dgl_lara import LARA
from dgl_lara._util.memory import reuse_freed_memory
from dgl_lara._util.randomness import sample_targets
from dgl_lara.metrics.agreement import agreement
from dgl_lara.metrics.common.reference import reference
from dgl_lara.training.config import default

NAMES = ("ba-community", "mutag")
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "plain encoder (the paper's)": {"encoder": "plain", "hidden": 20},
    "predicted class only": {"all_classes": False},
    "node features as the only inputs": {"inputs": "features"},
    "single embedding": {"embedding": "single"},
    "no gate": {"gate": "none"},
    "hop gate": {"gate": "hop"},
    "0 layers (MLP)": {"layers": 0},
    "1 layer": {"layers": 1},
    "5 layers": {"layers": 5},
    "dim 10": {"dim": 10},
    "dim 40": {"dim": 40},
    "2 masks a step": {"masks": 2},
    "a third of the learning rate": {"lr": None},
}
NODE_ONLY = ("no gate", "hop gate")


@click.command()
@click.argument("names", nargs=-1)
@click.option("--steps", default=400, show_default=True)
@click.option("--targets", "most", default=200, show_default=True, help="Test targets, at most.")
@click.option("--reference-pairs", default=2000, show_default=True, help="Coalition pairs of phi.")
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(names, steps, most, reference_pairs, data_dir):
    reuse_freed_memory()
    click.echo("| data | variant | R² | rank correlation |\n|---|---|---|---|")
    for name in names or NAMES:
        dataset, game = setting(name, data_dir)
        targets = sample_targets(dataset.test, most, 0)
        against = reference(game, targets, reference_pairs, 0)
        base = replace(default(dataset.task, len(dataset.train)), steps=steps)
        for variant, changes in VARIANTS.items():
            if not game.task.has_distances and variant in NODE_ONLY:
                continue
            changes = {"lr": base.lr / 3} if "lr" in changes else changes
            lara = LARA.of_game(game, replace(base, **changes)).fit(dataset.train, dataset.val)
            figures = agreement(lara.explain(targets), against)
            click.echo(f"| {name} | {variant} | {figures['R2 corrected']:.3f} | {figures['rank correlation']:.3f} |")


if __name__ == "__main__":
    main()

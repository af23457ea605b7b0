"""Compare the indices: Banzhaf, Shapley and p-biased values, each with LARA trained for it.

    python experiments/indices.py [NAME ...] [--index shapley ...] [--split val] [--seeds 3] [--data-dir DIR]

Agreement is with phi of the row's own index, over the neighbours. AUC compares signed scores of motif nodes with those
of other nodes, for LARA and for phi itself. Delta kept is fidelity with the target kept. "outside" is the share of
f's answers under coalitions that lie outside the middle 98 % of its answers on full graphs, by class.
"""

import time
from dataclasses import replace
from pathlib import Path

import click
import pandas as pd
import torch
from common import RESULTS, setting
from neighbours import figures, trust, truth

from dgl_lara import LARA
from dgl_lara._util.atomic import atomic_write
from dgl_lara._util.randomness import generator, sample_targets
from dgl_lara._util.tables import markdown_table
from dgl_lara.baselines.random import Random
from dgl_lara.game.game import Game
from dgl_lara.metrics.auc import auc
from dgl_lara.training.config import default

NAMES = ("ba-shapes", "ba-community", "tree-cycles", "ba-2motifs", "mutag")
COLUMNS = ("R2, neighbours", "R2", "AUC", "Delta kept", "Delta paper", "largest gap", "nodes f saw")


def outside_range(game, masks=32):
    """Return the share of f's answers under coalitions that lie outside its usual range on full graphs."""
    full = game.full_values[: game.num_targets]
    low, high = (torch.quantile(full, level, dim=0) for level in (0.01, 0.99))
    drawn = game.index.draw(masks, game.num_players, generator(7))
    values = game.shared_values(drawn.keep)
    kept = (values - game.null_values).abs().amax(2) > 1e-6  # without removed targets
    return float(((values < low) | (values > high)).any(2)[kept].float().mean())


@click.command()
@click.argument("names", nargs=-1)
@click.option("--index", "indices", multiple=True, default=("banzhaf", "shapley", "keep-0.9"), show_default=True)
@click.option("--split", type=click.Choice(("val", "test")), default="val", show_default=True)
@click.option("--seeds", default=3, show_default=True)
@click.option("--targets", "most", default=100, show_default=True, help="Targets, at most.")
@click.option("--reference-pairs", default=4000, show_default=True, help="Coalition pairs of phi.")
@click.option("--steps", type=int, help="Of training. Default is the usual number.")
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "indices.csv", show_default=True)
def main(names, indices, split, seeds, most, reference_pairs, steps, data_dir, out):
    rows = []
    for name in names or NAMES:
        dataset, game = setting(name, data_dir)
        targets = sample_targets(getattr(dataset, split), most, 0)
        for index in indices:
            game = Game.create(game.f, game.graph, game.features, game.task, game.hops, index=index)
            against = truth(game, targets, reference_pairs)
            common = {"data": name, "source": dataset.source, "split": split, "targets": len(targets), "index": index}
            common["outside"] = outside_range(game)

            def note(method, found, common=common, against=against, game=game, dataset=dataset, **more):
                row = {**common, "method": method, **figures(game, found, against), **more}
                if dataset.motif is not None:
                    row["AUC"] = auc(found, dataset.motif)["signed, pooled"]
                rows.append(row)
                click.echo({key: round(v, 3) if isinstance(v, float) else v for key, v in row.items()}, err=True)

            note("phi itself", replace(Random(game).explain(targets), scores=against.estimate.phi))
            for seed in range(seeds):
                config = default(game.task, len(dataset.train), seed, game.index)
                config = replace(config, steps=steps or config.steps)
                before, started = game.caller.nodes_evaluated, time.perf_counter()
                lara = LARA.of_game(game, config).fit(dataset.train, dataset.val)
                spent = (game.caller.nodes_evaluated - before) / game.num_targets
                cost = {"seed": seed, "nodes f saw": spent, "fit (s)": time.perf_counter() - started}
                for method in ("amortised", "corrected") if lara.samples_ else ("amortised",):
                    found = lara.explain(targets, corrected=method == "corrected")
                    note(method, found, **cost, **trust(found, against))
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(out) as temporary:
            pd.DataFrame(rows).to_csv(temporary, index=False, float_format="%.4f")
    click.echo(table(pd.DataFrame(rows)))


def table(frame):
    """Return one row per data set, index and method, with the mean and deviation over seeds."""
    lines = []
    for (name, index, method), group in frame.groupby(["data", "index", "method"], sort=False):
        cells = [name, index, method]
        for column in COLUMNS:
            values = group[column].dropna() if column in group else pd.Series(dtype=float)
            spread = f" ± {values.std():.3f}" if len(values) > 1 else ""
            cells.append(f"{values.mean():.3f}{spread}" if len(values) else "")
        lines.append(cells)
    return markdown_table(["data", "index", "method", *COLUMNS], lines)


if __name__ == "__main__":
    main()

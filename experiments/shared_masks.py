"""The bias of sharing one random mask of the graph among all targets.

    python experiments/shared_masks.py [NAME ...] [--targets 20] [--pairs 3000]

A mask of the full graph also removes nodes that are no players of a target. f only depends on them by the degrees at
the boundary of its receptive field. phi from shared masks is compared with phi from coalitions of each target's own,
over the neighbours: the squared difference beyond the noise of both, as a share of the squared size.
"""

from pathlib import Path

import click
import pandas as pd
import torch
from common import RESULTS, setting

from dgl_lara._util.atomic import atomic_write
from dgl_lara._util.randomness import generator, sample_targets
from dgl_lara._util.tables import markdown_table
from dgl_lara.attribution.monte_carlo import sample, sample_shared, split_half_estimate


def phi(game, players, pairs, draw, seed):
    return split_half_estimate(*(draw(game, players, pairs // 2, generator(seed + half)) for half in (0, 1)))


@click.command()
@click.argument("names", nargs=-1)
@click.option("--targets", "most", default=20, show_default=True)
@click.option("--pairs", default=3000, show_default=True, help="Of coalitions, for each phi.")
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "shared_masks.csv", show_default=True)
def main(names, most, pairs, data_dir, out):
    rows = []
    for name in names or ("ba-shapes", "ba-community", "tree-cycles"):
        dataset, game = setting(name, data_dir)
        targets = sample_targets(dataset.test, most, 0)
        players = game.players(targets)
        others = ~game.task.is_target(players)
        shared, own, again = (
            phi(game, players, pairs, draw, seed)
            for draw, seed in ((sample_shared, 91_000), (sample, 92_000), (sample, 93_000))
        )

        def apart(one, other, others=others):
            """Return the difference beyond noise, relative to the size of the second."""
            noise = one.error.square() + other.error.square()
            size = (other.phi.square() - other.error.square())[others].sum()
            return float(((one.phi - other.phi).square() - noise)[others].sum() / size)

        row = {"data": name, "source": dataset.source, "targets": len(targets), "pairs": pairs}
        row |= {"shared against own": apart(shared, own), "own against own": apart(again, own)}
        same = torch.corrcoef(torch.stack([shared.phi[others], own.phi[others]]))[0, 1]
        rows.append(row | {"correlation": float(same)})
        click.echo(rows[-1], err=True)
    table = pd.DataFrame(rows)
    with atomic_write(out) as temporary:
        table.to_csv(temporary, index=False, float_format="%.5f")
    click.echo(markdown_table(table.columns.tolist(), table.to_numpy().tolist()))


if __name__ == "__main__":
    main()

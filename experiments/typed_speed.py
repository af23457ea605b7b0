"""Bulk explanation of heterogeneous graphs and links: the top 20 players of all targets.

    python experiments/typed_speed.py [NAME ...] [--repeats 5] [--top 20] [--data-dir DIR]

Names: dblp-rgcn (all authors), movielens-lightgcn (all held-out likes). g is trained for two steps, because its speed
does not depend on its quality. Timed from p and t, and with the pass that computes them. The best of all repeats after
one that compiles. It needs a machine without other work. Writes results/typed_speed.csv.
"""

from dataclasses import replace
from pathlib import Path

import click
import pandas as pd
import torch
from common import RESULTS, seconds_of
from neighbours import OTHERS, other_setting

from dgl_lara import LARA
from dgl_lara._util.atomic import atomic_write
from dgl_lara._util.memory import reuse_freed_memory
from dgl_lara._util.tables import markdown_table
from dgl_lara.explainer.inputs import encoder_graph
from dgl_lara.training.config import default

NAMES = ("dblp-rgcn", "movielens-lightgcn")


@click.command()
@click.argument("names", nargs=-1)
@click.option("--repeats", default=5, show_default=True)
@click.option("--top", default=20, show_default=True)
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "typed_speed.csv", show_default=True)
def main(names, repeats, top, data_dir, out):
    reuse_freed_memory()
    rows = []
    for name in names or NAMES:
        dataset, game = other_setting(*OTHERS[name], data_dir)
        config = replace(default(game.task, len(dataset.train)), steps=2, shared_pairs=0)
        lara = LARA.of_game(game, config).fit(dataset.train, dataset.val[:8])
        everyone = torch.arange(game.num_targets)
        with torch.no_grad():  # the pass itself: where g has learned how wrong it is, p and t are at hand
            embedding = min(seconds_of(lambda g=lara: g.explainer_(encoder_graph(g.game, g.config_.inputs)), repeats))
        bulk = lara.scorer()
        bulk.top(everyone, top)
        spent = min(seconds_of(lambda bulk=bulk, everyone=everyone: bulk.top(everyone, top), repeats))
        players = game.players(everyone[:200]).counts.float().mean().item()
        row = {"data": name, "targets": len(everyone), "players": players, "threads": torch.get_num_threads()}
        row |= {"p and t (s)": embedding, f"top {top} of all (s)": spent, "a second": len(everyone) / spent}
        rows.append(row | {"a second, from scratch": len(everyone) / (spent + embedding)})
        click.echo(rows[-1], err=True)
    table = pd.DataFrame(rows)
    with atomic_write(out) as temporary:
        table.to_csv(temporary, index=False, float_format="%.4f")
    cells = [[name, *(f"{value:,.2f}" for value in row)] for name, *row in table.itertuples(index=False)]
    click.echo(markdown_table(list(map(str, table)), cells))


if __name__ == "__main__":
    main()

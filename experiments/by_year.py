"""Inductive explanation: g learns from the older papers of ogbn-arxiv and explains the newer ones.

    python experiments/by_year.py --data-dir DIR [--newest 0.2] [--steps 100] [--targets 150]

The newest fifth of all papers is removed with all citations, and LARA is trained on the rest. On the full graph the
newer papers are explained by `explain_on`, and for comparison older papers that g was not trained on. Amortised scores
are compared with phi from coalitions of each target's own. Writes experiments/results/by_year.csv.
"""

import time
from dataclasses import replace
from pathlib import Path

import click
import dgl
import pandas as pd
import torch
from common import RESULTS, setting
from neighbours import figures, truth

from dgl_lara import LARA
from dgl_lara._util.memory import reuse_freed_memory
from dgl_lara._util.randomness import sample_targets
from dgl_lara._util.tables import markdown_table
from dgl_lara.baselines.random import Random
from dgl_lara.datasets.cache import find_files
from dgl_lara.inference.novelty import with_novelty
from dgl_lara.training.config import default

YEARS = "ogbn_arxiv/raw/node_year.csv.gz"


def with_neighbours(game, targets, count):
    """Select targets with at least one neighbour. The others have nothing to explain."""
    many = sample_targets(targets, 20 * count, 0)
    return many[game.players(many).counts > 1][:count]


@click.command()
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--newest", default=0.2, show_default=True, help="Share of the papers that arrive later.")
@click.option("--steps", default=100, show_default=True)
@click.option("--targets", "most", default=150, show_default=True)
@click.option("--reference-pairs", default=2000, show_default=True)
@click.option("--seeds", default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "by_year.csv", show_default=True)
def main(data_dir, newest, steps, most, reference_pairs, seeds, out):
    reuse_freed_memory()
    dataset, game = setting("ogbn-arxiv", data_dir)
    folder = find_files((YEARS,), data_dir)
    year = torch.arange(dataset.graph.num_nodes())  # the generated stand-in has its papers in the order of time
    if folder is not None:
        year = torch.from_numpy(pd.read_csv(folder / YEARS, header=None)[0].to_numpy())
    order = torch.argsort(year, stable=True)
    old = order[: round((1 - newest) * len(order))].sort().values
    place = torch.full((len(year),), -1)
    place[old] = torch.arange(len(old))
    older, x = dgl.node_subgraph(dataset.graph, old, store_ids=False), dataset.features[old]
    train, val, test = (place[part][place[part] >= 0] for part in (dataset.train, dataset.val, dataset.test))
    rows = []
    for seed in range(seeds):
        config = replace(default("node", len(train)), steps=steps, seed=seed, shared_pairs=0)
        started = time.perf_counter()
        lara = LARA(game.f, older, x, hops=game.hops, config=config).fit(train, val)
        spent = time.perf_counter() - started
        local = with_neighbours(lara.game, torch.cat([val, test]), most)
        there = with_neighbours(game, (place < 0).nonzero().flatten(), most)
        known = with_novelty(lara.explain(local, corrected=False), lara.explainer_, config.inputs)
        new = lara.explain_on(dataset.graph, dataset.features, there)
        for which, found in (("older, unseen", known), ("newer", new)):
            assert found.game is not None and found.novelty is not None
            against = truth(found.game, found.players.targets, reference_pairs)
            chance = figures(found.game, Random(found.game, seed).explain(found.players.targets), against)
            row = {
                "papers": which,
                "seed": seed,
                "steps": steps,
                "targets": len(found),
                **figures(found.game, found, against),
            }
            row |= {
                "random, Delta kept": chance["Delta kept"],
                "novelty": float(found.novelty.mean()),
                "fit (s)": spent,
            }
            row |= {"source": dataset.source, "oldest of the newer": int(year[order[len(old)]])}
            rows.append(row)
            click.echo(row, err=True)
    table = pd.DataFrame(rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(out, index=False, float_format="%.4f")
    columns = ["R2, neighbours", "R2", "Delta kept", "random, Delta kept", "novelty"]
    mean = table.groupby("papers", sort=False)[columns].mean()
    click.echo(
        markdown_table(["papers", *columns], [[name, *(f"{v:.3f}" for v in row)] for name, row in mean.iterrows()])
    )


if __name__ == "__main__":
    main()

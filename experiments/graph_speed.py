"""How fast g explains graphs from scratch, beside PGExplainer: all graphs of a data set, in turns, in one process.

    python experiments/graph_speed.py [ba-2motifs mutag] [--rounds 9] [--data-dir DIR]

PGExplainer goes on from f's embeddings, which it has from its training; LARA makes what g sees, p and t anew. How
long either has learned makes no difference to its speed, so both learn a little.
"""

from pathlib import Path
from statistics import median

import click
import torch
from common import setting

from dgl_lara.evaluation.comparison import contest, taught_a_little
from dgl_lara.evaluation.lara_method import LaraMethod
from dgl_lara.evaluation.timing import rate
from dgl_lara.utils.memory import reuse_freed_memory


@click.command()
@click.argument("names", nargs=-1)
@click.option("--rounds", default=9, show_default=True)
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(names, rounds, data_dir):
    reuse_freed_memory()
    click.echo(
        "data | graphs | pg-explainer, graphs/s | LARA from scratch | stored | from scratch, times faster (each round)"
    )
    for name in names or ("ba-2motifs", "mutag"):
        dataset, game = setting(name, data_dir)
        where = contest(dataset, game, 100, quick=True)
        rival, lara = (taught_a_little(where, method, 0) for method in ("pg-explainer", "lara-amortised"))
        assert isinstance(lara, LaraMethod)
        everyone = torch.arange(game.num_targets)
        calls = (rival.explain, lara.explain, lara.explain_again)
        found = [[rate(call, everyone, everyone.device) for call in calls] for _ in range(rounds + 1)][1:]
        theirs, scratch, stored = (median(column) for column in zip(*found, strict=True))
        ratios = sorted(ours / their for their, ours, _ in found)
        spread = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        click.echo(f"{name} | {game.num_targets} | {theirs:,.0f} | {scratch:,.0f} | {stored:,.0f} | {spread}")


if __name__ == "__main__":
    main()

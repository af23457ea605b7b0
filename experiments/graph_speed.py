"""The speed of LARA and PGExplainer for all graphs of a data set, measured alternately in one process.

    python experiments/graph_speed.py [ba-2motifs mutag] [--rounds 9] [--data-dir DIR]

PGExplainer uses f's embeddings from its training. LARA computes the input of g, p and t again. Speed does not depend on
the length of training, so both are trained briefly. Times are wall-clock and processor time.
"""

import time
from pathlib import Path
from statistics import median

import click
import torch
from common import setting

from dgl_lara._util.memory import reuse_freed_memory
from dgl_lara._util.tables import markdown_table
from dgl_lara.evaluation.benchmark import Benchmark, briefly_trained
from dgl_lara.evaluation.lara_method import LaraMethod


@click.command()
@click.argument("names", nargs=-1)
@click.option("--rounds", default=9, show_default=True)
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(names, rounds, data_dir):
    reuse_freed_memory()
    lines = []
    for name in names or ("ba-2motifs", "mutag"):
        dataset, game = setting(name, data_dir)
        benchmark = Benchmark.on(dataset, game, 100, quick=True)
        rival, lara = (briefly_trained(benchmark, method, 0) for method in ("pg-explainer", "lara-amortised"))
        assert isinstance(lara, LaraMethod)
        calls, every_target = (rival.explain, lara.explain, lara.explain_again), torch.arange(game.num_targets)
        found = [[spent(call, every_target) for call in calls] for _ in range(rounds + 1)][1:]  # the first one warms up
        for clock, what in enumerate(("clock", "processors")):
            times = [[each[clock] for each in turn] for turn in found]
            rates = (f"{game.num_targets / median(column):,.0f}" for column in zip(*times, strict=True))
            ratios = sorted(theirs / ours for theirs, ours, _ in times)
            spread = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            lines.append([name, str(game.num_targets), what, *rates, spread])
    header = [
        "data",
        "graphs",
        "time",
        "pg-explainer, graphs/s",
        "LARA from scratch",
        "stored",
        "scratch / pg-explainer",
    ]
    click.echo(markdown_table(header, lines))


def spent(call, targets):
    """Return wall-clock and processor seconds."""
    before = time.perf_counter(), time.process_time()
    call(targets)
    return time.perf_counter() - before[0], time.process_time() - before[1]


if __name__ == "__main__":
    main()

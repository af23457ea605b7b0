"""Agreement and fidelity of LARA (default and paper), random and sampled: the table in docs/results.md.

    python experiments/lara_figures.py [DATASET ...] [--seeds 3] [--paper-seeds 1] [--targets 500] [--data-dir DIR]

Node data and BA-2Motifs use the authors' files and their target models (DIR/target_models) if DIR or DGL_LARA_DATA has
them. Otherwise the data is generated and the target models are our own, as the table states. Writes
experiments/results/.
"""

from dataclasses import replace
from pathlib import Path

import click
import pandas as pd
from common import RESULTS, setting

from dgl_lara import LARA
from dgl_lara._util.memory import reuse_freed_memory
from dgl_lara._util.randomness import sample_targets
from dgl_lara.baselines.random import Random
from dgl_lara.baselines.sampled import Sampled
from dgl_lara.metrics.agreement import agreement
from dgl_lara.metrics.common.reference import reference
from dgl_lara.metrics.fidelity import fidelity
from dgl_lara.training.config import default, paper

NAMES = ("ba-shapes", "ba-community", "tree-cycles", "ba-2motifs", "mutag")


def figures(game, explanations, against):
    table = fidelity(game, explanations)
    average = table[table["sparsity"] == "average"].set_index("definition")
    row = {"R2": agreement(explanations, against)["R2 corrected"], "R2 raw": agreement(explanations, against)["R2"]}
    for definition in average.index:
        for sign in "+-":
            row[f"F{sign} {definition}"] = average.loc[definition, f"fidelity{sign}"]
            row[f"F{sign} {definition} error"] = average.loc[definition, f"fidelity{sign} error"]
    return row


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seeds", default=3, show_default=True)
@click.option("--paper-seeds", default=1, show_default=True, help="Of --preset paper; 0 leaves it out.")
@click.option("--steps", type=int, help="Of training; otherwise the usual ones.")
@click.option("--targets", "most", default=500, show_default=True, help="Test targets, at most.")
@click.option("--reference-pairs", default=4000, show_default=True, help="Coalition pairs of phi.")
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "lara_figures.csv", show_default=True)
def main(names, seeds, paper_seeds, steps, most, reference_pairs, data_dir, out):
    reuse_freed_memory()
    rows = []
    for name in names or NAMES:
        dataset, game = setting(name, data_dir)
        targets = sample_targets(dataset.test, most, 0)
        against = reference(game, targets, reference_pairs, 0)
        common = {"dataset": name, "data": dataset.source, "targets": len(targets), "reference": against.description}
        common["noise ceiling"] = against.ceiling
        for explanations in (Random(game).explain(targets), Sampled(game).explain(targets)):
            rows.append({**common, "method": explanations.method, **figures(game, explanations, against)})
            click.echo(rows[-1], err=True)
        for preset, count in (("default", seeds), ("paper", paper_seeds)):
            for seed in range(count):
                base = paper(dataset.task) if preset == "paper" else default(dataset.task, len(dataset.train))
                config = replace(base, seed=seed, steps=steps or base.steps)
                explanations = LARA.of_game(game, config).fit(dataset.train, dataset.val).explain(targets)
                row = {**common, "method": f"lara, {preset}", "seed": seed, **figures(game, explanations, against)}
                rows.append(row)
                click.echo(row, err=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_csv(out, index=False, float_format="%.4f")
    click.echo(markdown(pd.DataFrame(rows)))


def markdown(table):
    """Return a row per method with the mean over seeds (and the deviation of R2)."""
    measures = [f"F{sign} {definition}" for definition in ("paper", "kept") for sign in "+-"]
    lines = ["| data | method | R² | " + " | ".join(measures) + " |", "|---" * (3 + len(measures)) + "|"]
    for (name, method), group in table.groupby(["dataset", "method"], sort=False):
        spread = f" ± {group['R2'].std():.3f}" if len(group) > 1 else ""
        cells = [f"{group['R2'].mean():.3f}{spread}" if method != "random" else "–"]
        for measure in measures:
            known = measure in group and group[measure].notna().all()
            cells.append(f"{group[measure].mean():.2f}" if known else "")
        lines.append(f"| {name} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

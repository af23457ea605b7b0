"""How much 64 pairs of model calls reduce the error of LARA's scores, compared with up to 640 pairs by themselves.

    python experiments/refinement.py [DATASET ...] [--targets 40] [--pairs 64] [--draws 3] [--data-dir DIR]

The squared error to phi is in units of phi's variance, a mean over all (target, player) pairs of test targets. The
noise of the reference (two halves of 2,000 pairs) is removed. The table also has the share of the neighbours'
contribution (for a graph, of all nodes) that refined scores are expected to explain, if there is an expectation, and
the share that they explain. Data and target models as in lara_figures.py. Writes experiments/results/refinement.csv.
"""

from dataclasses import replace
from pathlib import Path

import click
import pandas as pd
from common import RESULTS, setting
from lara_figures import NAMES

from dgl_lara import LARA
from dgl_lara._util.memory import reuse_freed_memory
from dgl_lara._util.randomness import generator, sample_targets
from dgl_lara.attribution.monte_carlo import Estimate, least_squares
from dgl_lara.attribution.r_squared import corrected_r_squared
from dgl_lara.training.config import default


@click.command()
@click.argument("names", nargs=-1)
@click.option("--targets", "most", default=40, show_default=True)
@click.option("--pairs", default=64, show_default=True)
@click.option("--reference-pairs", default=4000, show_default=True)
@click.option("--draws", default=3, show_default=True)
@click.option("--split", type=click.Choice(["val", "test"]), default="test", show_default=True)
@click.option("--steps", type=int, help="Of training; otherwise the usual ones.")
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "refinement.csv", show_default=True)
def main(names, most, pairs, reference_pairs, draws, split, steps, data_dir, out):
    reuse_freed_memory()
    rows = []
    for name in names or NAMES:
        dataset, game = setting(name, data_dir)
        usual = default(game.task, len(dataset.train))
        lara = LARA.of_game(game, replace(usual, steps=steps or usual.steps)).fit(dataset.train, dataset.val)
        explanations = lara.explain(sample_targets(getattr(dataset, split), most, 0))
        players = explanations.players
        first, second = (
            least_squares(game, players, reference_pairs // 2, generator(1000 + half)).phi for half in (0, 1)
        )
        against = Estimate((first + second) / 2, (first - second).abs() / 2)

        def error(scores, against=against):
            return 1 - corrected_r_squared(scores, against)

        row: dict[str, object] = {
            "dataset": name,
            "targets": len(explanations),
            "players": players.counts.float().mean().item(),
        }
        row["amortised"] = error(explanations.scores)
        drawn: dict[str, list[float]] = {
            f"refined {pairs}": [],
            f"sampled {pairs}": [],
            f"sampled {10 * pairs}": [],
            "moved": [],
            "expected share": [],
            "true share": [],
        }
        others = ~explanations.is_target
        size = (first * second)[others].sum()
        for seed in range(draws):
            refined = lara.refine(explanations, pairs, seed)
            drawn[f"refined {pairs}"].append(error(refined.explanations.scores))
            drawn["moved"].append(refined.moved.median().item())
            rest = ((first - refined.explanations.scores) * (second - refined.explanations.scores))[others].sum()
            if (variance := refined.explanations.variance) is not None:
                drawn["expected share"].append(1 - (variance[others].sum() / size).item())
            drawn["true share"].append(1 - (rest / size).item())
            for count in (pairs, 10 * pairs):
                drawn[f"sampled {count}"].append(error(least_squares(game, players, count, generator(seed)).phi))
        row |= {method: sum(values) / draws for method, values in drawn.items() if values}
        rows.append(row)
        click.echo(row, err=True)
        pd.DataFrame(rows).to_csv(out, index=False, float_format="%.4f")


if __name__ == "__main__":
    main()

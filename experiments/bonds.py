"""Important bonds for a model that uses bond types and for one that does not.

    python experiments/bonds.py [--data-dir DIR] [--steps 600] [--targets 60] [--seeds 1]

The data is MUTAG with bond types as edge data, the models are GINE with and without them. Players are edges. For both
models it measures the agreement of g with phi, the mean |phi| of bonds of each type, and the rank correlation of the
two models' phi over equal bonds. Writes experiments/results/bonds.csv.
"""

from dataclasses import replace
from pathlib import Path

import click
import pandas as pd
from common import RESULTS
from neighbours import OTHERS, other_setting, truth
from scipy.stats import spearmanr

from dgl_lara import LARA
from dgl_lara._util.randomness import sample_targets
from dgl_lara._util.tables import markdown_table
from dgl_lara.datasets import BONDS
from dgl_lara.game.edge_players import EdgePlayers
from dgl_lara.game.game import Game
from dgl_lara.training.config import default

MODELS = ("mutag-gine", "mutag-gine-blind")


def by_bond(game, dataset, phi, players):
    """Return the mean |phi| of the bonds of each type."""
    assert isinstance(game.player_set, EdgePlayers)
    u, v = game.player_set.endpoints(players.player)
    kind = dataset.graph.edata["bond"][dataset.graph.edge_ids(u, v)].argmax(1)
    return {f"|phi|, {name}": float(phi[kind == number].abs().mean()) for number, name in enumerate(BONDS)}


@click.command()
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--steps", default=600, show_default=True)
@click.option("--targets", "most", default=60, show_default=True)
@click.option("--reference-pairs", default=1000, show_default=True)
@click.option("--seeds", default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "bonds.csv", show_default=True)
def main(data_dir, steps, most, reference_pairs, seeds, out):
    rows, found = [], {}
    for name in MODELS:
        dataset, nodes = other_setting(*OTHERS[name], data_dir)
        game = Game.create(nodes.f, nodes.graph, nodes.features, nodes.task, nodes.hops, players="edges")
        targets = sample_targets(dataset.test, most, 0)
        against = truth(game, targets, reference_pairs)
        found[name] = against.estimate.phi
        for seed in range(seeds):
            config = replace(default(game.task, len(dataset.train)), steps=steps, seed=seed)
            scores = LARA.of_game(game, config).fit(dataset.train, dataset.val).explain(targets).scores
            row = {"model": name.removeprefix("mutag-"), "seed": seed, "steps": steps, "targets": len(targets)}
            row |= {"R2, edges": against.r_squared(scores), **by_bond(game, dataset, found[name], against.players)}
            rows.append(row)
            click.echo(row, err=True)
    same = spearmanr(*(phi.numpy() for phi in found.values())).statistic
    table = pd.DataFrame(rows).assign(**{"rank correlation of the two": same})
    out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(out, index=False, float_format="%.4f")
    mean = table.drop(columns="seed").groupby("model", sort=False).mean()
    click.echo(markdown_table(["model", *mean], [[name, *(f"{v:.3f}" for v in row)] for name, row in mean.iterrows()]))


if __name__ == "__main__":
    main()

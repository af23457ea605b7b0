"""Settings of the recommender, chosen on ratings held out from MovieLens' ua.base (ua.test is not used).

A tenth of ua.base is held out. The rest makes the graph and the features. Each row has recall and NDCG of the held-out
likes.

    python experiments/recommender_settings.py [--seeds 3]
"""

from __future__ import annotations

from dataclasses import replace

import click
import numpy as np

from dgl_lara._util.tables import text_table
from dgl_lara.datasets import Options
from dgl_lara.datasets.movielens import assemble, read_ratings
from dgl_lara.gnns import RECIPES
from dgl_lara.gnns.ranking import pair_scores, popularity, ranking_quality
from dgl_lara.gnns.recommender_training import train_recommender

TRIED: list[dict] = [
    {}, {"epochs": 100}, {"epochs": 300}, {"layers": 1}, {"layers": 3}, {"hidden": 32}, {"hidden": 128},
    {"lr": 0.003}, {"weight_decay": 1e-5},
]  # fmt: skip


def validation_cut(seed: int):
    """Return the data set made of nine tenths of ua.base. Its targets are the likes among the rest."""
    base, _, folder = read_ratings(Options())
    kept = np.random.default_rng(seed).random(len(base)) < 0.1
    return assemble(base[~kept], base[kept], folder, seed, {"dataset": "movielens", "cut": seed})


@click.command()
@click.option("--seeds", default=1)
def main(seeds: int) -> None:
    cuts = [validation_cut(seed) for seed in range(seeds)]
    judged = {"popularity": [ranking_quality(popularity(cut), cut.pairs) for cut in cuts]}
    for changes in TRIED:
        recipe = replace(RECIPES["movielens"], **changes)
        judged[str(changes or "as it is")] = [
            ranking_quality(pair_scores(train_recommender(cut, recipe, seed), cut), cut.pairs)
            for seed, cut in enumerate(cuts)
        ]
    rows = [
        [name, *(float(np.mean([one[figure] for one in found])) for figure in found[0])]
        for name, found in judged.items()
    ]
    print(text_table(["settings", *judged["popularity"][0]], rows))


if __name__ == "__main__":
    main()

"""How reliably a number of targets measures the confidence of amortised scores.

    python experiments/confidence.py [NAME ...] [--seeds 3] [--targets 100] [--data-dir DIR]

It uses validation targets of data sets whose training keeps samples, so that it may guide choices. The error model is
fitted to four fifths of them and evaluated on the rest. Printed are rank correlation and largest gap over all targets,
over draws of the size of a measurement, and for an exactly right error model: every target has its expected error times
the ratio of true to expected error of another target.
"""

from dataclasses import replace
from pathlib import Path

import click
import pandas as pd
import torch
from neighbours import load, reliability, true_squares, truth

from dgl_lara import LARA
from dgl_lara._util.randomness import generator
from dgl_lara.inference.error_model import learn_errors
from dgl_lara.training.config import default

FOLDS, DRAWS = 5, 300
WANTED = 0.05  # of the largest gap
RANK, GAP = "rank correlation of confidence", "largest gap"


def cross_validated(lara, targets):
    """Return amortised explanations whose variance comes from error models fitted on other targets."""
    found = lara.explain(targets, corrected=False)
    variance = torch.zeros_like(found.scores)
    fold = torch.randperm(len(targets), generator=generator(0)) % FOLDS
    for number in range(FOLDS):
        some = found.select(fold != number)
        model = learn_errors(some, lara.samples_.of(some.players, some.is_target))
        assert model is not None, "no target has neighbours"
        held_out = (fold == number)[found.players.row]
        variance[held_out] = model.variance(found.select(fold == number))
    return replace(found, variance=variance)


def as_if_right(squares, expected, error, size, drawn):
    """Draw errors and sizes of targets whose errors are as expected on average and vary as the true ones."""
    error = error.clamp(min=1e-6)
    ratio = error / expected
    angle = (size - squares - error) / (2 * (squares * error).sqrt())
    other = torch.randint(len(error), (len(error),), generator=drawn)
    made = expected * (ratio / ratio.mean())[other]
    across = 2 * (angle - angle.mean())[other] * (squares * made).sqrt()
    return made, (squares + made + across).clamp(min=1e-3)


def spread_of(name, rows):
    table = pd.DataFrame(rows)
    rank, gap = (f"{table[key].mean():.3f} ± {table[key].std():.3f}" for key in (RANK, GAP))
    within = float((table[GAP] <= WANTED).mean())
    return {f"rank, {name}": rank, f"gap, {name}": gap, f"gap within {WANTED}, {name}": within}


def judged(found, against, count):
    others, row = ~found.is_target, found.players.row

    def total(values):
        return torch.zeros(len(found)).index_add(0, row[others], values[others])

    error, size = true_squares(found, against)
    known = (size > 0) & ~found.confidence.isnan()
    columns = (found.confidence, total(found.scores.square()), total(found.variance), error, size)
    confidence, squares, expected, error, size = (column[known] for column in columns)
    drawn, drawings, right = generator(0), [], []
    for _ in range(DRAWS):
        some = torch.randint(len(confidence), (count,), generator=drawn)
        drawings.append(reliability(confidence[some], error[some], size[some]))
        made, sizes = as_if_right(squares, expected, error, size, drawn)
        right.append(reliability(confidence[some], made[some], sizes[some]))
    full = reliability(confidence, error, size)
    about = {"validation targets": len(confidence), "rank": float(full[RANK]), "gap": full[GAP]}
    return about | spread_of(f"{count} targets", drawings) | spread_of(f"{count} targets, exactly right", right)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seeds", default=3, show_default=True)
@click.option("--targets", "count", default=100, show_default=True, help="Of a measurement.")
@click.option("--reference-pairs", default=6000, show_default=True, help="Coalition pairs of phi.")
@click.option("--steps", type=int, help="Of training; otherwise the usual ones.")
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(names, seeds, count, reference_pairs, steps, data_dir):
    for name in names or ("ba-community",):
        game, train, val, _, _ = load(name, data_dir)
        targets = val.sort().values
        against = truth(game, targets, reference_pairs)
        for seed in range(seeds):
            config = replace(default(game.task, len(train)), seed=seed)
            lara = LARA.of_game(game, replace(config, steps=steps or config.steps)).fit(train, val)
            click.echo({"data": name, "seed": seed, **judged(cross_validated(lara, targets), against, count)})


if __name__ == "__main__":
    main()

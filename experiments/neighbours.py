"""Agreement of LARA with phi over the neighbours, before and after correction, its cost, and its confidence.

    python experiments/neighbours.py [NAME ...] [--seeds 3] [--targets 100] [--data-dir DIR]

Names: the data sets (with the authors' target models if DIR or DGL_LARA_DATA has them), ogbn-arxiv-undirected,
dense-gat and dense-sage (`dense.py`), dblp-rgcn and dblp-hgt (several node types), movielens-lightgcn (links),
mutag-gine and mutag-gine-blind (models with and without bond types). phi is estimated from shared coalitions that
neither training nor correction used, and for graph tasks and large graphs from coalitions of each target's own. The
rows of these data sets and seeds are replaced in experiments/results/neighbours.csv.
"""

import time
from dataclasses import replace
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import click
import dgl
import pandas as pd
import torch
from common import RESULTS, setting
from dense import dense
from scipy.stats import spearmanr

from dgl_lara import LARA
from dgl_lara._util.memory import reuse_freed_memory
from dgl_lara._util.randomness import generator, sample_targets
from dgl_lara._util.tables import markdown_table
from dgl_lara.attribution.monte_carlo import sample, sample_shared, split_half_estimate
from dgl_lara.baselines.gradient import GradientInput
from dgl_lara.baselines.graphsvx import GraphSVX
from dgl_lara.baselines.random import Random
from dgl_lara.baselines.sampled import Sampled
from dgl_lara.datasets import Options
from dgl_lara.datasets import load as load_dataset
from dgl_lara.game.game import Game
from dgl_lara.gnns import recipe_for
from dgl_lara.gnns.training import get_gnn
from dgl_lara.metrics.common.reference import Reference
from dgl_lara.metrics.fidelity import fidelity
from dgl_lara.training.config import MANY_TARGETS, default

NAMES = ("ba-shapes", "ba-community", "tree-cycles", "ba-2motifs", "mutag", "dense-gat", "dense-sage")
UNDIRECTED = "ogbn-arxiv-undirected"
OTHERS = {
    "dblp-rgcn": ("dblp", "rgcn"), "dblp-hgt": ("dblp", "hgt"), "movielens-lightgcn": ("movielens", "lightgcn"),
    "mutag-gine": ("mutag", "gine"), "mutag-gine-blind": ("mutag", "gine-blind"),
}  # fmt: skip
TOP = 5  # reasons, without which f is asked again
BINS = 4  # of the reliability curve


def load(name, data_dir):
    if name.startswith("dense-"):
        return dense(name.removeprefix("dense-"))
    if name in OTHERS:
        dataset, game = other_setting(*OTHERS[name], data_dir)
    else:
        dataset, game = undirected_arxiv(data_dir) if name == UNDIRECTED else setting(name, data_dir)
    return game, dataset.train, dataset.val, dataset.test, dataset.source


def other_setting(name, architecture, data_dir):
    """Return a data set with one of the architectures that ship for it."""
    dataset = load_dataset(name, Options(data_dir=data_dir))
    typed = not dataset.graph.is_homogeneous
    model = get_gnn(dataset, recipe_for(name, dataset.task, architecture, typed), 0).model
    return dataset, LARA(model, dataset.graph, dataset.features, dataset.task, **dataset.lara_arguments).game


def undirected_arxiv(data_dir):
    """Return every citation both ways, with the model trained on the directed graph."""
    dataset, directed = setting("ogbn-arxiv", data_dir)
    dataset = replace(dataset, graph=dgl.to_bidirected(dataset.graph), source=f"{dataset.source}, undirected")
    return dataset, Game.create(directed.f, dataset.graph, dataset.features, dataset.task, directed.hops)


def truth(game, targets, pairs):
    """Estimate phi in two independent halves.

    Coalitions are shared by all targets, or each target's own if that evaluates fewer nodes or targets are too many.
    """
    players = game.players(targets)
    small = game.num_targets <= MANY_TARGETS and game.graph.num_nodes() <= len(players.player)
    draw = sample_shared if game.task.has_distances and small else sample
    return Reference(
        players,
        split_half_estimate(*(draw(game, players, pairs // 2, generator(90_000 + half)) for half in (0, 1))),
        0,
        "",
    )


def figures(game, explanations, against):
    others = ~explanations.is_target
    table = fidelity(game, explanations)
    average = table[table["sparsity"] == "average"].set_index("definition")["delta"]
    best = explanations.rank(include_target=False) < TOP
    rest = game.values_per_target(explanations.players, ~(best & others).unsqueeze(0), explanations.query)[0]
    before = game.full_value_of(explanations.players.targets, explanations.query)
    row = {
        f"drop without the top {TOP}": float((before - rest).mean()),
        "R2": against.r_squared(explanations.scores),
        "R2, neighbours": against.r_squared(explanations.scores, others),
    }
    return row | {f"Delta {definition}": average[definition] for definition in average.index}


def trust(explanations, against):
    """Return the rank correlation of expected and true shares, and the largest gap of the reliability curve."""
    return reliability(explanations.confidence, *true_squares(explanations, against))


def true_squares(explanations, against):
    """Return |phi - scores|^2 and |phi|^2 over the neighbours, (num_targets,) each, without the noise of phi."""
    others, row, count = ~explanations.is_target, explanations.players.row, len(explanations)
    phi, noise = against.estimate.phi, against.estimate.error.square()

    def total(values):
        return torch.zeros(count).index_add(0, row[others], values[others])

    return total((explanations.scores - phi).square() - noise), total(phi.square() - noise)


def reliability(confidence, error, size):
    known = (size > 0) & ~confidence.isnan()
    predicted, true = confidence[known], (1 - error / size.clamp(min=1e-12))[known]
    curve = []
    for part in torch.argsort(predicted).chunk(BINS):
        expected = (predicted[part] * size[known][part]).sum() / size[known][part].sum()
        curve.append((expected.item(), (1 - error[known][part].sum() / size[known][part].sum()).item()))
    return {
        "rank correlation of confidence": spearmanr(predicted, true).statistic,
        "expected share": " ".join(f"{expected:.2f}" for expected, _ in curve),
        "true share": " ".join(f"{found:.2f}" for _, found in curve),
        "largest gap": max(abs(expected - found) for expected, found in curve),
    }


def correcting(lara, count):
    """Return the seconds for corrected scores of a number of targets, amortised ones included, from stored p and t."""
    some = sample_targets(torch.arange(lara.game.num_targets), count, 0)
    started = time.perf_counter()
    found = lara.explain(some)
    spent = time.perf_counter() - started
    about = {"targets corrected": len(some), "players corrected": len(found.scores), "correcting (s)": spent}
    return about | {"peak memory (GB)": getrusage(RUSAGE_SELF).ru_maxrss / 2**20}


def cost_anywhere(game, rival, count=50):
    """Return the nodes that f evaluates for a random target. Test targets, the newest papers, have few players."""
    before, some = game.caller.nodes_evaluated, sample_targets(torch.arange(game.num_targets), count, 0)
    rival.explain(some)
    return (game.caller.nodes_evaluated - before) / len(some)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seeds", default=3, show_default=True)
@click.option("--first-seed", default=0, show_default=True)
@click.option("--targets", "most", default=100, show_default=True, help="Test targets, at most.")
@click.option("--reference-pairs", default=6000, show_default=True, help="Coalition pairs of phi.")
@click.option("--steps", type=int, help="Of training; otherwise the usual ones.")
@click.option("--objective", help="In the place of the usual one.")
@click.option("--shared-pairs", type=int, help="That LARA keeps or draws; otherwise what training leaves.")
@click.option("--rivals/--no-rivals", default=True, help="Others than LARA.")
@click.option("--correct", "count", default=0, show_default=True, help="Time the correction of so many targets.")
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "neighbours.csv", show_default=True)
def main(names, seeds, first_seed, most, reference_pairs, steps, objective, shared_pairs, rivals, count, data_dir, out):
    reuse_freed_memory()
    rows = []

    def note(row):
        rows.append(row)
        click.echo({key: round(v, 3) if isinstance(v, float) else v for key, v in row.items()}, err=True)

    for name in names or NAMES:
        game, train, val, test, source = load(name, data_dir)
        targets = sample_targets(test, most, 0)
        against = truth(game, targets, reference_pairs)
        common = {"data": name, "source": source, "targets": len(targets)}
        common["players"] = against.players.counts.float().mean().item()
        ideal = replace(Random(game).explain(targets), scores=against.estimate.phi)
        note({**common, "method": "phi itself", **figures(game, ideal, against), "nodes f saw": 0.0})
        for seed in range(first_seed, first_seed + seeds):
            others = (Random(game, seed), GradientInput(game, seed)) if name in OTHERS else (Random(game, seed),)
            for rival in (*others, Sampled(game, seed), GraphSVX(game, seed)) if rivals else ():
                before = game.caller.nodes_evaluated
                found = rival.explain(targets)
                cost = {"seed": seed, "nodes f saw": (game.caller.nodes_evaluated - before) / len(targets)}
                if name == "ogbn-arxiv":
                    cost["nodes f saw, any target"] = cost_anywhere(game, rival)
                note({**common, "method": found.method, **figures(game, found, against), **cost})
            config = replace(default(game.task, len(train)), seed=seed, shared_pairs=shared_pairs)
            config = replace(config, steps=steps or config.steps, objective=objective or config.objective)
            before, started = game.caller.nodes_evaluated, time.perf_counter()
            lara = LARA.of_game(game, config).fit(train, val)
            cost, spent = (game.caller.nodes_evaluated - before) / game.num_targets, time.perf_counter() - started
            for method in ("lara, amortised", "lara, corrected") if lara.samples_ else ("lara, amortised",):
                found = lara.explain(targets, corrected=method.endswith("corrected"))
                row = {**common, "method": method, "seed": seed, **figures(game, found, against)}
                row |= {"nodes f saw": cost, "fit (s)": spent, "steps": config.steps, **trust(found, against)}
                row["pairs"] = lara.samples_.pairs if lara.samples_ and method.endswith("corrected") else 0
                row |= correcting(lara, count) if count and row["pairs"] else {}
                note(row)
            store(pd.DataFrame(rows), out)
    click.echo(markdown(pd.DataFrame(rows)))


def store(table, out):
    """Store rows, and keep those of other data sets and seeds in the file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists():
        before, key = pd.read_csv(out), ["data", "method", "seed"]
        anew = pd.MultiIndex.from_frame(before[key]).isin(pd.MultiIndex.from_frame(table[key]))
        table = pd.concat([before[~anew], table])
    table.to_csv(out, index=False, float_format="%.4f")


def markdown(table):
    """Return a row per method, mean ± deviation over seeds."""
    columns = ["R2, neighbours", "R2", "Delta kept", "Delta paper", "rank correlation of confidence", "largest gap"]
    header = ["data", "players", "method", *columns, "nodes f saw, a target"]
    lines = []
    for (name, method), group in table.groupby(["data", "method"], sort=False):
        cells = [name, f"{group['players'].iloc[0]:.0f}", method]
        for column in columns:
            known = group[column].dropna() if column in group else pd.Series(dtype=float)
            spread = f" ± {known.std():.3f}" if len(known) > 1 else ""
            cells.append(f"{known.mean():.3f}{spread}" if len(known) else "")
        lines.append([*cells, f"{group['nodes f saw'].mean():,.0f}"])
    return markdown_table(header, lines)


if __name__ == "__main__":
    main()

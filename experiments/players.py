"""Edges and columns of features as players: agreement with phi, fidelity, AUC, and explanations per second.

    python experiments/players.py edges ba-shapes tree-cycles mutag [--seeds 3] [--targets 60] [--data-dir DIR]
    python experiments/players.py features cora ogbn-arxiv
    python experiments/players.py edges ogbn-arxiv --speed --steps 4 --seeds 1

LARA learns from the training targets. On Cora, Citeseer and PubMed, which have at most 140 training nodes, it learns
from every node outside the validation and test split (no label is used). Test targets are compared with phi from
coalitions that neither training nor correction used. Other methods score edges, and a pair of nodes has the mean of its
two directions. Rows of these data sets and seeds are replaced in experiments/results/players.csv.
"""

import time
from dataclasses import replace
from pathlib import Path

import click
import pandas as pd
import torch
from common import RESULTS, setting
from edge_auc import edge_auc, studied_targets
from neighbours import store

from dgl_lara import LARA
from dgl_lara._util.memory import reuse_freed_memory
from dgl_lara._util.randomness import generator, sample_targets
from dgl_lara._util.tables import markdown_table
from dgl_lara.attribution.monte_carlo import sample, sample_shared, split_half_estimate
from dgl_lara.baselines.common.method import BenchmarkSetting
from dgl_lara.baselines.gnn_explainer import GNNExplainer
from dgl_lara.baselines.pg_explainer import PGExplainer
from dgl_lara.blackbox.eval_mode import eval_mode
from dgl_lara.errors import InputError
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.graphs.indexing import lookup_sorted
from dgl_lara.metrics.common.reference import Reference
from dgl_lara.metrics.fidelity import fidelity
from dgl_lara.training.config import MANY_TARGETS, default

FEW_TRAINED = ("cora", "citeseer", "pubmed")
COLUMNS = (
    "R2",
    "fidelity+",
    "fidelity-",
    "delta",
    "edge AUC",
    "edge AUC |score|",
    "targets/s",
    "all targets (s)",
    "making ready (s)",
)


class Gradient(GNNExplainer):
    """|d logit / d weight| of every edge, summed over the two directions."""

    name = "|gradient|"

    def score(self, some):
        weights = torch.ones(len(some.edge), requires_grad=True)
        with eval_mode(self.game.f), torch.enable_grad():
            logits = self.predict(some, weights, self.game.features[some.egos.nodes])
            chosen = logits.gather(1, self.game.explained_class[some.targets].unsqueeze(1))
            (slope,) = torch.autograd.grad(chosen.sum(), weights)
        return some.both_ways(slope).abs()


def as_players(edges, game, label):
    """Convert edge masks to scores of the game's players."""
    players = game.players(edges.targets)
    index, plays = lookup_sorted(
        edges.row * game.num_players + game.player_set.player_of_edges(edges.source, edges.destination), players.key
    )
    total = torch.zeros(len(players.player)).index_add(0, index[plays], edges.scores[plays])
    count = torch.zeros(len(players.player)).index_add(0, index[plays], torch.ones(int(plays.sum())))
    classes = game.explained_class[players.targets]
    return Explanations(players, total / count.clamp(min=1), classes, game.task, label, game)


def auc_of(dataset, found):
    """Compute the AUC as published, pooled over the edges of all studied targets in the directions that are marked."""
    source, destination = found.game.player_set.endpoints(found.players.player)
    graph = dataset.graph
    there = graph.has_edges_between(source, destination)
    back = graph.has_edges_between(destination, source)
    known = there & back
    ends, scores = (source[known], destination[known]), found.scores[known]
    truth = dataset.edge_truth[graph.edge_ids(*ends)] | dataset.edge_truth[graph.edge_ids(*ends[::-1])]
    marked = dataset.edge_truth.clone()
    marked[graph.edge_ids(*ends)] = truth
    return {
        "edge AUC": edge_auc(graph, marked, *ends, scores),
        "edge AUC |score|": edge_auc(graph, marked, *ends, scores.abs()),
    }


def truth(game, targets, pairs):
    players = game.players(targets)
    draw = sample_shared if game.task.has_distances and game.num_targets <= MANY_TARGETS else sample
    halves = (draw(game, players, pairs // 2, generator(90_000 + half)) for half in (0, 1))
    return Reference(players, split_half_estimate(*halves), 0, "")


def figures(game, found, against):
    table = fidelity(game, found)
    average = table[table["sparsity"] == "average"].iloc[0]
    row = {"R2": against.r_squared(found.scores)} if found.method.startswith("lara") else {}
    return row | {name: average[name] for name in ("fidelity+", "fidelity-", "delta")}


def rivals(name, node_game, seed):
    where = BenchmarkSetting(name)
    yield GNNExplainer.for_benchmark(node_game, seed, where)
    yield PGExplainer.for_benchmark(node_game, seed, where)
    yield Gradient(node_game, seed)


def learn_from(name, dataset):
    if name not in FEW_TRAINED:
        return dataset.train
    outside = torch.ones(dataset.num_targets, dtype=torch.bool)
    outside[dataset.val] = outside[dataset.test] = False
    return outside.nonzero().flatten()


def speed(lara, repeats=5):
    """Time the top 20 players of all targets from stored embeddings, and the preparation that all targets share."""
    every_target = torch.arange(lara.game.num_targets)
    lara.scorer().top(every_target, 20)
    started = time.perf_counter()
    bulk = lara.scorer()
    ready, spent = time.perf_counter() - started, []
    for _ in range(repeats):
        started = time.perf_counter()
        bulk.top(every_target, 20)
        spent.append(time.perf_counter() - started)
    median = sorted(spent)[repeats // 2]
    return {"targets/s": len(every_target) / median, "all targets (s)": median, "making ready (s)": ready}


@click.command()
@click.argument("kind", type=click.Choice(["edges", "features"]))
@click.argument("names", nargs=-1, required=True)
@click.option("--seeds", default=3, show_default=True)
@click.option("--first-seed", default=0, show_default=True)
@click.option("--targets", "most", default=60, show_default=True, help="Test targets, at most.")
@click.option("--reference-pairs", default=4000, show_default=True, help="Coalition pairs of phi.")
@click.option("--steps", type=int, help="Of training; otherwise the usual ones.")
@click.option("--batch-size", type=int, help="Targets a step, in the place of all of them at once.")
@click.option("--shared-pairs", type=int, help="That LARA keeps or draws; otherwise what training leaves.")
@click.option("--rivals/--no-rivals", "compared", default=True)
@click.option("--speed", "only_speed", is_flag=True, help="Only how many targets are explained a second.")
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "players.csv", show_default=True)
def main(
    kind,
    names,
    seeds,
    first_seed,
    most,
    reference_pairs,
    steps,
    batch_size,
    shared_pairs,
    compared,
    only_speed,
    data_dir,
    out,
):
    reuse_freed_memory()
    rows = []

    def note(row):
        rows.append(row)
        click.echo({key: round(v, 3) if isinstance(v, float) else v for key, v in row.items()}, err=True)
        store(pd.DataFrame(rows), out)

    for name in names:
        dataset, node_game = setting(name, data_dir)
        where = (node_game.f, dataset.graph, dataset.features, dataset.task, node_game.hops, node_game.value)
        game = Game.create(*where, players=kind)
        targets = sample_targets(dataset.test, most, 0)
        common = {"data": f"{name}, {kind}", "source": dataset.source, "targets": len(targets)}
        against = None if only_speed else truth(game, targets, reference_pairs)
        has_truth = kind == "edges" and dataset.edge_truth is not None and not only_speed
        studied = sample_targets(studied_targets(dataset), 200, 0) if has_truth else None
        for seed in range(first_seed, first_seed + seeds):
            for rival in rivals(name, node_game, seed) if compared and kind == "edges" and not only_speed else ():
                try:
                    rival.fit(dataset.train if studied is None else studied)
                    found = as_players(rival.explain_edges(targets), game, rival.label)
                except InputError as reason:
                    click.echo(f"{rival.name} is left out: {reason}", err=True)
                    continue
                row = {**common, "method": rival.label, "seed": seed, **figures(game, found, against)}
                if studied is not None:
                    row |= auc_of(dataset, as_players(rival.explain_edges(studied), game, rival.label))
                note(row)
            fit_on = learn_from(name, dataset)
            config = replace(default(game.task, len(fit_on)), seed=seed, shared_pairs=shared_pairs)
            config = replace(config, steps=steps or config.steps)
            if batch_size:  # no more targets than the steps meet: an epoch of all would be longer
                config = replace(config, batch_size=batch_size, targets=min(config.steps * batch_size, len(fit_on)))
            started = time.perf_counter()
            lara = LARA.of_game(game, config).fit(fit_on, dataset.val)
            spent = {"fit (s)": time.perf_counter() - started, "steps": config.steps, "batch": batch_size}
            if only_speed:
                note({**common, "method": "lara, speed", "seed": seed, **spent, **speed(lara)})
                continue
            for method in ("lara, amortised", "lara, corrected") if lara.samples_ else ("lara, amortised",):
                corrected = method.endswith("corrected")
                found = replace(lara.explain(targets, corrected=corrected), method=method)
                row = {**common, "method": method, "seed": seed, **figures(game, found, against), **spent}
                row["players"] = len(found.scores) / len(found)
                if studied is not None:
                    row |= auc_of(dataset, lara.explain(studied, corrected=corrected))
                note(row)
    click.echo(markdown(pd.DataFrame(rows)))


def markdown(table):
    """Return a row per method, mean ± deviation over seeds."""
    columns = [column for column in COLUMNS if column in table]
    lines = []
    for (name, method), group in table.groupby(["data", "method"], sort=False):
        cells = [name, method]
        for column in columns:
            known = group[column].dropna()
            spread = f" ± {known.std():.3f}" if len(known) > 1 else ""
            cells.append(f"{known.mean():.3f}{spread}" if len(known) else "")
        lines.append(cells)
    return markdown_table(["data", "method", *columns], lines)


if __name__ == "__main__":
    main()

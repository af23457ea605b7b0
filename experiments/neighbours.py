"""How faithful LARA is to the neighbours, before and after correction, what that costs, and whether it knows it.

    python experiments/neighbours.py [NAME ...] [--seeds 3] [--targets 100] [--data-dir DIR]

Names: the data sets (the authors' target models where DIR or DGL_LARA_DATA has them), and dense-gat and dense-sage: a
*generated* graph with an average degree of 30 and more, explained are a GAT with four heads and a GraphSAGE, two layers
each. Against phi from shared coalitions that neither training nor correction has seen. Writes experiments/results/.
"""

import time
from dataclasses import replace
from pathlib import Path

import click
import dgl
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from common import RESULTS, setting
from dgl.nn.pytorch import GATConv, SAGEConv
from scipy.spatial import cKDTree
from scipy.stats import spearmanr
from torch import nn

from dgl_lara import LARA
from dgl_lara.attribution.monte_carlo import in_halves, sample, sample_shared
from dgl_lara.baselines.graphsvx import GraphSVX
from dgl_lara.baselines.random import Random
from dgl_lara.baselines.sampled import Sampled
from dgl_lara.game.game import Game
from dgl_lara.metrics.common.reference import Reference
from dgl_lara.metrics.fidelity import fidelity
from dgl_lara.training.config import default
from dgl_lara.utils.memory import reuse_freed_memory
from dgl_lara.utils.randomness import generator, seeded, some_targets
from dgl_lara.utils.tables import markdown_table

NAMES = ("ba-shapes", "ba-community", "tree-cycles", "ba-2motifs", "mutag", "dense-gat", "dense-sage")
NODES, DEGREE, CLASSES, COLUMNS = 4000, 41, 8, 32  # of the dense graph; the radius that would give so many neighbours
BINS = 4  # of the reliability curve


def dense_graph(seed=0):
    """Points in space, linked where they are near (how near differs from point to point); class by region, one label in
    ten is wrong; features tell the class faintly. Returns graph, features, labels and a random order of the nodes."""
    drawn = np.random.RandomState(seed)
    places = drawn.rand(NODES, 3)
    reach = (DEGREE / NODES / (4 / 3 * np.pi)) ** (1 / 3) * np.clip(drawn.lognormal(-0.1, 0.25, NODES), 0.4, 2)
    pairs = cKDTree(places).query_pairs(reach.max(), output_type="ndarray")
    away = np.linalg.norm(places[pairs[:, 0]] - places[pairs[:, 1]], axis=1)
    pairs = torch.from_numpy(pairs[away < np.sqrt(reach[pairs[:, 0]] * reach[pairs[:, 1]])])
    labels = cKDTree(drawn.rand(2 * CLASSES, 3)).query(places)[1] % CLASSES
    wrong = drawn.rand(NODES) < 0.1
    labels[wrong] = drawn.randint(0, CLASSES, wrong.sum())
    features = 0.5 * drawn.randn(CLASSES, COLUMNS)[labels] + drawn.randn(NODES, COLUMNS)
    graph = dgl.add_self_loop(dgl.to_bidirected(dgl.graph((pairs[:, 0], pairs[:, 1]), num_nodes=NODES)))
    order = torch.from_numpy(drawn.permutation(NODES))
    return graph, torch.from_numpy(features).float(), torch.from_numpy(labels).long(), order


class Net(nn.Module):
    """Two layers: GAT with four heads, or GraphSAGE (mean)."""

    num_hops = 2

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        if kind == "gat":
            self.one = GATConv(COLUMNS, 8, num_heads=4, allow_zero_in_degree=True)
            self.two = GATConv(32, CLASSES, num_heads=4, allow_zero_in_degree=True)
        else:
            self.one, self.two = SAGEConv(COLUMNS, 32, "mean"), SAGEConv(32, CLASSES, "mean")

    def forward(self, graph, x):
        h = self.one(graph, F.dropout(x, 0.3, self.training))
        h = F.elu(h.flatten(1)) if self.kind == "gat" else F.relu(h)
        h = self.two(graph, F.dropout(h, 0.3, self.training))
        return h.mean(1) if self.kind == "gat" else h


def dense(kind):
    graph, x, y, order = dense_graph()
    train, val, test = order.split([NODES * 3 // 10, NODES // 10, NODES * 6 // 10])
    with seeded(0):
        model = Net(kind)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        for _ in range(150):
            loss = F.cross_entropy(model.train()(graph, x)[train], y[train])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    game = Game(model.eval(), graph, x, hops=2)
    right = (game.logits[test].argmax(1) == y[test]).float().mean()
    degree = graph.num_edges() / NODES - 1
    return game, train, val, test, f"generated, mean degree {degree:.0f}, test accuracy {right:.2f}"


def load(name, data_dir):
    if name.startswith("dense-"):
        return dense(name.removeprefix("dense-"))
    dataset, game = setting(name, data_dir)
    return game, dataset.train, dataset.val, dataset.test, dataset.source


def truth(game, targets, pairs):
    """phi in two independent halves; of graphs from coalitions of their own."""
    players = game.players(targets)
    draw = sample_shared if game.task.local else sample
    return Reference(
        players, in_halves(*(draw(game, players, pairs // 2, generator(90_000 + half)) for half in (0, 1))), 0, ""
    )


def figures(game, explanations, against):
    others = ~explanations.is_target
    table = fidelity(game, explanations)
    average = table[table["sparsity"] == "average"].set_index("definition")["delta"]
    row = {
        "R2": against.r_squared(explanations.scores),
        "R2, neighbours": against.r_squared(explanations.scores, others),
    }
    return row | {f"Delta {definition}": average[definition] for definition in average.index}


def trust(explanations, against):
    """Rank correlation of expected and true shares, and the largest gap of the reliability curve between them."""
    others, row, count = ~explanations.is_target, explanations.players.row, len(explanations)
    phi, noise = against.estimate.phi, against.estimate.error.square()

    def total(values):
        return torch.zeros(count).index_add(0, row[others], values[others])

    error, size = total((explanations.scores - phi).square() - noise), total(phi.square() - noise)
    known = (size > 0) & ~explanations.confidence.isnan()
    said, true = explanations.confidence[known], (1 - error / size.clamp(min=1e-12))[known]
    curve = []
    for part in torch.argsort(said).chunk(BINS):
        expected = (said[part] * size[known][part]).sum() / size[known][part].sum()
        curve.append((expected.item(), (1 - error[known][part].sum() / size[known][part].sum()).item()))
    return {
        "rank correlation of confidence": spearmanr(said, true).statistic,
        "expected share": " ".join(f"{expected:.2f}" for expected, _ in curve),
        "true share": " ".join(f"{found:.2f}" for _, found in curve),
        "largest gap": max(abs(expected - found) for expected, found in curve),
    }


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seeds", default=3, show_default=True)
@click.option("--targets", "most", default=100, show_default=True, help="Test targets, at most.")
@click.option("--reference-pairs", default=6000, show_default=True, help="Coalition pairs of phi.")
@click.option("--steps", type=int, help="Of training; otherwise the usual ones.")
@click.option("--objective", help="In the place of the usual one.")
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "neighbours.csv", show_default=True)
def main(names, seeds, most, reference_pairs, steps, objective, data_dir, out):
    reuse_freed_memory()
    rows = []
    for name in names or NAMES:
        game, train, val, test, source = load(name, data_dir)
        targets = some_targets(test, most, 0)
        against = truth(game, targets, reference_pairs)
        common = {"data": name, "source": source, "targets": len(targets)}
        common["players"] = against.players.counts.float().mean().item()
        ideal = replace(Random(game).explain(targets), scores=against.estimate.phi)
        rows.append({**common, "method": "phi itself", **figures(game, ideal, against), "nodes f saw": 0.0})
        click.echo(rows[-1], err=True)
        for seed in range(seeds):
            for rival in (Random(game, seed), Sampled(game, seed), GraphSVX(game, seed)):
                before = game.nodes_asked
                found = rival.explain(targets)
                cost = {"seed": seed, "nodes f saw": (game.nodes_asked - before) / len(targets)}
                rows.append({**common, "method": found.method, **figures(game, found, against), **cost})
                click.echo({key: round(v, 3) if isinstance(v, float) else v for key, v in rows[-1].items()}, err=True)
            config = replace(default(game.task, len(train)), seed=seed)
            config = replace(config, steps=steps or config.steps, objective=objective or config.objective)
            before, started = game.nodes_asked, time.perf_counter()
            lara = LARA.of_game(game, config).fit(train, val)
            cost, spent = (game.nodes_asked - before) / game.num_targets, time.perf_counter() - started
            for method in ("lara, amortised", "lara, corrected") if lara.samples_ else ("lara, amortised",):
                found = lara.explain(targets, corrected=method.endswith("corrected"))
                row = {**common, "method": method, "seed": seed, **figures(game, found, against)}
                row |= {"nodes f saw": cost, "fit (s)": spent, **trust(found, against)}
                row["pairs"] = lara.samples_.pairs if lara.samples_ and method.endswith("corrected") else 0
                rows.append(row)
                click.echo({key: round(v, 3) if isinstance(v, float) else v for key, v in row.items()}, err=True)
            out.parent.mkdir(parents=True, exist_ok=True)
            pd.DataFrame(rows).to_csv(out, index=False, float_format="%.4f")
    click.echo(markdown(pd.DataFrame(rows)))


def markdown(table):
    """A row a method, mean ± deviation over seeds."""
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

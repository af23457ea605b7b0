"""Models that do not ship with dgl-lara, explained with default settings: the agreement of explanations with phi.

    python experiments/own_models.py [DATASET ...] [--models gat,gin,sage] [--seed 0] [--data-dir DIR]

The models are GAT, GIN and GraphSAGE with max-pooling, two layers of plain DGL each, on Cora, Citeseer and PubMed with
Planetoid's splits. `LARA(model, graph, features).fit(nodes)` learns from every node outside the test split (no labels
are needed), or from the training split. Agreement and fidelity are those of corrected scores of test nodes, unless
marked as amortised. Writes experiments/results/.
"""

import time
from dataclasses import replace
from pathlib import Path

import click
import dgl
import pandas as pd
import torch
import torch.nn.functional as F
from dgl.nn.pytorch import GATConv, GINConv, SAGEConv
from torch import nn

from dgl_lara import LARA
from dgl_lara._util.memory import reuse_freed_memory
from dgl_lara._util.randomness import generator, sample_targets, seeded
from dgl_lara.attribution.monte_carlo import Estimate, shared_least_squares
from dgl_lara.baselines.random import Random
from dgl_lara.datasets import Options, load
from dgl_lara.metrics.agreement import agreement
from dgl_lara.metrics.common.reference import Reference
from dgl_lara.metrics.fidelity import fidelity_per_target
from dgl_lara.training.config import default

NAMES, MODELS = ("cora", "citeseer", "pubmed"), ("gat", "gin", "sage")
RESULTS = Path(__file__).parent / "results"


class Net(nn.Module):
    """Two layers of DGL with dropout, as in a tutorial, without `num_hops`."""

    def __init__(self, kind, in_dim, classes, hidden=16):
        super().__init__()
        self.kind = kind
        if kind == "gat":
            self.one = GATConv(in_dim, 8, num_heads=8, allow_zero_in_degree=True)
            self.two = GATConv(64, classes, num_heads=1, allow_zero_in_degree=True)
        elif kind == "gin":
            self.one = GINConv(nn.Sequential(nn.Linear(in_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden)), "sum")
            self.two = GINConv(nn.Linear(hidden, classes), "sum")
        else:
            # DGL's pool aggregator has a square matrix of its input's width: words are brought down to `hidden` first
            self.words = nn.Linear(in_dim, hidden)
            self.one, self.two = SAGEConv(hidden, hidden, "pool"), SAGEConv(hidden, classes, "pool")

    def forward(self, graph, x):
        h = F.dropout(x, 0.5, self.training)
        h = self.one(graph, F.relu(self.words(h)) if self.kind == "sage" else h)
        h = F.elu(h.flatten(1)) if self.kind == "gat" else F.relu(h)
        h = self.two(graph, F.dropout(h, 0.5, self.training))
        return h.mean(1) if self.kind == "gat" else h


def trained(kind, graph, dataset, seed, epochs):
    """Train with Adam on the training split and keep the weights of the best validation accuracy."""
    with seeded(seed):
        model = Net(kind, dataset.features.shape[1], dataset.num_classes)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
        best, kept = 0.0, {}
        for _ in range(epochs):
            model.train()
            loss = F.cross_entropy(model(graph, dataset.features)[dataset.train], dataset.labels[dataset.train])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if (reached := accuracy(model, graph, dataset, dataset.val)) > best:
                best, kept = reached, {name: weight.clone() for name, weight in model.state_dict().items()}
    model.load_state_dict(kept)
    return model.eval()


def accuracy(model, graph, dataset, nodes):
    model.eval()
    with torch.no_grad():
        right = model(graph, dataset.features)[nodes].argmax(1) == dataset.labels[nodes]
    return right.float().mean().item()


def reference(game, targets, pairs):
    """Estimate phi from masks that all targets share, in two halves whose difference shows the noise."""
    players = game.players(targets)
    first, second = (shared_least_squares(game, players, pairs // 2, generator(1000 + half)).phi for half in (0, 1))
    phi, noise = (first + second) / 2, (first - second).square().mean() / 4
    ceiling = 1 - (noise / (phi - phi.mean()).square().mean()).item()
    error = torch.full_like(phi, noise.sqrt().item())
    return Reference(players, Estimate(phi, error), ceiling, f"{pairs} shared coalition pairs")


def above_random(game, explanations, targets):
    """Return fidelity with the target kept less that of random players: mean over targets, and in standard errors."""
    plus, minus = fidelity_per_target(game, explanations, keep_target=True)
    drawn = [fidelity_per_target(game, Random(game, seed).explain(targets), keep_target=True) for seed in range(3)]
    random_plus, random_minus = (torch.stack([each[side] for each in drawn]).mean(0) for side in (0, 1))
    row = {}
    for name, gain in (("F+", plus - random_plus), ("F-", random_minus - minus)):
        gain = gain.mean(0)
        gain = gain[~gain.isnan()].double()
        row[f"{name} gain"], row[f"{name} errors"] = (
            gain.mean().item(),
            (gain.mean() / gain.std() * len(gain) ** 0.5).item(),
        )
    return row


@click.command()
@click.argument("names", nargs=-1)
@click.option("--models", default=",".join(MODELS), show_default=True)
@click.option("--fit-on", default="outside,train", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--epochs", default=200, show_default=True, help="Of the models.")
@click.option("--steps", type=int, help="Of LARA; otherwise the usual ones.")
@click.option("--targets", "most", default=150, show_default=True, help="Test nodes whose phi is estimated, at most.")
@click.option("--reference-pairs", default=1600, show_default=True, help="Coalition pairs of phi.")
@click.option("--fidelity-targets", default=600, show_default=True, help="It needs no phi, so more are affordable.")
@click.option("--data-dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "own_models.csv", show_default=True)
def main(names, models, fit_on, seed, epochs, steps, most, reference_pairs, fidelity_targets, data_dir, out):
    reuse_freed_memory()
    rows = []
    for name in names or NAMES:
        dataset = load(name, Options(data_dir=data_dir))
        targets = sample_targets(dataset.test, most, seed)
        fidelity_sample = sample_targets(dataset.test, fidelity_targets, seed)
        outside = torch.ones(dataset.num_targets, dtype=torch.bool)
        outside[dataset.test] = False
        for kind in models.split(","):
            graph = dgl.add_self_loop(dgl.remove_self_loop(dataset.graph)) if kind == "gat" else dataset.graph
            model = trained(kind, graph, dataset, seed, epochs)
            against = None
            for chosen in fit_on.split(","):
                started = time.monotonic()
                nodes = outside.nonzero().flatten() if chosen == "outside" else dataset.train
                config = replace(default("node", len(nodes)), steps=steps) if steps else None
                lara = LARA(model, graph, dataset.features, config=config).fit(nodes)
                spent = time.monotonic() - started
                against = against or reference(lara.game, targets, reference_pairs)
                explanations = lara.explain(targets)
                agreed = agreement(explanations, against)
                alone = agreement(lara.explain(targets, corrected=False), against)
                rows.append(
                    {
                        "dataset": name,
                        "model": kind,
                        "test accuracy": accuracy(model, graph, dataset, dataset.test),
                        "hops": lara.game.hops,
                        "fit on": chosen,
                        "seconds": spent,
                        "R2": agreed["R2 corrected"],
                        "R2 neighbours": agreed["neighbours only"],
                        "R2, amortised": alone["R2 corrected"],
                        "R2 neighbours, amortised": alone["neighbours only"],
                        "R2 raw": agreed["R2"],
                        "noise ceiling": agreed["noise ceiling"],
                        "rank correlation": agreed["rank correlation"],
                        **above_random(lara.game, lara.explain(fidelity_sample), fidelity_sample),
                    }
                )
                click.echo({key: round(v, 3) if isinstance(v, float) else v for key, v in rows[-1].items()}, err=True)
                pd.DataFrame(rows).to_csv(out, index=False, float_format="%.4f")


if __name__ == "__main__":
    main()

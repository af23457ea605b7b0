"""When `fit` prints its first status on a dense graph, how long it is silent at most, and the cost of validation.

    python experiments/first_second.py                       # 11,000 nodes, 500,000 undirected edges
    python experiments/first_second.py --nodes 300 --edges 3000

It generates a graph with random features and a GraphSAGE with random weights. Few steps are trained. The share of
validation in a training of default length is computed from the time of a step.
"""

import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from statistics import median

import click
import dgl
import torch

from dgl_lara import LARA
from dgl_lara._util.randomness import seeded
from dgl_lara._util.tables import markdown_table
from dgl_lara.gnns.models import GNN, ModelConfig
from dgl_lara.training import loop
from dgl_lara.training.backend import InMemory
from dgl_lara.training.config import default
from dgl_lara.training.validation import AttributionValidator


class Listening:
    """A stream that passes text on and records when it came."""

    def __init__(self, stream):
        self.stream, self.moments = stream, [time.monotonic()]

    def write(self, text):
        self.moments.append(time.monotonic())
        return self.stream.write(text)

    def flush(self):
        self.stream.flush()

    def isatty(self):
        return False

    @property
    def silences(self):
        """Return the seconds between outputs, the last until now."""
        ends = [*self.moments[1:], time.monotonic()]
        return [end - start for start, end in zip(self.moments, ends, strict=True)]


@contextmanager
def timed(owner, *names):
    """Record the seconds of each call of functions."""
    originals = {name: getattr(owner, name) for name in names}
    spent: dict[str, list[float]] = {name: [] for name in names}

    def listened(name):
        def call(*arguments):
            started = time.monotonic()
            found = originals[name](*arguments)
            spent[name].append(time.monotonic() - started)
            return found

        return call

    try:
        for name in names:
            setattr(owner, name, listened(name))
        yield spent
    finally:
        for name in names:
            setattr(owner, name, originals[name])


def dense(nodes, edges, seed=0):
    """Return a graph in both directions, its features, and a model of two layers."""
    with seeded(seed):
        ends = torch.randint(nodes, (2, edges))
        graph = dgl.to_simple(dgl.graph((ends.flatten(), ends.flip(0).flatten()), num_nodes=nodes), return_counts=None)
        features = torch.randn(nodes, 10)
        model = GNN(ModelConfig("sage", "node", 10, 4, hidden=32, layers=2)).eval()
    return graph, features, model


@click.command()
@click.option("--nodes", default=11_000, show_default=True)
@click.option("--edges", default=500_000, show_default=True, help="Undirected ones.")
@click.option("--steps", default=20, show_default=True)
def main(nodes, edges, steps):
    graph, features, model = dense(nodes, edges)
    usual = default("node", nodes)
    lara = LARA(model, graph, features, config=replace(usual, steps=steps))
    sys.stderr = listening = Listening(sys.stderr)
    try:
        with (
            timed(InMemory, "validator", "step") as spent,
            timed(loop, "update") as moved,
            timed(AttributionValidator, "score") as requested,
        ):
            lara.fit(range(nodes))
        silences, full = listening.silences, time.monotonic() - listening.moments[0]
    finally:
        sys.stderr = listening.stream
    made, step = sum(spent["validator"]), median(spent["step"]) + median(moved["update"])
    first, *later = requested["score"]
    judging = made + first + (loop.CHECKS - 1) * median(later)
    rows = [
        ["nodes, directed edges", f"{graph.num_nodes():,}, {graph.num_edges():,}"],
        ["players a target, mean", f"{lara.game.players(torch.arange(0, nodes, 97)).counts.float().mean():,.0f}"],
        ["the first word of fit after (s)", f"{silences[0]:.1f}"],
        ["the longest silence (s)", f"{max(silences):.1f}"],
        ["asking f for the judge (s)", f"{made:.1f}"],
        ["its first verdict, with phi (s)", f"{first:.1f}"],
        ["a later verdict (s)", f"{median(later):.2f}"],
        ["a step (s)", f"{step:.2f}"],
        [f"the judge's share of fit, these {steps} steps", f"{(made + first + sum(later)) / full:.0%}"],
        [f"worked out for the usual {usual.steps} steps", f"{judging / (judging + usual.steps * step):.0%}"],
    ]
    click.echo(markdown_table(["what", "figure"], rows))


if __name__ == "__main__":
    main()

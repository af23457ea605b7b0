"""Time and memory of explaining all targets, as a function of nodes, edges, hops, dim and batch size.

    python experiments/scaling.py [--repeats 3] [--nodes 100000] [--only KNOB [--values 1,2,3]]

The data is `citation`, generated, with every edge in both directions unless directed. f and g are untrained, which
hardly changes their cost (trained ones are in bulk_speed.md). Every setting runs in a process of its own, for its peak
memory. Writes scaling.csv (scaling-KNOB.csv for one sweep) and scaling-*.png to experiments/results/. See
experiments/scaling.md.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

RESULTS = Path(__file__).parent / "results"
BASE: dict[str, float] = {"nodes": 100_000, "directed nodes": 0, "kept edges": 1.0, "hops": 2, "dim": 20, "batch": 8192}
SWEEPS: dict[str, list[float]] = {
    "nodes": [12_500, 25_000, 50_000, 100_000, 200_000],
    "directed nodes": [50_000, 100_000, 200_000, 400_000, 800_000, 1_600_000],  # edges in their own direction only
    "kept edges": [0.25, 0.5, 0.75, 1.0],
    "hops": [1, 2, 3],
    "dim": [5, 10, 20, 40, 80],
    "batch": [64, 512, 4096, 32_768],
}
HIDDEN, CLASSES, TOP = 64, 40, 20


def one(setting, repeats):
    """Return the seconds of each part and the peak memory of one setting."""
    import dgl

    from dgl_lara.datasets import Options, load
    from dgl_lara.explainer.inputs import explainer_inputs
    from dgl_lara.explainer.network import Explainer, ExplainerConfig
    from dgl_lara.game.game import Game
    from dgl_lara.inference.export import explain_to_file
    from dgl_lara.inference.scorer import Scorer, embed_all

    nodes, directed, kept, hops, dim, batch = setting.values()
    nodes = directed or nodes
    data = load("citation", Options(nodes=nodes))
    data = data if directed else data.to_undirected()
    src, dst = data.graph.edges()
    chosen = torch.rand(len(src), generator=torch.Generator().manual_seed(0)) < kept
    graph = dgl.graph((src[chosen], dst[chosen]), num_nodes=nodes)
    weight = torch.randn(data.features.shape[1], CLASSES, generator=torch.Generator().manual_seed(1))
    game = Game.create(lambda g, x: dgl.ops.copy_u_sum(g, x @ weight) + x @ weight, graph, data.features, "node", hops)
    torch.manual_seed(0)
    width = explainer_inputs(game, "rich", torch.arange(2)).shape[1]
    explainer = Explainer(ExplainerConfig("node", width, CLASSES, hops, hops, HIDDEN, dim)).eval()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spent: dict[str, list[float]] = {"pass": [], "scores": [], "file": []}
    for _ in range(repeats):
        start = time.perf_counter()
        embeddings = embed_all(explainer, game, "rich")
        spent["pass"].append(time.perf_counter() - start)
        bulk = Scorer(explainer, game, embeddings)
        bulk.top(torch.arange(2), TOP)  # compiled, or read from the cache
        start = time.perf_counter()
        for part in torch.arange(nodes).split(batch):
            bulk.top(part, TOP)
        spent["scores"].append(time.perf_counter() - start)
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            explain_to_file(bulk, torch.arange(nodes), TOP, Path(folder) / "e.parquet", {})
            spent["file"].append(time.perf_counter() - start)
    figures = {"edges": float(graph.num_edges()), **{part: float(np.median(each)) for part, each in spent.items()}}
    figures["walks"] = float(game.cost_bound.sum())
    figures["memory (GB)"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    figures["memory before (GB)"] = before / 2**20
    return figures


def plot(table, knob, out):
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
    for name, label in (("pass", "pass of g"), ("scores", "scores, top 20"), ("file", "scores and Parquet file")):
        left.plot(table[knob], table[name], "o-", label=label)
    left.set(xlabel=knob, ylabel="seconds, all nodes", xscale="log", yscale="log")
    left.legend(fontsize=7)
    right.plot(table[knob], table["memory (GB)"], "o-", label="peak")
    right.plot(table[knob], table["memory before (GB)"], "o--", label="before: libraries, graph, features")
    right.set(xlabel=knob, ylabel="memory (GB)", xscale="log", ylim=(0, None))
    right.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(out / f"scaling-{knob.replace(' ', '-')}.png", dpi=110)
    plt.close(figure)


@click.command()
@click.option("--repeats", default=3, show_default=True)
@click.option("--nodes", default=BASE["nodes"], show_default=True, help="Of the graph, where they do not vary.")
@click.option("--only", type=click.Choice(list(SWEEPS)), help="One sweep.")
@click.option("--values", help="Of that sweep, with commas between them; otherwise the usual ones.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
@click.option("--setting", hidden=True, help="One setting as JSON, for the processes that this one starts.")
def main(repeats, nodes, only, values, out, setting):
    if setting:
        print("FIGURES" + json.dumps(one(json.loads(setting), repeats)))
        return
    if values and not only:
        raise click.UsageError("--values are those of one sweep: name it with --only.")
    sweeps = {only: json.loads(f"[{values}]") if values else SWEEPS[only]} if only else SWEEPS
    out.mkdir(parents=True, exist_ok=True)
    tables = []
    for knob, tried in sweeps.items():
        rows = []
        for value in tried:
            settings = json.dumps({**BASE, "nodes": nodes, knob: value})
            command = [sys.executable, __file__, "--repeats", str(repeats), "--setting", settings]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # its errors are shown
            rows.append({"sweep": knob, knob: value, **json.loads(done.stdout.split("FIGURES")[1])})
            print(rows[-1], flush=True)
        tables.append(pd.DataFrame(rows))
        plot(tables[-1], knob, out)
    name = f"scaling-{only.replace(' ', '-')}.csv" if only else "scaling.csv"
    pd.concat(tables).to_csv(out / name, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()

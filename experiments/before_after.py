"""Compare the speed and memory of two checkouts of this repository.

    python experiments/before_after.py ../old .             # 5 rounds, the checkouts take turns
    python experiments/before_after.py ../old . --clock wall --threads 2

Each round runs this file once for each checkout, in a process of its own. The table has the medians of all rounds.
The default clock counts processor time, which depends less on other work on the machine. Differences of 3 % can only be
seen on a machine without other work. Both checkouts need the Python environment that runs this file.
"""

import asyncio
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import click
import dgl
import torch

SHORT, LONG = 15, 3  # repeats of what takes a moment, and of a training
OPENING = ("dgl_lara.runs.run:open_run", "dgl_lara.runs:open_run")
SERVED = ("dgl_lara.serve.model:ServedModel", "dgl_lara.serve.served:ServedModel")
NAMES = {
    "bulk": "best 20 players of all nodes",
    "amortised": "all players of all nodes",
    "corrected": "corrected scores of 500 nodes",
    "one": "one stored node in Python",
    "training": "20 training steps, small graph",
    "computed": "300 requests, computed",
    "repeated": "300 requests, from the table",
    "import": "import of LARA",
    "help": "dgl-lara --help",
    "memory": "peak memory (MB)",
}


class Convolutions(torch.nn.Module):
    """A graph convolution of two layers with random weights."""

    num_hops = 2

    def __init__(self):
        super().__init__()
        drawn = torch.Generator().manual_seed(0)
        self.first = torch.nn.Parameter(torch.randn(16, 32, generator=drawn) / 4)
        self.second = torch.nn.Parameter(torch.randn(32, 4, generator=drawn) / 6)

    def forward(self, graph, x):
        scale = (graph.in_degrees().float() + 1).rsqrt().unsqueeze(1)
        for weight in (self.first, self.second):
            x = (x.relu() if weight is self.second else x) @ weight * scale
            x = (dgl.ops.copy_u_sum(graph, x) + x) * scale
        return x


def build_model(in_dim, num_classes):
    return Convolutions()


def random_graph(nodes):
    """Return a graph in which a node has four neighbours on average."""
    drawn = torch.Generator().manual_seed(nodes)
    u, v = torch.randint(nodes, (2, 2 * nodes), generator=drawn)
    graph = dgl.to_simple(dgl.graph((torch.cat([u, v]), torch.cat([v, u])), num_nodes=nodes), return_counts=None)
    graph = dgl.remove_self_loop(graph)
    graph.ndata["feat"] = torch.randn(nodes, 16, generator=drawn)
    graph.ndata["label"] = torch.arange(nodes) % 4
    return graph


def find(*places):
    """Return the first of these functions or classes, "module:name", that this checkout has."""
    for index in places:
        module, _, name = index.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise SystemExit(f"this checkout has none of {', '.join(places)}; add its name to {Path(__file__).name}.")


def cpu_time():
    """Return the processor time of this process and of the processes that it has started."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


CLOCKS = {"cpu": cpu_time, "wall": time.perf_counter}


def clock():
    return CLOCKS[os.environ["BEFORE_AFTER_CLOCK"]]()


def seconds(work, repeats=SHORT):
    """Return the median time of `work`, after one call that is not counted."""
    work()
    taken = []
    for _ in range(repeats):
        start = clock()
        work()
        taken.append(clock() - start)
    return median(taken)


def measure_explaining(found, nodes):
    from dgl_lara import LARA, TrainingConfig

    graph = random_graph(nodes)
    config = TrainingConfig(steps=3, hidden=32, dim=16, masks=2, shared_pairs=60)
    lara = LARA(Convolutions(), graph, graph.ndata["feat"], hops=2, config=config).fit(range(0, nodes, 10))
    lara.embed()
    every, some = torch.arange(nodes), torch.arange(nodes)[:4_000:8]
    found["bulk"] = seconds(lambda: lara.top(every, 20))
    found["amortised"] = seconds(lambda: lara.explain(every, corrected=False))
    found["corrected"] = seconds(lambda: lara.explain(some))
    found["one"] = seconds(lambda: lara.explain([5], corrected=False), 100)


def measure_training(found, count):
    from dgl_lara import LARA, TrainingConfig

    graph, config = random_graph(count), TrainingConfig(steps=20, shared_pairs=0)
    nodes = torch.arange(count)

    def train():
        lara = LARA(Convolutions(), graph, graph.ndata["feat"], hops=2, config=config)
        lara.fit(nodes[count // 10 :], nodes[: count // 10])

    found["training"] = seconds(train, LONG)


def measure_serving(found, folder, nodes):
    from click.testing import CliRunner

    cli, make_app = find("dgl_lara.cli:main"), find("dgl_lara.serve.app:make_app")
    dgl.save_graphs(f"{folder}/graph.bin", [random_graph(nodes)])
    words = ["train", "--graph", f"{folder}/graph.bin", "--model", "before_after:build_model", "--out", f"{folder}/run"]
    words += ["--hidden", "16", "--dim", "8", "--masks", "2", "--epochs", "3", "--shared-pairs", "60"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    app = make_app([find(*SERVED)("m", find(*OPENING)(Path(folder) / "run", trust=True), Path(folder) / "state")])
    warm, requested = range(nodes - 20, nodes), range(300)
    asyncio.run(request_all(app, warm))
    for name in ("computed", "repeated"):
        start = clock()
        asyncio.run(request_all(app, requested))
        found[name] = clock() - start


async def request_all(app, nodes):
    """Ask the application for one node after the other, without a network."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
             "path": "/v1/models/m:explain", "raw_path": b"/v1/models/m:explain", "query_string": b"",
             "root_path": "", "client": ("127.0.0.1", 1), "server": ("localhost", 80)}  # fmt: skip
    for node in nodes:
        body = json.dumps({"instances": [{"node": node}]}).encode()
        status: list[int] = []
        sent = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive(sent=sent):
            return sent.pop() if sent else await asyncio.Event().wait()

        async def send(message, status=status):
            if message["type"] == "http.response.start":
                status.append(message["status"])

        length = (b"content-length", str(len(body)).encode())
        await app({**scope, "headers": [*headers, length]}, receive, send)
        assert status == [200], status


def measure_start(found):
    for name, words in (("import", ["-c", "from dgl_lara import LARA"]), ("help", ["-m", "dgl_lara", "--help"])):
        start = clock()
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        found[name] = clock() - start


def measure(checkout, large, small):
    """Return every figure of the checkout that this process imports."""
    import dgl_lara

    imported = Path(dgl_lara.__file__).parents[1]
    assert imported == checkout, f"the package comes from {imported}, not from {checkout}"
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DGL_LARA_CACHE"] = folder
        measure_explaining(found, large)
        measure_training(found, small)
        measure_serving(found, folder, small)
    found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    measure_start(found)
    return found


def run(checkout, threads, chosen, *sizes):
    """Return the figures of a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": str(threads)}
    environment |= {"NUMBA_NUM_THREADS": str(threads), "BEFORE_AFTER_CLOCK": chosen}
    words = [sys.executable, __file__, str(checkout), "--child", *sizes]
    done = subprocess.run(words, env=environment, cwd=Path(__file__).parent, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{checkout} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


@click.command()
@click.argument("old", type=click.Path(exists=True, path_type=Path))
@click.argument("new", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--rounds", default=5, show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--clock", "chosen", type=click.Choice(list(CLOCKS)), default="cpu", show_default=True)
@click.option("--large", default=20_000, show_default=True, help="Nodes of the graph that is explained.")
@click.option("--small", default=3_000, show_default=True, help="Nodes of the graph to train on and to serve.")
@click.option("--child", is_flag=True, hidden=True)
def main(old, new, rounds, threads, chosen, large, small, child):
    """Print a table of OLD, NEW and their ratio."""
    if child:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        print(json.dumps(measure(old.resolve(), large, small)))
        return
    if new is None:
        raise click.UsageError("name two checkouts, the old one and the new one.")
    sizes = ("--large", str(large), "--small", str(small))
    places = {"old": old.resolve(), "new": new.resolve()}
    figures: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
    for number in range(rounds):
        for which in ("old", "new") if number % 2 == 0 else ("new", "old"):
            figures[which].append(run(places[which], threads, chosen, *sizes))
            print(f"round {number + 1} of {rounds}: {which}", file=sys.stderr)
    print(f"| {chosen} seconds | old | new | new / old |\n|---|---|---|---|")
    for key, name in NAMES.items():
        before, after = (median(row[key] for row in figures[which]) for which in ("old", "new"))
        print(f"| {name} | {before:,.4g} | {after:,.4g} | {after / before:.3f} |")


if __name__ == "__main__":
    main()

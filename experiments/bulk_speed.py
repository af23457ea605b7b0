"""How fast explaining in bulk is: throughput, latency, growth, the paper's way for comparison, and where the time goes.

    python experiments/bulk_speed.py --directed RUN --undirected RUN [--repeats 5]

RUN are trained run folders of ogbn-arxiv (`dgl-lara train --dataset ogbn-arxiv [--undirected]`). What is compared is
measured in turns in one process. Writes experiments/results/bulk_speed.md.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numba
import numpy as np
import torch

from dgl_lara import bulk as kernel
from dgl_lara.inference.export import top_frame
from dgl_lara.inference.scores import explain, explain_nearby
from dgl_lara.inference.top_players import BulkExplainer
from dgl_lara.runs import open_run
from dgl_lara.utils.tables import markdown_table

RESULTS = Path(__file__).parent / "results"
TOP = 20
PAPER_BATCH = 64  # targets whose 2K-hop subgraph is embedded together, the paper's batch
PAPER_TARGETS = 512
GROWTH = (1, 10, 100, 1_000, 10_000, 100_000)


def timed(what, repeats):
    """Median seconds."""
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        what()
        spent.append(time.perf_counter() - start)
    return float(np.median(spent))


@numba.njit(parallel=True, nogil=True)
def walk_only(indptr, sources, scale, p, t, targets, gate, hops, workers):
    """The kernel's walk without its last dot products and without choosing the best."""
    for worker in numba.prange(workers):
        nodes = len(indptr) - 1
        total, weight, now = np.zeros(nodes, np.float32), np.zeros(nodes, np.float32), np.empty(nodes, np.float32)
        distance = np.full(nodes, -1, np.int8)
        here, there, seen = np.empty(nodes, np.int32), np.empty(nodes + 1, np.int32), np.empty(nodes, np.int32)
        for row in range(worker, len(targets), workers):
            count, reached = kernel._walk(
                indptr, sources, scale, p, t[:, row], targets[row], gate, hops,
                total, weight, distance, here, there, seen, now,
            )  # fmt: skip
            for place in range(count):
                distance[seen[place]] = -1
            for place in range(reached):
                weight[there[place]] = 0


def copy_bandwidth(repeats):
    """GB/s of a plain copy, reading and writing counted."""
    source = torch.ones(2**28)
    target = torch.empty_like(source)
    return 2 * source.nbytes / timed(lambda: target.copy_(source), repeats) / 1e9


def measure(run, repeats, say):
    explainer = run.explainer()
    bulk = BulkExplainer(explainer, run.game, run.embeddings(explainer))
    game, everyone = run.game, torch.arange(run.game.num_targets)
    target = bulk._by_term(explainer.for_class(bulk.embeddings.target, game.explained_class).detach())
    gate = kernel.GATES.index(explainer.config.gate)
    workers = numba.get_num_threads()
    shared = (bulk.indptr, bulk.sources, bulk.scale, bulk.source, target, everyone.numpy(), gate, game.hops, workers)
    bulk.top(everyone[:10], TOP)
    walk_only(*shared[:5], everyone.numpy()[:10], *shared[6:])
    length = bulk.length
    times = {"as it is": [], "every dot product": [], "walk only": [], "copy": []}
    for _ in range(repeats):
        times["as it is"].append(timed(lambda: bulk.top(everyone, TOP), 1))
        bulk.length = np.full_like(length, np.inf)
        times["every dot product"].append(timed(lambda: bulk.top(everyone, TOP), 1))
        bulk.length = length
        times["walk only"].append(timed(lambda: walk_only(*shared), 1))
        times["copy"].append(copy_bandwidth(1))
    result = {name: float(np.median(values)) for name, values in times.items()}
    result["best"] = bulk.top(everyone, TOP)
    result["pairs"] = sum(int(game.players(part).counts.sum()) for part in everyone.split(2048))
    say(f"kernel: {result['as it is']:.2f} s, {result['pairs']:,} pairs")
    order = torch.randperm(len(everyone), generator=torch.Generator().manual_seed(0))
    result["growth"] = {n: timed(lambda n=n: bulk.top(order[:n], TOP), 3 * repeats) for n in GROWTH}
    singles = iter(order.tolist())
    result["one, kernel"] = timed(lambda: bulk.top(torch.tensor([next(singles)]), TOP), 200)
    result["one, all scores"] = timed(lambda: run.explain(explainer, torch.tensor([next(singles)])), 200)
    say(f"one target: {1e3 * result['one, kernel']:.2f} ms")
    result["paper"] = against_the_paper(run, bulk, explainer, order, result["as it is"] / len(everyone), say)
    return result


def against_the_paper(run, bulk, explainer, order, ours_each, say):
    """The per-batch 2K-hop forward (Eq. 12), in turns with ours on the same targets; and the largest difference."""
    kind = run.config.training.inputs
    sample = order[:PAPER_TARGETS]
    paper, ours, difference = [], [], 0.0
    for batch in sample.split(PAPER_BATCH):
        start = time.perf_counter()
        result = explain_nearby(explainer, run.game, kind, batch)
        paper.append(time.perf_counter() - start)
        ours.append(timed(lambda b=batch: bulk.top(b, TOP), 1))
        expected = explain(explainer, run.game, bulk.embeddings, batch).scores
        difference = max(difference, float((result.scores - expected).abs().max() / expected.abs().max()))
    say(f"paper's way: {PAPER_BATCH / np.median(paper):.0f} a second")
    return {
        "paper a second": PAPER_BATCH / float(np.median(paper)),
        "ratio, same batches": float(np.median(np.array(paper) / np.array(ours))),
        "ratio, whole graph": float(np.median(paper)) / PAPER_BATCH / ours_each,
        "difference": difference,
    }


def end_to_end(run, say):
    """The command, in a process of its own: seconds and peak memory, without and with stored embeddings."""
    rows = {}
    for stored in (False, True):
        if not stored:
            (run / "embeddings.pt").unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            out = f"{folder}/e.parquet"
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            command = [sys.executable, "-m", "dgl_lara", "explain", "--run", str(run), "--all", "--out", out]
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            spent = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        rows[stored] = (spent, max(peak, before) / 2**20)
        say(f"end to end, {'with' if stored else 'without'} store: {spent:.1f} s, {peak / 2**20:.1f} GB")
    return rows


def shares(result):
    """Where the time of a whole export goes."""
    walk, all_dots, whole = result["walk only"], result["every dot product"], result["as it is"]
    start = time.perf_counter()
    frame = top_frame(result["best"])
    framing = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        frame.to_parquet(f"{folder}/e.parquet", index=False)
        writing = 2 * (time.perf_counter() - start)  # parts first, then the file
    dot_bytes = 4 * result["dim"] * result["pairs"]
    reached = dot_bytes / max(all_dots - walk, 1e-9) / 1e9
    return {
        "walk (sparse product)": walk,
        "dot products and choice": whole - walk,
        "the same without passing over": all_dots - walk,
        "table": framing,
        "writing": writing,
    }, f"{reached:.1f} GB/s of embeddings read for dot products, {reached / result['copy']:.0%} of a plain copy's " \
       f"{result['copy']:.1f} GB/s"  # fmt: skip


@click.command()
@click.option("--directed", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--undirected", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--repeats", default=5, show_default=True)
def main(directed, undirected, repeats):
    lines = ["# Explaining in bulk", "", "Made by `experiments/bulk_speed.py`; medians.", ""]
    rows, growth, profile, notes = [], [], [], []
    for name, folder in (("directed", directed), ("undirected", undirected)):
        say = lambda text, name=name: print(f"{name}: {text}", flush=True)  # noqa: E731
        whole = end_to_end(folder, say)
        run = open_run(folder, torch.device("cpu"))
        result = measure(run, repeats, say)
        result["dim"] = run.explainer().config.dim
        count, paper = run.game.num_targets, result["paper"]
        rows += [
            [name, "players a target", f"{result['pairs'] / count:,.0f}"],
            [name, f"explanations a second, top {TOP} (scores)", f"{count / result['as it is']:,.0f}"],
            [name, "pairs a second, every dot product made", f"{result['pairs'] / result['every dot product']:,.0f}"],
            [name, "all nodes into Parquet, nothing stored", f"{whole[False][0]:.1f} s, {whole[False][1]:.1f} GB"],
            [name, "all nodes into Parquet, embeddings stored", f"{whole[True][0]:.1f} s, {whole[True][1]:.1f} GB"],
            [name, f"one target, top {TOP}, store present", f"{1e3 * result['one, kernel']:.2f} ms"],
            [
                name,
                "one target, all scores, store present",
                f"{1e3 * result['one, all scores']:.2f} ms",
            ],
            [name, f"the paper's way, batches of {PAPER_BATCH}", f"{paper['paper a second']:,.0f} a second"],
            [name, "times the paper's way, same batches", f"{paper['ratio, same batches']:,.0f}"],
            [name, "times the paper's way, whole graph", f"{paper['ratio, whole graph']:,.0f}"],
            [name, "largest difference of scores, of the largest score", f"{paper['difference']:.1e}"],
        ]
        growth.append([name, *(f"{1e3 * seconds:,.2f}" for seconds in result["growth"].values())])
        parts, note = shares(result)
        total = parts["walk (sparse product)"] + parts["dot products and choice"] + parts["table"] + parts["writing"]
        for part, seconds in parts.items():
            aside = part.startswith("the same")  # for comparison, not a part of the whole
            profile.append([name, part, f"{seconds:.2f}", "-" if aside else f"{seconds / total:.0%}"])
        notes.append(f"{name}: {note}.")
        about = f"{run.dataset.name} ({run.dataset.source}), K = {run.game.hops}, dim {result['dim']}"
    lines += [f"Data: {about}; {torch.get_num_threads()} threads.", ""]
    lines += [markdown_table(["graph", "what", "figure"], rows), "", "## Time against targets (milliseconds)", ""]
    lines += [markdown_table(["graph", *(f"{n:,}" for n in GROWTH)], growth), "", "## Where the time goes", ""]
    lines += [markdown_table(["graph", "part", "seconds", "share"], profile), "", *notes, ""]
    (RESULTS / "bulk_speed.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

"""The speed of bulk explanation: throughput, latency, growth, comparison with the paper's way, and parts of the time.

    python experiments/bulk_speed.py --directed RUN --undirected RUN [--repeats 5]

RUN are trained run folders of ogbn-arxiv (`dgl-lara train --dataset ogbn-arxiv [--undirected]`). One is enough. Their
stored embeddings are computed again. Compared ways are measured alternately in one process. Writes
experiments/results/bulk_speed.md.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import click
import numpy as np
import torch
from common import seconds_of

from dgl_lara._util.numba_threads import kernel, run_in_threads
from dgl_lara._util.tables import markdown_table
from dgl_lara.errors import InputError
from dgl_lara.inference.kernels.walk import WalkKernel, by_term, walk
from dgl_lara.inference.local import explain_nearby
from dgl_lara.inference.rows import top_frame
from dgl_lara.inference.scorer import Scorer, TopPlayers, fastest_kernel
from dgl_lara.runs.open import open_run

RESULTS = Path(__file__).parent / "results"
TOP = 20
PAPER_BATCH = 64  # targets whose 2K-hop subgraph is embedded together, the paper's batch
PAPER_TARGETS = 512
GROWTH = (1, 10, 100, 1_000, 10_000, 100_000)


@dataclass
class Measured:
    """Medians for one graph, in seconds unless stated otherwise."""

    best: TopPlayers
    pairs: int  # (target, player) pairs of all targets
    whole: float  # the kernel on all targets
    every_dot: float  # the same without passing over players that cannot be among the best
    walk: float  # the walk alone
    copy: float  # GB/s
    growth: dict[int, float]  # number of targets -> seconds
    one_top: float
    one_all: float
    paper: dict[str, float]


def timed(what, repeats):
    """Return the median seconds."""
    return float(np.median(seconds_of(what, repeats)))


@kernel()
def walk_only(worker, workers, indptr, sources, scale, p, t, targets, gate, hops):
    """Run the kernel's walk without its last dot products and without choosing the best players."""
    nodes = len(indptr) - 1
    total, weight, now = np.zeros(nodes, np.float32), np.zeros(nodes, np.float32), np.empty(nodes, np.float32)
    distance = np.full(nodes, -1, np.int8)
    here, there, seen = np.empty(nodes, np.int32), np.empty(nodes + 1, np.int32), np.empty(nodes, np.int32)
    for row in range(worker, len(targets), workers):
        count, reached = walk(
            indptr, sources, scale, p, t[:, row], targets[row], gate, hops,
            total, weight, distance, here, there, seen, now,
        )  # fmt: skip
        for place in range(count):
            distance[seen[place]] = -1
        for place in range(reached):
            weight[there[place]] = 0


def walk_all(bulk, targets):
    """Run `walk_only` on the arrays of `bulk.top`."""
    walks, game = bulk._fastest, bulk.game
    t = bulk.explainer.for_class(bulk.embeddings.target[targets], game.query(targets))
    run_in_threads(
        walk_only, len(targets), walks.indptr, walks.sources, walks.scale, walks.source, by_term(t, walks.config.terms),
        targets.numpy(), walks.gate, walks.hops,
    )  # fmt: skip


def copy_bandwidth(megabytes):
    """Return the GB/s of a plain copy, reading and writing counted."""
    source = torch.ones(megabytes * 2**18)
    target = torch.empty_like(source)
    return 2 * source.nbytes / timed(lambda: target.copy_(source), 1) / 1e9


def measure(run, repeats, singles, copied, say):
    lara = run.trained()
    bulk, game = lara.scorer(), run.game
    if fastest_kernel(bulk.explainer, bulk.game) is not WalkKernel:
        raise InputError("the kernel is for node tasks on the CPU, with a gate that it knows.")
    every_target = torch.arange(game.num_targets)
    bulk.top(every_target[:10], TOP)  # both are compiled before anything is measured
    walk_all(bulk, every_target[:10])
    length = bulk._fastest.length
    never = np.full_like(length, np.inf)  # a player of infinite length is never skipped
    whole, every_dot, walking, copying = [], [], [], []
    for _ in range(repeats):
        whole.append(timed(lambda: bulk.top(every_target, TOP), 1))
        bulk._fastest.length = never
        every_dot.append(timed(lambda: bulk.top(every_target, TOP), 1))
        bulk._fastest.length = length
        walking.append(timed(lambda: walk_all(bulk, every_target), 1))
        copying.append(copy_bandwidth(copied))
    seconds, pairs = (
        float(np.median(whole)),
        sum(int(game.players(part).counts.sum()) for part in every_target.split(2048)),
    )
    say(f"kernel: {seconds:.2f} s, {pairs:,} pairs")
    order = torch.randperm(len(every_target), generator=torch.Generator().manual_seed(0))
    counts = [count for count in GROWTH if count <= len(every_target)]
    growth = {n: timed(lambda n=n: bulk.top(order[:n], TOP), 3 * repeats) for n in counts}
    drawn = cycle(order.split(1))
    one_top = timed(lambda: bulk.top(next(drawn), TOP), singles)
    one_all = timed(lambda: lara.explain(next(drawn)), singles)
    say(f"one target: {1e3 * one_top:.2f} ms")
    return Measured(
        best=bulk.top(every_target, TOP),
        pairs=pairs,
        whole=seconds,
        every_dot=float(np.median(every_dot)),
        walk=float(np.median(walking)),
        copy=float(np.median(copying)),
        growth=growth,
        one_top=one_top,
        one_all=one_all,
        paper=against_the_paper(lara, bulk, order, seconds / len(every_target), say),
    )


def against_the_paper(lara, bulk, order, ours_each, say):
    """Time the per-batch 2K-hop forward (Eq. 12) and ours alternately, and return their largest difference."""
    paper, ours, difference = [], [], 0.0
    for batch in order[:PAPER_TARGETS].split(PAPER_BATCH):
        start = time.perf_counter()
        result = explain_nearby(lara.explainer_, lara.game, lara.config_.inputs, batch)
        paper.append((time.perf_counter() - start) / len(batch))
        ours.append(timed(lambda b=batch: bulk.top(b, TOP), 1) / len(batch))
        expected = Scorer(lara.explainer_, lara.game, bulk.embeddings).explain(batch).scores
        difference = max(difference, float((result.scores - expected).abs().max() / expected.abs().max()))
    each = float(np.median(paper))
    say(f"paper's way: {1 / each:.0f} a second")
    return {
        "paper a second": 1 / each,
        "ratio, same batches": float(np.median(np.array(paper) / np.array(ours))),
        "ratio, whole graph": each / ours_each,
        "difference": difference,
    }


def end_to_end(run, say):
    """Run the command. Return seconds and peak memory (GB), without and with stored embeddings."""
    rows = {}
    for stored in (False, True):
        if not stored:
            (run / "embeddings.pt").unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as folder, Path(folder, "said").open("w+") as said:
            command = [sys.executable, "-m", "dgl_lara", "explain", "--run", str(run), "--all"]
            start = time.perf_counter()
            process = subprocess.Popen([*command, "--out", f"{folder}/e.parquet"], stdout=said, stderr=said)
            # of this process alone; what all children had at their peak would hide the smaller of two
            _, status, used = os.wait4(process.pid, 0)
            spent = time.perf_counter() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                said.seek(0)
                raise RuntimeError(f"{' '.join(command)} failed:\n{said.read()}")
        rows[stored] = (spent, used.ru_maxrss / 2**20)
        say(f"end to end, {'with' if stored else 'without'} store: {spent:.1f} s, {rows[stored][1]:.1f} GB")
    return rows


def shares(found, dim):
    """Return the parts of the time of a full export."""
    start = time.perf_counter()
    frame = top_frame(found.best)
    framing = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        frame.to_parquet(f"{folder}/e.parquet", index=False)
        writing = 2 * (time.perf_counter() - start)  # parts first, then the file
    reached = 4 * dim * found.pairs / max(found.every_dot - found.walk, 1e-9) / 1e9
    return {
        "walk (sparse product)": found.walk,
        "dot products and choice": found.whole - found.walk,
        "the same without passing over": found.every_dot - found.walk,
        "table": framing,
        "writing": writing,
    }, f"{reached:.1f} GB/s of embeddings read for dot products, {reached / found.copy:.0%} of a plain copy's " \
       f"{found.copy:.1f} GB/s"  # fmt: skip


def figures(name, found, whole, count):
    paper = found.paper
    return [
        [name, "players a target", f"{found.pairs / count:,.0f}"],
        [name, f"explanations a second, top {TOP} (scores)", f"{count / found.whole:,.0f}"],
        [name, "pairs a second, every dot product made", f"{found.pairs / found.every_dot:,.0f}"],
        [name, "all nodes into Parquet, nothing stored", f"{whole[False][0]:.1f} s, {whole[False][1]:.1f} GB"],
        [name, "all nodes into Parquet, embeddings stored", f"{whole[True][0]:.1f} s, {whole[True][1]:.1f} GB"],
        [name, f"one target, top {TOP}, store present", f"{1e3 * found.one_top:.2f} ms"],
        [name, "one target, all scores, store present", f"{1e3 * found.one_all:.2f} ms"],
        [name, f"the paper's way, batches of {PAPER_BATCH}", f"{paper['paper a second']:,.0f} a second"],
        [name, "times the paper's way, same batches", f"{paper['ratio, same batches']:,.0f}"],
        [name, "times the paper's way, whole graph", f"{paper['ratio, whole graph']:,.0f}"],
        [name, "largest difference of scores, of the largest score", f"{paper['difference']:.1e}"],
    ]


@click.command()
@click.option("--directed", type=click.Path(path_type=Path, exists=True))
@click.option("--undirected", type=click.Path(path_type=Path, exists=True))
@click.option("--repeats", default=5, show_default=True)
@click.option("--singles", default=200, show_default=True, help="Targets that are explained one by one.")
@click.option("--copied", default=1024, show_default=True, help="Megabytes of the plain copy.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "bulk_speed.md", show_default=True)
def main(directed, undirected, repeats, singles, copied, out):
    folders = {name: run for name, run in (("directed", directed), ("undirected", undirected)) if run}
    if not folders:
        raise click.UsageError("name a run with --directed or --undirected, or one of each.")

    def sayer(name):
        return lambda text: print(f"{name}: {text}", flush=True)

    # first: Linux counts what this process held when it started another one among the peak of that one
    commands = {name: end_to_end(folder, sayer(name)) for name, folder in folders.items()}
    rows, growth, profile, notes, data = [], [], [], [], []
    for name, folder in folders.items():
        run = open_run(folder, torch.device("cpu"))
        found = measure(run, repeats, singles, copied, sayer(name))
        dim = run.trained().explainer_.config.dim
        rows += figures(name, found, commands[name], run.game.num_targets)
        spent = (f"{1e3 * found.growth[n]:,.2f}" if n in found.growth else "-" for n in GROWTH)
        growth.append([name, *spent])
        parts, note = shares(found, dim)
        aside = "the same without passing over"  # for comparison, not a part of the whole
        total = sum(seconds for part, seconds in parts.items() if part != aside)
        for part, seconds in parts.items():
            profile.append([name, part, f"{seconds:.2f}", "-" if part == aside else f"{seconds / total:.0%}"])
        notes.append(f"{name}: {note}.")
        data.append(f"{name}: {run.dataset.name} ({run.dataset.source}), K = {run.game.hops}, dim {dim}")
    lines = ["# Explaining in bulk", "", "Made by `experiments/bulk_speed.py`; medians.", ""]
    lines += [f"Data: {'; '.join(data)}; {torch.get_num_threads()} threads.", ""]
    lines += [markdown_table(["graph", "what", "figure"], rows), "", "## Time against targets (milliseconds)", ""]
    lines += [markdown_table(["graph", *(f"{n:,}" for n in GROWTH)], growth), "", "## Where the time goes", ""]
    lines += [markdown_table(["graph", "part", "seconds", "share"], profile), "", *notes, ""]
    out.write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

"""All targets explained in one process, in four shards in sequence, and by Ray with and without a killed worker.

    python experiments/shards.py                        # 100,000 nodes of the generated data set `citation`
    python experiments/shards.py --run runs/mine        # your own run
    python experiments/shards.py --nodes 2000 --epochs 1

Each way is the command line in processes of its own, start and loading included, with stored embeddings. All must give
equal rows. Without Ray (pip install 'dgl-lara[ray]') its two rows are left out.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import pandas as pd
import psutil

from dgl_lara._util.atomic import atomic_write
from dgl_lara._util.tables import markdown_table

RESULTS = Path(__file__).parent / "results"
SHARDS = 4
CLOSE = 1e-5
SETTINGS = {"OMP_NUM_THREADS": "1"}  # a process is one core, whichever way it is started


def dgl_lara(*words):
    """Start the command."""
    return subprocess.Popen([sys.executable, "-m", "dgl_lara", *map(str, words)], env={**os.environ, **SETTINGS})


def finished(process):
    if process.wait():
        raise click.ClickException(f"{' '.join(process.args[1:])} ended with {process.returncode}.")


def workers(process):
    """Return the Ray workers of this process that are explaining a shard."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            found += [child] if "ray::_explain" in child.name() else []
        except psutil.NoSuchProcess:
            continue
    return found


def kill_a_worker(process, folder):
    """Kill a worker once a shard is done. Return whether there was one."""
    while process.poll() is None:
        at_work = workers(process) if list(folder.glob("_shard-*")) else []
        if at_work:
            at_work[0].kill()
            return True
        time.sleep(0.01)
    return False


def same(frame, full):
    """Return whether players and their order are equal, and scores are equal up to rounding."""
    columns = ["target", "player", "rank", "explained_class"]
    return frame[columns].equals(full[columns]) and float((frame.score - full.score).abs().max()) < CLOSE


def measured(run, words, index):
    """Return a row per way: name, seconds, and whether its rows equal those of one process."""
    ask = ["explain", "--run", run, "--all", *words, "-q"]
    finished(dgl_lara(*ask, "--out", index / "warm.parquet"))  # embeds, and compiles
    started = time.monotonic()
    finished(dgl_lara(*ask, "--out", index / "whole.parquet"))
    rows, full = [["one process", time.monotonic() - started, "-"]], pd.read_parquet(index / "whole.parquet")
    started = time.monotonic()
    for one in range(SHARDS):
        finished(dgl_lara(*ask, "--shard", f"{one}/{SHARDS}", "--out", index / "shards"))
    seconds = time.monotonic() - started
    rows.append([f"{SHARDS} shards, one after the other", seconds, same(pd.read_parquet(index / "shards"), full)])
    if importlib.util.find_spec("ray") is None:
        return rows
    for kills in (False, True):
        folder = index / f"ray-{kills}"
        started = time.monotonic()
        process = dgl_lara(*ask, "--engine", "ray", "--shards", 2 * SHARDS, "--out", folder)
        killed = kills and kill_a_worker(process, folder)
        finished(process)
        what = f"Ray, {os.cpu_count()} cores, {2 * SHARDS} shards" + (", a worker killed" if killed else "")
        rows.append([what, time.monotonic() - started, same(pd.read_parquet(folder), full)])
    return rows


@click.command()
@click.option("--run", type=click.Path(path_type=Path, exists=True), help="Run to explain with. [one is trained]")
@click.option("--nodes", default=100_000, show_default=True, help="Of the generated graph.")
@click.option("--epochs", default=3, show_default=True, help="Of the training on it.")
@click.option("--amortised", is_flag=True, help="Scores of the explainer alone.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "shards.md", show_default=True)
def main(run, nodes, epochs, amortised, out):
    with tempfile.TemporaryDirectory() as name:
        index = Path(name)
        if run is None:
            run = index / "run"
            finished(dgl_lara("train", "--dataset", "citation", "--nodes", nodes, "--epochs", epochs, "--out", run))
        rows = measured(run, ["--top", 20, *(["--amortised"] if amortised else [])], index)
    table = markdown_table(["way", "seconds", "same rows"], [[way, f"{s:.1f}", str(as_one)] for way, s, as_one in rows])
    click.echo(table)
    what = f"run {run.name}" if run.name != "run" else f"generated graph `citation`, {nodes:,} nodes"
    with atomic_write(out) as temporary:
        scores = "amortised scores" if amortised else "scores corrected where samples were kept"
        temporary.write_text(
            f"# Explaining in shards\n\n{what.capitalize()}; top 20 of each target, {scores}.\n\n{table}\n"
        )
    if not all(as_one in ("-", True) for *_, as_one in rows):
        raise click.ClickException("the ways do not give the same rows.")


if __name__ == "__main__":
    main()

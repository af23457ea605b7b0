"""Graphs that do not fit into memory: `citation` generated in parts, trained on and explained, on one machine.

    python experiments/out_of_core.py --nodes 2400000 [--limit 16GB] [--memory 6GB] [--work FOLDER] [--half]

The commands partition, train and explain --all run in processes of their own. With --limit they run in a control group
(version 1, needs root) that limits memory, page cache included. Measured are wall-clock and processor seconds, peak
memory without mapped files, and the seconds of every pass from the output of -v. The target model, a GraphSAGE of two
layers, is trained on a generated graph with 100,000 nodes. Writes a row per command and size to
experiments/results/out_of_core.csv. The folder --work is kept, so a stopped run resumes. See experiments/scaling.md.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pandas as pd

from dgl_lara._util.atomic import atomic_write
from dgl_lara.cli.options import MEMORY

RESULTS = Path(__file__).parent / "results"
GROUPS = Path("/sys/fs/cgroup/memory")
TARGET_HIDDEN = 64
PASS = re.compile(r"^([^\n:/]*): ([\d.]+) s$", re.MULTILINE)  # not of folders: a table does not name them


def target_model(folder, half, nodes):
    """Train the model on a smaller graph of the same seed, which has equal classes."""
    import dgl
    import torch

    from dgl_lara.datasets.citation_stream import stream_citation
    from dgl_lara.datasets.dataset import Dataset
    from dgl_lara.gnns import RECIPES
    from dgl_lara.gnns.checkpoint import save_gnn
    from dgl_lara.gnns.training import get_gnn
    from dgl_lara.graphs.mapped import MappedGraph

    path = folder / "target.pt"
    if path.exists():
        return path
    small = folder / "small"
    if not (small / "meta.json").exists():
        stream_citation(nodes, 1, small, dtype="float16" if half else "float32")
    view, every_target = MappedGraph(small), torch.arange(nodes)
    indptr, sources = view.in_edges(every_target)
    graph = dgl.graph((sources, torch.repeat_interleave(every_target, indptr.diff())), num_nodes=nodes)
    labels = torch.from_numpy(view.parts[0].labels.astype(np.int64))
    train, val, test = map(view.split, ("train", "val", "test"))
    about = view.meta.classes, view.meta.source, view.meta.key
    dataset = Dataset("citation", "node", graph, view.features(every_target), labels, train, val, test, *about)
    stored = get_gnn(dataset, replace(RECIPES["citation"], hidden=TARGET_HIDDEN), 0)
    save_gnn(stored.model, path, stored.details)
    return path


class Watched:
    """A command in a process of its own, in a group of limited memory if requested."""

    def __init__(self, name, limit):
        self.group = GROUPS / f"dgl-lara-{os.getpid()}-{name}" if limit else None
        if self.group:
            self.group.mkdir()
            (self.group / "memory.limit_in_bytes").write_text(str(limit))

    def join(self):
        if self.group:
            (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def anonymous(self, process):
        """Return the bytes of its memory without mapped files."""
        try:
            if self.group:
                stat = dict(line.split() for line in (self.group / "memory.stat").read_text().splitlines())
                return int(stat["total_rss"])
            status = Path(f"/proc/{process.pid}/status").read_text()
            found = re.search(r"RssAnon:\s+(\d+) kB", status)
            return int(found.group(1)) * 1024 if found else 0
        except OSError:
            return 0

    def run(self, command):
        started, before = time.monotonic(), os.times()
        process = subprocess.Popen(command, preexec_fn=self.join, stderr=subprocess.PIPE, text=True)
        peaks, lines = [0], []

        def watch():
            while process.poll() is None:
                peaks.append(self.anonymous(process))
                time.sleep(0.5)

        threading.Thread(target=watch, daemon=True).start()
        assert process.stderr
        for line in process.stderr:
            sys.stderr.write(line)
            lines.append(line)
        code, after = process.wait(), os.times()
        if self.group:
            kept = int((self.group / "memory.max_usage_in_bytes").read_text())
            self.group.rmdir()
        if code:
            raise SystemExit(f"{' '.join(command)} ended with {code}")
        passes = {label: float(seconds) for label, seconds in PASS.findall("".join(lines))}
        spent = (after.children_user - before.children_user) + (after.children_system - before.children_system)
        return {
            "seconds": time.monotonic() - started,
            "processor": spent,
            "own memory, GB": max(peaks) / 2**30,
            "with page cache, GB": kept / 2**30 if self.group else None,
            "passes": json.dumps(passes),
        }


@click.command()
@click.option("--nodes", type=int, default=2_400_000, show_default=True)
@click.option("--parts", default=4, show_default=True)
@click.option("--limit", type=MEMORY, help="Of each command, page cache included; needs root.")
@click.option("--memory", default="6GB", show_default=True, help="Given to train and explain.")
@click.option("--batch-size", default=128, show_default=True)
@click.option("--targets", default=12_800, show_default=True)
@click.option("--target-nodes", default=100_000, show_default=True, help="Of the graph that the model learns from.")
@click.option("--only", type=click.Choice(["partition", "train", "explain"]), help="One of the commands.")
@click.option("--half", is_flag=True, help="Features in half precision.")
@click.option("--work", type=click.Path(path_type=Path), default=Path("out_of_core"), show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS / "out_of_core.csv", show_default=True)
def main(nodes, parts, limit, memory, batch_size, targets, target_nodes, only, half, work, out):
    work.mkdir(parents=True, exist_ok=True)
    local = work / f"{nodes}{'-half' * half}"
    target = target_model(work, half, target_nodes)
    dgl_lara = [sys.executable, "-m", "dgl_lara"]
    train = ["train", "--graph", local / "parts", "--target", target, "--targets", targets, "--epochs", 1]
    train += ["--layers", 1, "--hidden", 64, "--lr", 0.005, "--batch-size", batch_size, "--memory", memory]
    train += ["--out", local / "run", "-v"]
    if (local / "run" / "config.json").exists():
        train = ["train", "--resume", local / "run", "--memory", memory, "-v"]
    explain = ["explain", "--run", local / "run", "--all", "--amortised", "--memory", memory]
    commands = {
        "partition": [
            "partition",
            "--dataset",
            "citation",
            "--nodes",
            nodes,
            "--parts",
            parts,
            "--out",
            local / "parts",
        ]
        + ["--half"] * half,
        "train": train,
        "explain": [*explain, "--out", local / "explanations.parquet", "-v"],
    }
    for stage, command in commands.items():
        if only not in (None, stage) or (stage == "partition" and (local / "parts" / "meta.json").exists()):
            continue
        print(stage, *command, flush=True)
        figures = Watched(stage, limit).run([*dgl_lara, *map(str, command)])
        row = {"nodes": nodes, "half": half, "command": stage, **figures}
        print({name: value for name, value in row.items() if name != "passes"}, flush=True)
        keep(out, row)
    if only not in (None, "explain"):
        return
    meta = json.loads((local / "parts" / "meta.json").read_text())
    size = (local / "explanations.parquet").stat().st_size
    history = pd.read_csv(local / "run" / "metrics.csv")
    print(f"{meta['edges']:,} edges; file {size / 2**20:,.0f} MB; agreement {history.agreement.max():.3f}")


def keep(out, row):
    known = pd.read_csv(out) if out.exists() else pd.DataFrame(columns=list(row))
    same = (known.nodes == row["nodes"]) & (known.half == row["half"]) & (known.command == row["command"])
    with atomic_write(out) as temporary:
        pd.concat([known[~same], pd.DataFrame([row])]).to_csv(temporary, index=False, float_format="%.5g")


if __name__ == "__main__":
    main()

"""A graph in parts, one process per part, compared with one process: scores, agreement, memory, network.

    python experiments/many_machines.py ba-shapes
    python experiments/many_machines.py cora --data-dir FOLDER
    python experiments/many_machines.py ogbn-arxiv --data-dir FOLDER --undirected --target FILE --steps 2 --parts 4

Processes of one machine stand in for machines and communicate through gloo. Bytes are those that leave a process.
Memory is the peak of a process in training, embedding and explaining, less that after loading libraries. All train with
equal mini-batches of targets. One validator measures the agreement of each explainer on test targets.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pandas as pd
import psutil
import torch
from fetched_scores import explain_across

from dgl_lara._util.atomic import atomic_write
from dgl_lara._util.distributed import join
from dgl_lara._util.memory import hand_back_freed_memory
from dgl_lara._util.tables import markdown_table
from dgl_lara.datasets import Options, load
from dgl_lara.datasets.partitioned import PartitionedDataset
from dgl_lara.datasets.partitioning import partition
from dgl_lara.explainer.inputs import encoder_graph
from dgl_lara.explainer.network import load_explainer, save_explainer
from dgl_lara.game.distributed_game import DistributedGame
from dgl_lara.gnns import recipe_for
from dgl_lara.gnns.checkpoint import load_gnn, save_gnn
from dgl_lara.gnns.training import get_gnn
from dgl_lara.lara import LARA
from dgl_lara.training.config import MINI_BATCHES, default
from dgl_lara.training.distributed import DistributedBackend, part_graph
from dgl_lara.training.loop import train
from dgl_lara.training.validation import make_validator

RESULTS = Path(__file__).parent / "results"
AT_ONCE = 32  # targets that are explained together


class Peak:
    """The peak memory of this process, sampled while it works."""

    def __init__(self):
        self.process, self.over = psutil.Process(), threading.Event()
        self.base = self.peak = self.process.memory_info().rss

    def begin(self):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        hand_back_freed_memory()  # as parts do; without it one process holds 2.2 GB of ogbn-arxiv, not 2.05
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self):
        while not self.over.wait(0.02):
            self.peak = max(self.peak, self.process.memory_info().rss)

    def end(self):
        self.over.set()
        return (self.peak - self.base) / 2**20


def the_dataset(task):
    options = Options(undirected=task["undirected"], data_dir=task["data_dir"] and Path(task["data_dir"]))
    return load(task["dataset"], options)


def config_for(task, dataset):
    base = default("node", len(dataset.train), seed=task["seed"])
    epochs = max(1, round(task["steps"] * task["batch"] / min(len(dataset.train), MINI_BATCHES["targets"])))
    small = {**MINI_BATCHES, "batch_size": task["batch"]}
    if task["steps"] * task["batch"] < len(dataset.train):
        small["targets"] = task["steps"] * task["batch"]
    return replace(base, **small, epochs=epochs, shared_pairs=0)


def one(folder, task):
    """Train and explain in one process."""
    memory = Peak()
    dataset = the_dataset(task)
    model = load_gnn(folder / "target.pt", dataset)[0]
    memory.begin()
    config = config_for(task, dataset)
    lara = LARA(model, dataset.graph, dataset.features, config=config, memory=task["memory"])
    lara.fit(dataset.train, dataset.val)
    save_explainer(lara.explainer_, folder / "one.pt")
    asked = torch.tensor(task["asked"])
    lara.embed()
    rows = [lara.explain(some, corrected=False) for some in asked.split(AT_ONCE)]
    scores = [(some.players.targets[some.players.row], some.players.player, some.scores) for some in rows]
    torch.save(scores, folder / "one-scores.pt")
    (folder / "one.json").write_text(json.dumps({"MB": memory.end(), "K": lara.game.hops}))


def part(folder, task):
    """Train and explain one part, together with the other processes."""
    memory = Peak()
    ranks = join()
    dataset: Any = PartitionedDataset(folder / f"parts-{ranks.count}", Options())
    model = load_gnn(folder / "target.pt", dataset)[0]
    memory.begin()
    hops = json.loads((folder / "one.json").read_text())["K"]
    across: Any = DistributedGame(model, dataset.graph_source, hops, "logit", task["memory"] // ranks.count)
    config = config_for(task, dataset)
    ground = DistributedBackend(across, config)
    state = train(ground, dataset.train, dataset.val)
    learned = ranks.sent
    explainer = load_explainer(folder / "one.pt", torch.device("cpu"))[0]  # the other's: the scores must be its own
    with torch.no_grad():
        p, t = explainer(part_graph(across, config.inputs))
    embedded = ranks.sent
    asked = torch.tensor(task["asked"])
    scores = []
    for some in asked.split(AT_ONCE):
        found = explain_across(across, explainer, p, t, some[ranks.rank :: ranks.count])
        scores.append(found)
    content = {
        "MB": memory.end(),
        "trained": learned,
        "embedded": embedded - learned,
        "explained": ranks.sent - embedded,
    }
    torch.save(scores, folder / f"scores-{ranks.count}-{ranks.rank}.pt")
    (folder / f"{ranks.count}-{ranks.rank}.json").write_text(json.dumps(content | {"steps": state.step}))
    if ranks.is_first:
        save_explainer(state.best_explainer(), folder / f"explainer-{ranks.count}.pt")
    ranks.leave()


def run(folder, count):
    """Run this script in one or several processes."""
    place = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "DGL_LARA_MEETING": folder / f"meeting-{count}"}
    more = {name: str(value) for name, value in place.items()} if count > 1 else {}
    words = [sys.executable, __file__, "--work", str(folder)]
    values = {"OMP_NUM_THREADS": "1", **os.environ, **more}
    started = [subprocess.Popen(words, env={**values, "RANK": str(rank)}) for rank in range(count)]
    if any(process.wait() for process in started):
        raise click.ClickException("a process has failed.")


def table_of(scores):
    target, player, score = (torch.cat(parts) for parts in zip(*scores, strict=True))
    frame = pd.DataFrame({"target": target.numpy(), "player": player.numpy(), "score": score.numpy()})
    return frame.set_index(["target", "player"]).score.sort_index()


def row_of(folder, count, task, nodes, agreement):
    """Return the results of one setting."""
    alone = json.loads((folder / "one.json").read_text())["MB"]
    if count == 1:
        return {"processes": 1, "MB a process": alone, "agreement": agreement}
    result = [json.loads((folder / f"{count}-{rank}.json").read_text()) for rank in range(count)]
    expected = table_of(torch.load(folder / "one-scores.pt", weights_only=True))
    files = [folder / f"scores-{count}-{rank}.pt" for rank in range(count)]
    found = table_of([some for file in files for some in torch.load(file, weights_only=True)])
    assert found.index.equals(expected.index), "other players"
    total = {name: sum(one[name] for one in result) for name in ("trained", "embedded", "explained")}
    most = max(one["MB"] for one in result)
    return {
        "processes": count,
        "MB a process": most,
        "of one": most / alone,
        "largest difference of a score": float((found - expected).abs().max()),
        "largest score": float(expected.abs().max()),
        "agreement": agreement,
        "MB sent a step": total["trained"] / result[0]["steps"] / 2**20,
        "kB sent a node, embedding": total["embedded"] / nodes / 2**10,
        "kB sent an explanation": total["explained"] / len(task["asked"]) / 2**10,
    }


@click.command()
@click.argument("name", required=False)
@click.option("--data-dir", type=click.Path(exists=True, path_type=Path))
@click.option("--undirected", is_flag=True)
@click.option("--target", type=click.Path(exists=True, path_type=Path), help="Model to explain; else our own.")
@click.option("--parts", type=int, multiple=True, default=(2, 4), show_default=True)
@click.option("--steps", default=300, show_default=True)
@click.option("--batch", default=256, show_default=True, help="Targets a step, of all processes together.")
@click.option("--seed", default=0, show_default=True, help="Of the training.")
@click.option("--explained", default=200, show_default=True, help="Test targets that are explained.")
@click.option("--memory", default=2**31, show_default=True, help="Bytes that all processes together keep to.")
@click.option("--judged/--not-judged", default=True, help="Whether agreement is measured.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS)
@click.option("--work", type=click.Path(path_type=Path), hidden=True)
def main(name, data_dir, undirected, target, parts, steps, batch, seed, explained, memory, judged, out, work):
    if work:
        task = json.loads((work / "task.json").read_text())
        part(work, task) if "WORLD_SIZE" in os.environ else one(work, task)
        return
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        task = {"dataset": name, "undirected": undirected, "data_dir": str(data_dir) if data_dir else None}
        task |= {"steps": steps, "memory": memory, "batch": batch, "seed": seed}
        dataset = the_dataset(task)
        few = dataset.test[torch.randperm(len(dataset.test), generator=torch.Generator().manual_seed(0))[:explained]]
        task["asked"] = few.tolist()
        (folder / "task.json").write_text(json.dumps(task))
        if target:
            model = load_gnn(target, dataset)[0]
        else:
            model = get_gnn(dataset, recipe_for(dataset.name, dataset.task), 0).model
        save_gnn(model, folder / "target.pt", {"dataset": dataset.name})
        run(folder, 1)
        for count in parts:
            partition(dataset, count, folder / f"parts-{count}")
            run(folder, count)
        score = dict.fromkeys((1, *parts), float("nan"))
        if judged:
            game = LARA(model, dataset.graph, dataset.features).game
            judge = make_validator(game, encoder_graph(game, "rich"), dataset.test, 1)
            for count in score:
                path = folder / ("one.pt" if count == 1 else f"explainer-{count}.pt")
                score[count] = judge.score(load_explainer(path, torch.device("cpu"))[0])
        rows = [row_of(folder, count, task, dataset.graph.num_nodes(), score[count]) for count in (1, *parts)]
    table = pd.DataFrame(rows)
    table.insert(0, "data set", f"{dataset.name} ({dataset.source})")
    table.insert(1, "seed", seed)
    out.mkdir(parents=True, exist_ok=True)
    click.echo(markdown_table(table.columns.tolist(), table.to_numpy().tolist()))
    kept = out / f"many-machines-{dataset.name}.csv"
    if kept.exists():  # beside other seeds
        before = pd.read_csv(kept)
        table = pd.concat([before[before["seed"] != seed], table])
    with atomic_write(kept) as temporary:
        table.to_csv(temporary, index=False)


if __name__ == "__main__":
    main()

"""`dgl-lara explain`: explanations of many nodes or graphs, to a file."""

from __future__ import annotations

from pathlib import Path

import click

from dgl_lara.cli.options import FILE, FOLDER, CountOrWord, Memory, choose_device, device_option


@click.command("explain")
@click.option("--run", "folder", type=FOLDER, help="Run to explain with. Default: the newest.")
@click.option("--all", "everything", is_flag=True, help="Explain every node (or graph).")
@click.option("--split", type=click.Choice(["train", "val", "test"]), help="Explain this split.")
@click.option("--nodes", "nodes_file", type=FILE, help="Explain the numbers in this file, one a line.")
@click.option("--top", type=CountOrWord("all"), default=20, show_default=True, help="Players kept of each target.")
@click.option("--out", type=FILE, required=True, help="A .parquet, .csv or .jsonl file.")
@click.option("--memory", type=Memory(), help="Working memory to keep to, like 4GB. [70 % of what is free]")
@click.option("--workers", type=click.IntRange(min=0), default=0, show_default=True,
              help="Sampler processes, where the graph is too large for one pass.")  # fmt: skip
@click.option("--offload", is_flag=True,
              help="Data stays in main memory, batches go to the device: for graphs larger than a GPU.")  # fmt: skip
@device_option
def explain_command(
    folder: Path | None,
    everything: bool,
    split: str | None,
    nodes_file: Path | None,
    top: int | str,
    out: Path,
    memory: int | None,
    workers: int,
    offload: bool,
    device: str,
) -> None:
    """Explain many nodes or graphs at once and write their most important players to a file."""
    import time

    from dgl_lara.bulk import BulkExplainer
    from dgl_lara.export import explain_to_file, read_targets
    from dgl_lara.memory import reuse_freed_memory
    from dgl_lara.runs import newest_run, open_run, weights_hash

    if sum([everything, split is not None, nodes_file is not None]) != 1:
        raise click.UsageError("say what to explain: --all, --split or --nodes, one of them.")
    reuse_freed_memory()
    started = time.monotonic()
    run = open_run(folder or newest_run(), choose_device(device), memory, offload)
    explainer, training = run.explainer(), run.config.training
    targets = read_targets(nodes_file).to(run.game.features.device) if nodes_file else run.dataset.split(split or "all")
    about = {
        "run": run.folder.name,
        "dataset": run.dataset.name,
        "source": run.dataset.source,
        "players": f"{run.config.hops}-hop in-neighbourhood with the target"
        if run.game.task == "node"
        else "all nodes",
        "value": run.game.value,
        "gate": explainer.config.gate,
        "seed": training.seed,
        "model": weights_hash(run.target),
        "explainer": weights_hash(explainer),
    }
    bulk = BulkExplainer(explainer, run.game, run.embeddings(explainer, workers), run.memory // 2)
    count = explain_to_file(bulk, targets, None if top == "all" else int(top), out, about)
    spent = time.monotonic() - started
    click.echo(f"{len(targets):,} explanations, {count:,} rows in {out}; {spent:.1f} s in all, loading included")

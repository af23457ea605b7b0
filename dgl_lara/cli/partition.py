"""`dgl-lara partition`: a graph on disk in parts, for training and explaining where it does not fit into memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from dgl_lara.cli.console import echo
from dgl_lara.cli.options import FILE, NEW_FOLDER, Count, dataset_options, load_dataset, seed_option
from dgl_lara.datasets import Options


@click.command()
@partial(dataset_options, required=False)
@click.option("--graph", "graph_file", type=FILE, help="Your own graph, .bin or .npz; the same as --dataset FILE.")
@click.option("--parts", type=Count(1, 4096), default=4, show_default=True, help="How many.")
@click.option("--method", type=click.Choice(["metis", "random", "order"]),
              help="By METIS, at random, or in the nodes' own order. [metis]")  # fmt: skip
@click.option("--half", is_flag=True, help="Features in half precision, which takes half of the room.")
@click.option("--out", type=NEW_FOLDER, required=True, help="The folder to write.")
@seed_option
def partition(
    name: str | None,
    options: Options,
    graph_file: Path | None,
    parts: int,
    method: str | None,
    half: bool,
    out: Path,
    seed: int,
) -> None:
    """Write a graph to disk in parts: `train --graph FOLDER` and `explain` then read it through memory maps. `citation`
    with a million nodes or more is generated part by part, and never whole."""
    from dgl_lara.datasets.citation_stream import STREAMED_FROM, stream_citation
    from dgl_lara.datasets.partitioning import partition as cut_up
    from dgl_lara.graphs.partition_format import read_meta

    if (name is None) == (graph_file is None):
        raise click.UsageError("give --dataset or --graph, one of them.")
    if (out / "config.json").exists():
        raise click.UsageError(f"{out} holds a run; name another --out for the parts.")
    kind = "float16" if half else "float32"
    if name == "citation" and (options.nodes or 0) >= STREAMED_FROM and not options.undirected:
        if method not in (None, "order"):
            raise click.UsageError("a citation graph of this size is generated in its own order: leave out --method.")
        stream_citation(int(options.nodes or 0), parts, out, options.seed, kind)
    else:
        dataset = load_dataset(str(graph_file.resolve()) if graph_file else str(name), options, "cpu")
        cut_up(dataset, parts, out, method or "metis", seed, kind)
    meta = read_meta(out)
    echo(
        f"{meta.name} ({meta.source}): {meta.nodes:,} nodes and {meta.edges:,} edges in {len(meta.parts)} parts, {out}"
    )
    echo(f"next: dgl-lara train --graph {out} --target FILE")

"""Command `dgl-lara partition`. Write a graph that does not fit the memory to disk in parts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from dgl_lara.cli.console import UsageError, echo
from dgl_lara.cli.options import (
    FILE,
    NEW_FOLDER,
    check_options,
    dataset_options,
    load_dataset,
    options_set,
    seed_option,
)
from dgl_lara.datasets import Options


@click.command()
@partial(dataset_options, required=False)
@click.option("--graph", "graph_file", type=FILE, help="Your own graph, .bin or .npz.")
@click.option("--parts", type=click.IntRange(1, 4096), default=4, show_default=True, help="Number of parts.")
@click.option("--method", type=click.Choice(["metis", "random", "order"]),
              help="Cut by METIS, at random, or in the order of the nodes. Default is metis.")  # fmt: skip
@click.option("--half", is_flag=True, help="Store features in half precision.")
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
    """Write a graph to disk in parts. `train --graph FOLDER` and `explain` read them through memory maps. `citation`
    with a million nodes or more is generated part by part."""
    from dgl_lara.datasets.citation_stream import STREAMED_FROM, stream_citation
    from dgl_lara.datasets.partitioning import partition as write_parts
    from dgl_lara.graphs.partition_format import read_meta

    check_options(options_set(), one_of=("--dataset", "--graph"))
    if (out / "config.json").exists():
        raise UsageError("partition.run", folder=out)
    dtype = "float16" if half else "float32"
    if name == "citation" and (options.nodes or 0) >= STREAMED_FROM and not options.undirected:
        if method not in (None, "order"):
            raise UsageError("partition.method")
        stream_citation(int(options.nodes or 0), parts, out, options.seed, dtype)
    else:
        dataset = load_dataset(str(graph_file.resolve()) if graph_file else str(name), options, "cpu")
        write_parts(dataset, parts, out, method or "metis", seed, dtype)
    meta = read_meta(out)
    echo(
        f"{meta.name} ({meta.source}): {meta.nodes:,} nodes and {meta.edges:,} edges in {len(meta.parts)} parts, {out}"
    )
    echo(f"next: dgl-lara train --graph {out} --target FILE")

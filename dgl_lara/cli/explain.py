"""Command `dgl-lara explain`. Print an explanation, or write explanations of many targets to a file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dgl_lara.cli.console import UsageError, echo, note_run, warn_about
from dgl_lara.cli.options import (
    CLASS,
    FILE,
    INDEX,
    INDEX_OR_FILE,
    MAX_SHARDS,
    NEW_FILE,
    RUN,
    SHARD,
    OutputPath,
    PositiveFloat,
    check_ending,
    check_options,
    check_run,
    choose_device,
    count_or,
    device_option,
    memory_option,
    options_set,
    players_option,
    split_option,
    trust_options,
)
from dgl_lara.constants import EXPORTS, PICTURES, TABLES

if TYPE_CHECKING:
    from dgl_lara.inference.request import ExplainRequest

MIN_CONFIDENCE = 0.9
SINGLE, MANY = ("--node", "--graph", "--pair"), ("--all", "--split", "--nodes", "--pairs")
EXCLUSIVE = [("--shard", "--engine")]
REQUIRES = {
    "--picture": SINGLE, "--shard": MANY, "--engine": MANY, "--shards": ["--engine"], "--address": ["--engine"],
    "--rather-than": ["--class"], "--at-least": ["--refine"],
}  # fmt: skip


@click.command("explain")
@click.option("--run", "folder", type=RUN, help="Run to explain with. Default is the newest.")
@click.option("--node", "nodes", type=INDEX, multiple=True, help="Print the explanation of this node. Repeatable.")
@click.option(
    "--graph",
    "graphs",
    type=INDEX_OR_FILE,
    multiple=True,
    help="Print the explanation of this graph. Repeatable. With a .bin or .npz file, explain on that graph.",
)
@click.option("--pair", "pairs", type=INDEX, nargs=2, multiple=True, metavar="U V",
              help="Print the explanation of the link from U to V. Repeatable.")  # fmt: skip
@click.option(
    "--picture",
    "pictures",
    type=NEW_FILE,
    multiple=True,
    help="Picture file, .png, .svg, .pdf or interactive .html. Repeatable, for --node, --graph and --pair.",
)
@click.option(
    "--class", "requested_class", type=CLASS, help="Explain this class (number or name), not the predicted one."
)
@click.option("--rather-than", type=CLASS, help="Explain that class against this one (with --class).")
@click.option("--all", "everything", is_flag=True, help="Explain every node (or graph).")
@split_option("Explain this split.")
@click.option("--nodes", "nodes_file", type=FILE, help="Explain the numbers in this file, one a line.")
@click.option("--pairs", "pairs_file", type=FILE, help="Explain the links in this file, u,v a line.")
@click.option("--top", type=count_or("all"), help="Players kept, highest scores first. Default is 20, printed: 10.")
@click.option(
    "--refine",
    type=count_or("auto"),
    metavar="N|auto",
    help="Correct each explanation with N pairs of model calls. auto corrects only doubtful ones.",
)
@click.option(
    "--at-least",
    type=PositiveFloat(0.999),
    help="The confidence below which an explanation is doubtful (with --refine auto). Default is 0.9.",
)
@click.option("--amortised", is_flag=True, help="Use the raw amortised scores, without correction by stored samples.")
@click.option("--verify", is_flag=True, help="Add fidelity, measured by model calls, beside that of random players.")
@click.option("--out", "outs", type=OutputPath(path_type=Path), multiple=True,
              help="Output file. For many targets .parquet, .csv or .jsonl (with --shard or --engine a folder). For "
              "one target .csv, .json or .graphml, repeatable.")  # fmt: skip
@click.option("--shard", type=SHARD, help="Explain one of N shards of the targets (0/4, 1/4, ...) into one folder.")
@click.option("--engine", type=click.Choice(["ray"]), help="Explain all shards as tasks of Ray.")
@click.option(
    "--shards", type=click.IntRange(1, MAX_SHARDS), help="Number of shards (with --engine). Default is 4 a core."
)
@click.option("--address", help="Address of a Ray cluster, auto or HOST:6379 (with --engine). Default is this machine.")
@memory_option
@click.option("--workers", type=click.IntRange(0, 256), default=0, show_default=True,
              help="Sampler processes, for graphs that are too large for one pass.")  # fmt: skip
@click.option("--offload", is_flag=True, help="Keep data in main memory, for graphs larger than the GPU.")
@players_option
@device_option
@trust_options
def explain_command(
    folder: Path | None,
    nodes: tuple[int, ...],
    graphs: tuple[int | Path, ...],
    pairs: tuple[tuple[int, int], ...],
    outs: tuple[Path, ...],
    pictures: tuple[Path, ...],
    shard: tuple[int, int] | None,
    shards: int | None,
    address: str | None,
    **values: Any,
) -> None:
    """Explain one node, graph or link (--node, --graph, --pair), or many targets to a file (--all, --split, --nodes,
    --pairs). --graph FILE explains on another graph than the one of the training. --shard or --engine divide the
    targets among processes and machines."""
    started = time.monotonic()
    check_run(folder)
    graph_files = [graph for graph in graphs if isinstance(graph, Path)]
    options = [option for option in options_set() if option != "--graph" or not graph_files]
    _check_graph_files(graph_files, graphs, options)
    check_options(options, one_of=(*SINGLE, *MANY), exclusive=EXCLUSIVE, requires=REQUIRES)
    if "--at-least" in options and values["refine"] != "auto":
        raise UsageError("options.requires", name="--at-least", others="--refine auto")
    is_single = bool(set(options) & set(SINGLE))
    _check_outputs(outs, pictures, options, is_single, values["nodes_file"], values["pairs_file"])
    request = _request(note_run(folder), graph_files, 10 if is_single else 20, **values)
    if is_single:
        from dgl_lara.cli.explain_single import explain_single

        targets = {"node": nodes, "graph": graphs, "link": tuple(range(len(pairs)))}
        explain_single(request, targets, pairs, [*dict.fromkeys((*pictures, *outs))])
        return
    if "--engine" in options:
        summary = _explain_with_ray(request, outs[0], shards, address)
    else:
        summary = _explain_many(request, outs[0], shard)
    echo(f"{summary}; {time.monotonic() - started:.1f} s in all")


def _check_graph_files(files: Sequence[Path], graphs: Sequence[int | Path], options: Sequence[str]) -> None:
    if files and (len(graphs) > 1 or "--split" in options):
        raise UsageError("explain.graph_file")
    if files and not files[0].exists():
        raise UsageError("explain.no_graph_file", path=files[0])


def _check_outputs(
    outs: Sequence[Path], pictures: Sequence[Path], options: Sequence[str], is_single: bool, *lists: Path | None
) -> None:
    """Raise UsageError if an output cannot be written as requested, before anything is loaded."""
    in_shards = bool({"--shard", "--engine"} & set(options))
    if not is_single and len(outs) != 1:
        raise UsageError("explain.one_out", got=len(outs))
    for out in outs:
        if out.is_dir() and not in_shards:
            raise UsageError("path.is_folder", path=out)
        if any(path and out.exists() and path.exists() and out.samefile(path) for path in lists):
            raise UsageError("explain.out_is_list", path=out)
        if not in_shards:
            check_ending("--out", out, TABLES if is_single else EXPORTS)
    for picture in pictures:
        check_ending("--picture", picture, PICTURES)


def _request(
    folder: Path,
    graph_files: Sequence[Path],
    default_top: int,
    refine: int | str | None,
    at_least: float | None,
    amortised: bool,
    verify: bool,
    top: int | str | None,
    requested_class: int | str | None,
    rather_than: int | str | None,
    split: str | None,
    nodes_file: Path | None,
    pairs_file: Path | None,
    device: str,
    everything: bool,
    engine: str | None,
    **values: Any,
) -> ExplainRequest:
    """Return the request that the options describe."""
    from dgl_lara.inference.request import ExplainRequest, RefineOptions

    confidence = (at_least or MIN_CONFIDENCE) if refine == "auto" else None
    return ExplainRequest(
        run=folder,
        refine=RefineOptions(refine if isinstance(refine, int) else None, confidence, verify, not amortised),
        top=None if top == "all" else int(top or default_top),
        classes=tuple(value for value in (requested_class, rather_than) if value is not None),
        split=split or "all",
        nodes=nodes_file,
        pairs=pairs_file,
        graph=graph_files[0] if graph_files else None,
        device=str(choose_device(device)),
        **values,  # players, memory, workers, offload, trust
    )


def _explain_many(request: ExplainRequest, out: Path, shard: tuple[int, int] | None) -> str:
    """Write explanations to a file, or one shard of them to a folder, and return a summary."""
    from dgl_lara.runs.explain_job import open_job

    job = open_job(request)
    warn_about(job.run.folder)
    if shard is None:
        rows = job.to_file(job.targets, out)
        summary = f"{len(job.targets):,} explanations, {rows:,} rows in {out}"
    else:
        from dgl_lara.shards.explain_shard import explain_shard
        from dgl_lara.shards.shard_folder import Shard, ShardFolder

        files, part = ShardFolder(out), Shard(*shard)
        record = explain_shard(job, part, files)
        done = part.total - len(files.missing(part.total))
        summary = f"shard {part}: {record.targets:,} explanations, {record.rows:,} rows in {files.file(part)}, "
        summary += f"{done} of {part.total} shards are complete"
    if request.refine.min_confidence:
        echo(job.cost.text(request.refine.min_confidence))
    return summary


def _explain_with_ray(request: ExplainRequest, out: Path, shards: int | None, address: str | None) -> str:
    """Write all shards with Ray and return a summary."""
    from dgl_lara.shards.ray_engine import explain_by_ray
    from dgl_lara.shards.shard_folder import ShardFolder

    manifest = explain_by_ray(request, ShardFolder(out), shards, address)
    return f"{manifest.targets:,} explanations, {manifest.rows:,} rows in {len(manifest.shards)} shards in {out}"

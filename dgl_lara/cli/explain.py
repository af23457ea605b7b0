"""`dgl-lara explain`: one node or graph in words and pictures, or many of them to a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dgl_lara.cli.console import echo, warn_about, width
from dgl_lara.cli.options import (
    FILE,
    MOST_SHARDS,
    NEW_FILE,
    RUN,
    ClassName,
    Count,
    CountOrWord,
    Memory,
    NumberOrFile,
    OutputPath,
    Rate,
    ShardOf,
    check_there,
    choose_device,
    device_option,
    players_option,
    trust_options,
)
from dgl_lara.constants import EXPORTS, PICTURES, TABLES

if TYPE_CHECKING:
    from dgl_lara.explanation import Explanation, Explanations
    from dgl_lara.inference.request import ExplainRequest, RefineCost, RefineOptions
    from dgl_lara.runs.explain_job import ExplainJob
    from dgl_lara.runs.run import Run

AT_LEAST = 0.9  # confidence below which an explanation is in doubt


@click.command("explain")
@click.option("--run", "folder", type=RUN, help="Run to explain with. Default: the newest.")
@click.option("--node", "some_nodes", type=Count(0), multiple=True,
              help="Explain this node: a sentence, a table, a picture. Can be given several times.")  # fmt: skip
@click.option(
    "--graph",
    "graphs_or_file",
    type=NumberOrFile(),
    multiple=True,
    help="The same for this graph; or a .bin or .npz file: explain on that graph, without training anew.",
)
@click.option("--pair", "some_pairs", type=Count(0), nargs=2, multiple=True, metavar="U V",
              help="The same for the link from U to V.")  # fmt: skip
@click.option("--picture", "pictures", type=NEW_FILE, multiple=True,
              help="With --node, --graph or --pair: a .png, .svg, .pdf or interactive .html file. Can be given several "
              "times.")  # fmt: skip
@click.option("--class", "asked_class", type=ClassName(),
              help="Explain this class, a number or its name, in the place of the predicted one.")  # fmt: skip
@click.option("--rather-than", type=ClassName(), help="With --class: why that class rather than this one.")
@click.option("--all", "everything", is_flag=True, help="Explain every node (or graph).")
@click.option("--split", type=click.Choice(["train", "val", "test"]), help="Explain this split.")
@click.option("--nodes", "nodes_file", type=FILE, help="Explain the numbers in this file, one a line.")
@click.option("--pairs", "pairs_file", type=FILE, help="Explain the links in this file, u,v a line.")
@click.option(
    "--top",
    type=CountOrWord("all"),
    help="Players kept, highest score first ('all': also those against). [20; table: 10]",
)
@click.option("--refine", type=CountOrWord("auto"), metavar="N|auto",
              help="Correct each with N pairs of model calls; auto: only those in doubt.")  # fmt: skip
@click.option("--at-least", type=Rate(0.999),
              help="With --refine auto: the confidence below which an explanation is in doubt. [0.9]")  # fmt: skip
@click.option("--amortised", is_flag=True,
              help="Scores of the explainer alone, not corrected by what the model said in training (--refine begins "
              "with these).")  # fmt: skip
@click.option("--verify", is_flag=True, help="Add each one's fidelity, by model calls, and whether chance does better.")
@click.option("--out", "outs", type=OutputPath(path_type=Path), multiple=True,
              help="A .parquet, .csv, .jsonl file; shards: folder; of one target .csv, .json, .graphml, also several "
              "times.")  # fmt: skip
@click.option("--shard", type=ShardOf(),
              help="Explain one of N shards of what is asked for: 0/4, 1/4, 2/4, 3/4, into one folder.")  # fmt: skip
@click.option("--engine", type=click.Choice(["ray"]), help="All shards as tasks of Ray, on one machine or many.")
@click.option("--shards", type=Count(1, MOST_SHARDS), help="With --engine: how many. [4 a core]")
@click.option("--address", help="With --engine: a cluster that runs, like auto or HOST:6379. [Ray on this machine]")
@click.option("--memory", type=Memory(), help="Working memory to keep to, like 4GB. [70 % of what is free]")
@click.option("--workers", type=Count(0, 256), default=0, show_default=True,
              help="Sampler processes, where the graph is too large for one pass.")  # fmt: skip
@click.option("--offload", is_flag=True,
              help="Data stays in main memory, batches go to the device: for graphs larger than a GPU.")  # fmt: skip
@players_option
@device_option
@trust_options
def explain_command(
    folder: Path | None,
    some_nodes: tuple[int, ...],
    graphs_or_file: tuple[int | Path, ...],
    some_pairs: tuple[tuple[int, int], ...],
    pictures: tuple[Path, ...],
    asked_class: int | str | None,
    rather_than: int | str | None,
    everything: bool,
    split: str | None,
    nodes_file: Path | None,
    pairs_file: Path | None,
    top: int | str | None,
    refine: int | str | None,
    at_least: float | None,
    amortised: bool,
    verify: bool,
    outs: tuple[Path, ...],
    shard: tuple[int, int] | None,
    engine: str | None,
    shards: int | None,
    address: str | None,
    memory: int | None,
    workers: int,
    offload: bool,
    players: str | None,
    device: str,
    trust: bool | str,
) -> None:
    """Explain one node, graph or link (--node, --graph, --pair), or many at once to a file (--all, --split, --nodes,
    --pairs); with --graph FILE on a graph that was not there in training; with --shard or --engine in shards that
    many processes and machines explain."""
    started = time.monotonic()
    check_there(folder)
    some_graphs = tuple(one for one in graphs_or_file if isinstance(one, int))
    files_given = [one for one in graphs_or_file if isinstance(one, Path)]
    if len(files_given) > 1 or (files_given and (some_graphs or split)):
        raise click.UsageError("--graph takes one file, or numbers of graphs; a file has no splits.")
    many = [everything, split is not None, nodes_file is not None, pairs_file is not None]
    if files_given and not files_given[0].exists():
        raise click.UsageError(f"--graph: {files_given[0]} does not exist; a graph of the run is named by its number.")
    if files_given and not any([some_nodes, some_pairs, *many]):
        raise click.UsageError(f"say what to explain on {files_given[0]}: --node, --pair, --all, --nodes or --pairs.")
    asked = {"--node": some_nodes, "--graph": some_graphs, "--pair": some_pairs, "--all": everything, "--split": split,
             "--nodes": nodes_file, "--pairs": pairs_file}  # fmt: skip
    named = [option for option, given in asked.items() if given]
    if not named:
        raise click.UsageError(f"say what to explain: {', '.join([*asked][:-1])} or --pairs, one of them.")
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} are given; name one of them.")
    few = bool(some_nodes or some_graphs or some_pairs)
    if not few and pictures:
        raise click.UsageError(f"--picture goes with --node, --graph or --pair, not with {named[0]}.")
    if not few and not outs:
        raise click.UsageError("name the file to write with --out.")
    if not few and len(outs) > 1:
        raise click.UsageError(f"--out is given {len(outs)} times; {named[0]} goes to one place.")
    if rather_than is not None and asked_class is None:
        raise click.UsageError("--rather-than goes with --class: why one class rather than the other.")
    if at_least is not None and refine != "auto":
        raise click.UsageError("--at-least goes with --refine auto.")
    in_shards = shard is not None or engine is not None
    if (few and in_shards) or (shard and engine):
        raise click.UsageError("--shard or --engine, one of them, goes with --all, --split, --nodes or --pairs.")
    if engine is None and (shards or address):
        raise click.UsageError("--shards and --address go with --engine; --shard I/N explains one shard here.")
    for out in outs:
        if out.is_dir() and not in_shards:
            raise click.UsageError(f"--out must name a file, and {out} is a folder.")
        if any(given and out.exists() and out.samefile(given) for given in (nodes_file, pairs_file)):
            raise click.UsageError(f"--out must name another file than the list that is read ({out}).")
    if few:
        _check_endings(pictures, outs)
    elif not in_shards and outs[0].suffix not in EXPORTS:
        raise click.UsageError(f"--out must end in {', '.join(EXPORTS)} (got '{outs[0].name}').")
    from dgl_lara._util.progress import detail, log_info
    from dgl_lara.inference.request import ExplainRequest, RefineOptions
    from dgl_lara.runs.folder import newest_run

    where, graph_file = folder or newest_run(), files_given[0] if files_given else None
    (detail if folder else log_info)(f"run {where}" + ("" if folder else " (the newest; --run names another)"))
    confidence = (at_least or AT_LEAST) if refine == "auto" else None
    request = ExplainRequest(
        run=where,
        refine=RefineOptions(refine if isinstance(refine, int) else None, confidence, verify, not amortised),
        top=None if top == "all" else int(top or (10 if few else 20)),
        classes=tuple(one for one in (asked_class, rather_than) if one is not None),
        players=players,
        split=split or "all",
        nodes=nodes_file,
        pairs=pairs_file,
        graph=graph_file,
        memory=memory,
        workers=workers,
        offload=offload,
        device=str(choose_device(device)),
        trust=trust,
    )
    if few:
        given = {"node": some_nodes, "graph": some_graphs, "link": tuple(range(len(some_pairs)))}
        _explain_few(request, given, some_pairs, pictures, outs)
    else:
        (out,) = outs
        told = _in_shards(request, out, shard, shards, address) if in_shards else _to_file(request, out)
        echo(f"{told}; {time.monotonic() - started:.1f} s in all, loading included")


def _to_file(request: ExplainRequest, out: Path) -> str:
    from dgl_lara.runs.explain_job import open_job

    job = open_job(request)
    warn_about(job.run.folder)
    rows = job.to_file(job.targets, out)
    _tell_spent(job)
    return f"{len(job.targets):,} explanations, {rows:,} rows in {out}"


def _in_shards(
    request: ExplainRequest, out: Path, shard: tuple[int, int] | None, shards: int | None, address: str | None
) -> str:
    """One shard here, or all of them where Ray has workers."""
    from dgl_lara.shards.shard_folder import Shard, ShardFolder

    folder = ShardFolder(out)
    if shard is None:
        from dgl_lara.shards.ray_engine import explain_by_ray

        manifest = explain_by_ray(request, folder, shards, address)
        return f"{manifest.targets:,} explanations, {manifest.rows:,} rows in {len(manifest.shards)} shards in {out}"
    from dgl_lara.runs.explain_job import open_job
    from dgl_lara.shards.explain_shard import explain_shard

    job, one = open_job(request), Shard(*shard)
    warn_about(job.run.folder)
    record = explain_shard(job, one, folder)
    _tell_spent(job)
    missing = len(folder.missing(one.total))
    told = f"shard {one}: {record.targets:,} explanations, {record.rows:,} rows in {folder.file(one)}"
    return told + (f", {one.total - missing} of {one.total} are there" if missing else f", all {one.total} are there")


def _explain_few(
    request: ExplainRequest,
    given: dict[str, tuple[int, ...]],
    pairs: tuple[tuple[int, int], ...],
    pictures: tuple[Path, ...],
    outs: tuple[Path, ...],
) -> None:
    """One after the other, in words and pictures."""
    from dgl_lara.messages import message
    from dgl_lara.runs.explain_job import class_indices, open_requested_run

    run = open_requested_run(request, pairs)
    asked, classes = _asked_for(run, given), class_indices(request, run)
    warn_about(run.folder)
    is_page = any(picture.suffix == ".html" for picture in pictures)
    others = run.parts[1:] if is_page and request.players is None and not request.graph else []  # to switch to
    for place, target in enumerate(asked):
        if place:
            echo()
        explanation = _explain_one(run, target, classes, request.refine, request.top)
        if not place:
            echo(message("scores.not_additive", value=explanation.value_name))
        files = [_file_of(path, target, len(asked)) for path in dict.fromkeys((*pictures, *outs))]
        beside = [_scored(part, target, classes, request.refine)[0][0] for part in others]
        for path in files:
            explanation.save(path, beside)
        if files:
            echo("\nwritten: " + ", ".join(map(str, files)))


def _check_endings(pictures: tuple[Path, ...], outs: tuple[Path, ...]) -> None:
    """Before anything is loaded."""
    for picture in pictures:
        if picture.suffix not in PICTURES:
            raise click.UsageError(f"--picture must end in {', '.join(PICTURES)} (got '{picture.name}').")
    for out in outs:
        if out.suffix not in TABLES:
            raise click.UsageError(f"--out of one explanation must end in {', '.join(TABLES)} (got '{out.name}').")


def _asked_for(run: Run, given: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The numbers given for the kind of target that this run explains, each once, if it has them."""
    lara, dataset = run.trained(), run.dataset
    task, targets = lara.task, tuple(dict.fromkeys(given[lara.task.name]))
    if not targets:
        option = "pair U V" if task.num_endpoints > 1 else task
        raise click.UsageError(f"this run explains {task}s: ask with --{option} (its data set is {dataset.name}).")
    for target in targets:
        if target >= dataset.num_targets:
            raise click.UsageError(f"--{task} must be in 0..{dataset.num_targets - 1} (got {target}).")
    return targets


def _file_of(path: Path, target: int, of: int) -> Path:
    """x.png; of several targets x-512.png."""
    return path if of == 1 else path.with_name(f"{path.stem}-{target}{path.suffix}")


def _scored(run: Run, target: int, classes: list[int], wanted: RefineOptions) -> tuple[Explanations, list[str]]:
    """The explanation of one target, and what is to be said of how it was bought."""
    import torch

    from dgl_lara.game.class_query import ClassQuery
    from dgl_lara.inference.novelty import with_novelty
    from dgl_lara.inference.request import refine_as_requested

    lara = run.trained()
    query = ClassQuery.repeat(classes, 1)
    found, spent = lara.explain(run.dataset.targets(torch.tensor([target])), query, wanted.corrected), []
    if run.on_other_graph:
        found = with_novelty(found, lara.explainer_, lara.config_.inputs)
    stretch = lara.errors_.stretch if lara.errors_ else 1.0
    found, columns, cost = refine_as_requested(found.game or lara.game, found, wanted, stretch)
    if wanted.min_confidence:
        spent.append(_spent(cost, wanted.min_confidence))
    if wanted.pairs:
        moved = columns["moved"].item()
        spent.append(f"refined with {wanted.pairs} pairs of model calls; the scores moved by {moved:.0%}")
    return found.named(**run.names), spent


def _explain_one(run: Run, target: int, classes: list[int], wanted: RefineOptions, top: int | None) -> Explanation:
    """Print one explanation."""
    found, spent = _scored(run, target, classes, wanted)
    explanation = found[0]
    for line in spent:
        echo(line)
    echo(explanation.in_words())
    echo(explanation.how_sure())
    echo("\n" + _table(explanation, len(explanation) if top is None else top))
    if explanation.removed:
        echo(explanation.removed_in_words)
    if wanted.verify:
        verdict = run.trained().verify(found).iloc[0]
        echo(
            f"\nfidelity+ {verdict['fidelity+']:.2f} (high is good), fidelity- {verdict['fidelity-']:.2f} (low is "
            "good); as many random players: "
            f"{verdict['random fidelity+']:.2f}, {verdict['random fidelity-']:.2f}"
            + ("; WORSE THAN RANDOM" if verdict["worse_than_random"] else "")
        )
    return explanation


def _table(explanation: Explanation, most: int) -> str:
    """The best players, and the strongest that speak against, by the names that the sentence uses."""
    import pandas as pd

    from dgl_lara._util.tables import text_table

    names = dict(zip(explanation.players.tolist(), explanation.player_names(), strict=True))
    local = explanation.task.has_distances and explanation.batch.players.player_type != "features"
    columns = ["hop", "score", "rank"] if local else ["score", "rank"]
    everyone = explanation.internal_frame()
    best = everyone.head(most)
    against = everyone[(everyone.score < 0) & (everyone["rank"] > most)].tail(3)  # the strongest that speak against
    between = len(everyone) - len(best) - len(against)
    best = pd.concat([best, against])
    figures = best[columns].itertuples(index=False)
    rows = [[names[player], *row] for player, row in zip(best.player, figures, strict=True)]
    classes = explanation.player_classes()
    if classes is not None:  # what the model says of the players themselves
        said = dict(zip(explanation.players.tolist(), map(explanation.batch.names.of_class, classes), strict=True))
        rows = [[*row, said[player]] for player, row in zip(best.player, rows, strict=True)]
        columns = [*columns, "class"]
    if len(against) and between:
        rows.insert(-len(against), [f"({between:,} more)", *[""] * len(columns)])
    return text_table(["node" if explanation.batch.includes_target else explanation.noun, *columns], rows, width())


def _tell_spent(job: ExplainJob) -> None:
    if job.request.refine.min_confidence:
        echo(_spent(job.cost, job.request.refine.min_confidence))


def _spent(cost: RefineCost, at_least: float) -> str:
    doubtful, pairs, still = cost.num_doubtful, cost.num_pairs, cost.num_still_doubtful
    share = f"{100 * at_least:g}%"
    if not doubtful:
        return f"no explanation was in doubt: all are expected to reach {share}, and the model was asked about none"
    yet = "none is in doubt any more"
    if still:
        yet = f"{still:,} still {'is' if still == 1 else 'are'}: more pairs may help (--refine N)"
    asked = f"the model was asked about {2 * pairs:,} coalitions for {'it' if doubtful == 1 else 'them'}"
    return f"{doubtful:,} in doubt (below {share}): {asked}, and {yet}"

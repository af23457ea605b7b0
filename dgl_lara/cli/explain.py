"""`dgl-lara explain`: one node or graph in words and pictures, or many of them to a file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dgl_lara.choices import PICTURES, TABLES
from dgl_lara.cli.options import (
    FILE,
    RUN,
    Count,
    CountOrWord,
    Memory,
    NumberOrFile,
    Rate,
    choose_device,
    device_option,
    players_option,
    trust_options,
)
from dgl_lara.cli.printing import echo
from dgl_lara.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from dgl_lara.explanation import Explanation, Explanations
    from dgl_lara.runs import Run

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
@click.option("--picture", type=FILE, help="With --node or --graph: a .png, .svg, .pdf or interactive .html file.")
@click.option("--class", "asked_class", type=Count(0), help="With --node or --graph: explain this class.")
@click.option("--rather-than", type=Count(0), help="With --class: why that class rather than this one.")
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
              help="Scores of the explainer alone, not corrected by what the model said in training.")  # fmt: skip
@click.option("--verify", is_flag=True, help="Add each one's fidelity, by model calls, and whether chance does better.")
@click.option("--out", type=FILE, help="A .parquet, .csv or .jsonl file; of one target .csv, .json or .graphml.")
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
    picture: Path | None,
    asked_class: int | None,
    rather_than: int | None,
    everything: bool,
    split: str | None,
    nodes_file: Path | None,
    pairs_file: Path | None,
    top: int | str | None,
    refine: int | str | None,
    at_least: float | None,
    amortised: bool,
    verify: bool,
    out: Path | None,
    memory: int | None,
    workers: int,
    offload: bool,
    players: str | None,
    device: str,
    trust: bool | str,
) -> None:
    """Explain one node, graph or link (--node, --graph, --pair), or many at once to a file (--all, --split, --nodes,
    --pairs); with --graph FILE on a graph that was not there in training."""
    started = time.monotonic()
    some_graphs = tuple(one for one in graphs_or_file if isinstance(one, int))
    files_given = [one for one in graphs_or_file if isinstance(one, Path)]
    if len(files_given) > 1 or (files_given and (some_graphs or split)):
        raise click.UsageError("--graph takes one file, or numbers of graphs; a file has no splits.")
    many = [everything, split is not None, nodes_file is not None, pairs_file is not None]
    if sum([bool(some_nodes), bool(some_graphs), bool(some_pairs), *many]) != 1:
        raise click.UsageError(
            "say what to explain: --node, --graph, --pair, --all, --split, --nodes or --pairs, one of them."
        )
    few = bool(some_nodes or some_graphs or some_pairs)
    if not few and out is None:
        raise click.UsageError("name the file to write with --out.")
    if not few and (picture or asked_class is not None):
        raise click.UsageError("--picture and --class go with --node, --graph or --pair.")
    if rather_than is not None and asked_class is None:
        raise click.UsageError("--rather-than goes with --class: why one class rather than the other.")
    if at_least is not None and refine != "auto":
        raise click.UsageError("--at-least goes with --refine auto.")
    if few:
        _check_endings(picture, out)
    from dgl_lara.drawing.words import NOT_ADDITIVE
    from dgl_lara.runs import newest_run, open_run
    from dgl_lara.utils.memory import reuse_freed_memory
    from dgl_lara.utils.progress import detail, say

    where = folder or newest_run()
    run = open_run(where, choose_device(device), memory, offload, trust=trust, players=players)
    (detail if folder else say)(f"run {run.folder}" + ("" if folder else " (the newest; --run names another)"))
    reuse_freed_memory(run.dataset.num_nodes)
    if files_given or some_pairs or pairs_file:
        run = _elsewhere(run, files_given[0] if files_given else None, some_pairs, pairs_file)
    wanted = Wanted(refine if isinstance(refine, int) else None, (at_least or AT_LEAST) if refine == "auto" else None,
                    verify, not amortised)  # fmt: skip
    if few:
        classes = [one for one in (asked_class, rather_than) if one is not None]
        numbers = tuple(range(len(some_pairs)))
        asked = _asked_for(run, {"node": some_nodes, "graph": some_graphs, "link": numbers}, classes)
        all_kinds = players is None and picture is not None and picture.suffix == ".html" and not files_given
        others = run.parts[1:] if all_kinds else []  # a page can be switched to them
        for place, target in enumerate(asked):
            if place:
                echo()
            explanation = _explain_one(run, target, classes, wanted, top or 10)
            if not place:
                echo(NOT_ADDITIVE.format(explanation.game.value))
            files = [_file_of(path, target, len(asked)) for path in (picture, out) if path]
            beside = [_scored(part, target, classes, wanted)[0][0] for part in others]
            for path in files:
                explanation.save(path, beside)
            if files:
                echo("\nwritten: " + ", ".join(map(str, files)))
    elif out:
        targets = read_targets(nodes_file) if nodes_file else run.dataset.split(split or "all")
        count = _explain_many(run, targets, wanted, top or 20, out, workers)
        spent = time.monotonic() - started
        echo(f"{len(targets):,} explanations, {count:,} rows in {out}; {spent:.1f} s in all, loading included")


@dataclass(frozen=True)
class Wanted:
    """What is bought with model calls at the time of asking, and whether those of training are used."""

    refine: int | None  # pairs of coalitions
    at_least: float | None  # or: until every explanation has this confidence
    verify: bool
    corrected: bool


def _check_endings(picture: Path | None, out: Path | None) -> None:
    """Before anything is loaded."""
    if picture and picture.suffix not in PICTURES:
        raise click.UsageError(f"--picture must end in {', '.join(PICTURES)} (got '{picture.name}').")
    if out and out.suffix not in TABLES:
        raise click.UsageError(f"--out of one explanation must end in {', '.join(TABLES)} (got '{out.name}').")


def _asked_for(run: Run, given: dict[str, tuple[int, ...]], classes: list[int]) -> tuple[int, ...]:
    """The numbers given for the kind of target that this run explains, each once, if it has them."""
    lara, dataset = run.trained(), run.dataset
    task, targets = lara.task, tuple(dict.fromkeys(given[lara.task.name]))
    if not targets:
        option = "pair U V" if task.sides > 1 else task
        raise click.UsageError(f"this run explains {task}s: ask with --{option} (its data set is {dataset.name}).")
    for target in targets:
        if target >= dataset.num_targets:
            raise click.UsageError(f"--{task} must be in 0..{dataset.num_targets - 1} (got {target}).")
    known = lara.explainer_.config.num_classes
    for option, asked in zip(("--class", "--rather-than"), classes, strict=False):
        if asked >= known:
            raise click.UsageError(f"{option} must be in 0..{known - 1} (got {asked}).")
    return targets


def _file_of(path: Path, target: int, of: int) -> Path:
    """x.png; of several targets x-512.png."""
    return path if of == 1 else path.with_name(f"{path.stem}-{target}{path.suffix}")


def _scored(run: Run, target: int, classes: list[int], wanted: Wanted) -> tuple[Explanations, list[str]]:
    """The explanation of one target, and what is to be said of how it was bought."""
    import torch

    from dgl_lara.inference.novelty import with_novelty

    lara = run.trained()
    asked = None if not classes else (tuple(classes) if len(classes) == 2 else classes)
    found, spent = lara.explain(run.dataset.targets(torch.tensor([target])), asked, wanted.corrected), []
    if run.is_elsewhere:
        found = with_novelty(found, lara.explainer_, lara.config_.inputs)
    if wanted.at_least:
        settled = lara.settle(found, wanted.at_least)
        found = settled.explanations
        spent.append(_spent(int((settled.pairs > 0).sum()), int(settled.pairs.sum()), wanted.at_least))
    if wanted.refine:
        refined = lara.refine(found, wanted.refine)
        found = refined.explanations
        spent.append(
            f"refined with {wanted.refine} pairs of model calls; the scores moved by {refined.moved.item():.0%}"
        )
    return found.named(**run.dataset.names), spent


def _explain_one(run: Run, target: int, classes: list[int], wanted: Wanted, top: int | str) -> Explanation:
    """Print one explanation."""
    found, spent = _scored(run, target, classes, wanted)
    explanation = found[0]
    for line in spent:
        echo(line)
    echo(explanation.in_words())
    echo(explanation.how_sure())
    echo("\n" + _table(explanation, len(explanation) if top == "all" else int(top)))
    if wanted.verify:
        verdict = run.trained().verify(found).iloc[0]
        echo(
            f"\nfidelity+ {verdict['fidelity+']:.2f}, fidelity- {verdict['fidelity-']:.2f}; as many random players: "
            f"{verdict['random fidelity+']:.2f}, {verdict['random fidelity-']:.2f}"
            + ("; WORSE THAN RANDOM" if verdict["worse_than_random"] else "")
        )
    return explanation


def _table(explanation: Explanation, most: int) -> str:
    """The best players, and the strongest that speak against, by the names that the sentence uses."""
    import pandas as pd

    from dgl_lara.utils.tables import text_table

    names = dict(zip(explanation.players.tolist(), explanation.player_names(), strict=True))
    local = explanation.task.local and explanation.batch.players.kind != "features"
    columns = ["hop", "score", "rank"] if local else ["score", "rank"]
    everyone = explanation.numbered_frame()
    best = everyone.head(most)
    against = everyone[(everyone.score < 0) & (everyone["rank"] > most)].tail(3)  # the strongest that speak against
    best = pd.concat([best, against])
    figures = best[columns].itertuples(index=False)
    rows = [[names[player], *row] for player, row in zip(best.player, figures, strict=True)]
    classes = explanation.player_classes()
    if classes is not None:  # what the model says of the players themselves
        said = dict(zip(explanation.players.tolist(), map(explanation.batch.names.of_class, classes), strict=True))
        rows = [[*row, said[player]] for player, row in zip(best.player, rows, strict=True)]
        columns = [*columns, "class"]
    return text_table(["node" if explanation.batch.includes_target else explanation.kind, *columns], rows)


def _explain_many(run: Run, targets: Tensor, wanted: Wanted, top: int | str, out: Path, workers: int) -> int:
    """Stream the explanations to the file; returns how many rows it has."""
    from dgl_lara.inference.doubtful import MOST_SPENT
    from dgl_lara.inference.export import explain_to_file
    from dgl_lara.inference.trusted_rows import Bought, trusted_rows
    from dgl_lara.model.weights import weights_hash

    lara, seed = run.trained(), run.config.training.seed
    lara.check_buys(wanted.refine or wanted.at_least or wanted.verify)
    bulk = lara.bulk(workers)
    about = {
        "run": run.folder.name,
        "dataset": run.dataset.name,
        "source": run.dataset.source,
        "data": run.dataset.fingerprint,
        "players": lara.game.kind.in_words,
        "value": lara.game.value,
        "gate": lara.explainer_.config.gate,
        "seed": seed,
        "model": weights_hash(run.model),
        "explainer": weights_hash(lara.explainer_),
        "refined": wanted.refine,
        "at least": wanted.at_least,
        "corrected by": lara.samples_.pairs if wanted.corrected and lara.samples_ else 0,
        "verified": wanted.verify,
    }
    bought = Bought(wanted.refine, wanted.at_least, lara.errors_.stretch if lara.errors_ else 1.0, wanted.verify)
    make = trusted_rows(partial(lara.explain_numbered, corrected=wanted.corrected), bought, seed)
    plain = not (wanted.refine or wanted.at_least or wanted.verify or wanted.corrected)
    kept, pairs = None if top == "all" else int(top), wanted.refine or (MOST_SPENT if wanted.at_least else 0)
    everyone = targets.to(lara.features.device)
    count = explain_to_file(bulk, everyone, kept, out, about, None if plain else make, pairs)
    if wanted.at_least:
        echo(_spent(bought.doubtful, bought.pairs, wanted.at_least))
    return count


def _spent(doubtful: int, pairs: int, at_least: float) -> str:
    if not doubtful:
        return f"no explanation was in doubt: all are expected to reach {at_least:.0%} (no model call)"
    return f"{doubtful:,} in doubt (below {at_least:.0%}); {2 * pairs:,} evaluations of the model were spent on them"


def _elsewhere(run: Run, graph_file: Path | None, pairs: tuple[tuple[int, int], ...], pairs_file: Path | None) -> Run:
    """The run with what was asked for in the place of its own graph, or of its own links."""
    import torch

    from dgl_lara.datasets.link_files import read_pairs
    from dgl_lara.datasets.own_files import load_graph

    lara = run.trained()
    asked = torch.tensor(pairs) if pairs else read_pairs(pairs_file) if pairs_file else None
    if asked is not None and lara.task.sides == 1:
        raise click.UsageError(f"this run explains {lara.task}s, not links (its data set is {run.dataset.name}).")
    if graph_file is None and asked is not None:
        return run.with_lara(lara.about(asked), pairs=asked)
    assert graph_file is not None
    if lara.task.sides > 1 and asked is None:
        raise click.UsageError("say with --pair or --pairs which links of that graph to explain.")
    graph, features = load_graph(graph_file)
    return run.with_lara(lara.on(graph, features, asked), graph_file, graph, features, asked)


def read_targets(path: Path) -> Tensor:
    """Node (or graph) numbers from a text file, one a line."""
    import torch

    try:
        numbers = [int(line) for line in path.read_text().split()]
        return torch.tensor(numbers, dtype=torch.long)
    except (OSError, ValueError, RuntimeError, OverflowError) as error:  # also: not text, numbers beyond 2^63
        raise InputError(f"{path} must hold one whole number a line ({error}).") from error

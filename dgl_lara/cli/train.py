"""`dgl-lara train`: make an explainer for a model on a data set."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dgl_lara.cli.console import echo
from dgl_lara.cli.launch import is_a_child, joined_ranks, run_together, shared_memory
from dgl_lara.cli.options import (
    FILE,
    NEW_FOLDER,
    RUN,
    Count,
    CountOrWord,
    Memory,
    NonEmptyPath,
    Rate,
    check_there,
    choose_device,
    dataset_options,
    device_option,
    given_options,
    load_dataset,
    seed_option,
    stored_name,
    target_for,
)
from dgl_lara.constants import BASELINES, EMBEDDINGS, FEATURES_OF, INPUTS, PLAYERS, PRESETS, TRAIN_ON, VALUES
from dgl_lara.datasets import Options, is_path
from dgl_lara.errors import InputError, LaraError
from dgl_lara.explainer.gates import GATES
from dgl_lara.training.objectives import OBJECTIVES

if TYPE_CHECKING:
    from dgl_lara.blackbox.user_model import UserModelRef
    from dgl_lara.datasets.dataset import Dataset
    from dgl_lara.game.player_specs import PlayerSpec
    from dgl_lara.lara import LARA
    from dgl_lara.training.config import TrainingConfig

AS_IT_GOES_ON = ("resume", "own_name", "trust", "memory", "processes", "device")  # the rest is what the run is


def training_options(command: Callable) -> Callable:
    """One option for each choice of `TrainingConfig`; what is not given comes from the preset."""
    natural = Count()
    decorators = [
        click.option("--preset", type=click.Choice(PRESETS), default="default", show_default=True,
                     help="Where all options below start from: what measured best, or the paper."),
        click.option("--objective", type=click.Choice(OBJECTIVES.names), help="What teaches the explainer."),
        click.option("--gate", type=click.Choice(GATES.names), help="How a score knows where the player stands."),
        click.option("--inputs", type=click.Choice(INPUTS), help="What the explainer sees of a node."),
        click.option("--embedding", type=click.Choice(EMBEDDINGS), help="Separate p and t, or one for both."),
        click.option("--train-on", type=click.Choice(TRAIN_ON),
                     help="Targets to learn from (no label is used)."),
        click.option("--targets", type=natural, help="Learn from so many of them, drawn at random. Default: all."),
        click.option("--batch-size", type=CountOrWord("all"), help="Targets a step."),
        click.option("--dim", type=Count(1, 4096), help="Length of p and t."),
        click.option("--hidden", type=Count(1, 16_384), help="Width of the encoder."),
        click.option("--layers", type=Count(0, 64), help="GraphConv layers; 0 is an MLP. Default: K."),
        click.option("--masks", type=Count(1, 1_000_000), help="Coalition pairs drawn a step."),
        click.option("--pool", type=CountOrWord("auto", "0"), metavar="N|auto|0",
                     help="Coalition pairs of the whole graph that all steps share; 0: each step draws new ones."),
        click.option("--epochs", type=natural, help="Passes over the training targets, of the explainer."),
        click.option("--shared-pairs", type=CountOrWord("auto", "0"), metavar="N|auto|0",
                     help="Pairs of coalitions of every target that are kept to correct its scores; 0: none."),
        click.option("--lr", type=Rate(), help="Learning rate of Adam."),
    ]  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


@click.command()
@partial(dataset_options, required=False)
@click.option("--target", "target_file", type=FILE, help="Model to explain (.pt or .npz); else one is trained.")
@click.option("--graph", "graph_file", type=NonEmptyPath(path_type=Path),
              help="Your own graph: .bin, .npz, or a folder of parts. The same as --dataset FILE.")  # fmt: skip
@click.option("--model", "own_name", metavar="MODULE:FUNCTION", help="Your own model: the function that builds it.")
@click.option("--weights", "weights_file", type=FILE, help="Its weights, a state dict.")
@click.option("--hops", type=CountOrWord("auto", "measure"), default="auto", show_default=True,
              help="K, how far the model looks: what it declares, Eq. 13 on sampled nodes, or a number.")  # fmt: skip
@click.option("--value", type=click.Choice(VALUES), help="The number explained. [logit; of links: output]")
@click.option("--players", "who", type=click.Choice(PLAYERS), multiple=True, default=("nodes",), show_default="nodes",
              help="Who is scored; given several times, the run holds an explainer for each.")  # fmt: skip
@click.option("--directed-edges", is_flag=True, help="With --players edges: each direction is a player of its own.")
@click.option("--features-of", type=click.Choice(FEATURES_OF), default="field", show_default=True,
              help="With --players features: removed all around the target, or in it alone.")  # fmt: skip
@click.option("--baseline", type=click.Choice(BASELINES), default="zero", show_default=True,
              help="What takes the place of a removed feature; rows: values of rows of the data.")  # fmt: skip
@click.option("--feature-groups", type=FILE, help='Columns that play together, a JSON file: {"job": [1, 2, 3]}.')
@training_options
@click.option("--out", type=NEW_FOLDER, help="Run folder. Default: runs/<dataset>-<time>.")
@click.option("--resume", type=RUN, help="Continue this run; all settings come from it.")
@click.option("--memory", type=Memory(), help="Working memory to keep to, like 4GB. [70 % of what is free]")
@click.option("--processes", type=Count(1, 1024), default=1, show_default="1",
              help="Processes on this machine that train together; on several machines, torchrun.")  # fmt: skip
@click.option("--trust", is_flag=True, help="With --resume: run the code of the model that the run names.")
@seed_option
@device_option
def train(
    name: str | None,
    options: Options,
    target_file: Path | None,
    graph_file: Path | None,
    own_name: str | None,
    weights_file: Path | None,
    hops: int | str,
    value: str | None,
    who: tuple[str, ...],
    directed_edges: bool,
    features_of: str,
    baseline: str,
    feature_groups: Path | None,
    preset: str,
    out: Path | None,
    resume: Path | None,
    memory: int | None,
    processes: int,
    trust: bool,
    seed: int,
    device: str,
    **changes: Any,
) -> None:
    """Train an explainer for a model on a data set."""
    if processes > 1 and not is_a_child():
        sys.exit(run_together(processes))
    from dgl_lara._util.distributed import ProcessLost
    from dgl_lara._util.progress import log_info
    from dgl_lara._util.writable import check_folder
    from dgl_lara.runs.config import RunConfig
    from dgl_lara.runs.create import create_run
    from dgl_lara.runs.folder import RUNS, check_unused, resume_command
    from dgl_lara.runs.open import open_run

    ranks = joined_ranks(device)
    memory = shared_memory(ranks, memory, device)
    if graph_file and name:
        raise click.UsageError("give --graph or --dataset, not both.")
    name = str(graph_file.resolve()) if graph_file else name
    if (name is None) == (resume is None):
        raise click.UsageError("give either --dataset or --graph (a new run) or --resume (go on with one).")
    if own_name is not None and target_file:
        raise click.UsageError("give --model or --target, not both.")
    if weights_file and own_name is None:
        raise click.UsageError("--weights goes with --model, the function that builds the model they belong to.")
    if out:
        check_unused(out)
    elif resume is None:
        check_folder(RUNS, "name another place with --out")
    if resume:
        if extra := given_options(besides=AS_IT_GOES_ON):
            raise click.UsageError(f"--resume takes all settings from the run; leave out {extra[0]}.")
        check_there(resume)
        check_folder(resume, "go on with a copy of it in another place")
        run = open_run(resume, choose_device(device), memory, trust=trust if own_name is None else own_name)
    else:
        dataset = load_dataset(str(name), options, device)
        if own_name is not None:
            explained = own_model(own_name, weights_file, dataset)
        else:
            if target_file is None:
                whose = "no --model is given: one" if is_path(str(name)) else "the model to explain is one"
                log_info(f"{whose} of dgl-lara's own, trained first unless it was before; --epochs are the explainer's")
            try:
                with ranks.first_before_others():
                    explained = ModelToExplain(*target_for(dataset, target_file, seed))
            except KeyboardInterrupt:
                if ranks.is_first:
                    echo("Interrupted while the model to explain was trained, which begins anew next time.", err=True)
                sys.exit(130)
            echo(_whose_model(explained, target_file, is_path(str(name))))
        players = chosen_players(who, directed_edges, features_of, baseline, feature_groups)
        lara, how = lara_for(explained.model, dataset, hops, value, memory, players[0])
        lara.config = settings(lara, dataset, preset, changes, seed)
        about = RunConfig(
            stored_name(str(name)),
            options,
            lara.game.hops,
            lara.value,
            lara.config,
            preset,
            explained.own,
            players=players,
        )
        run = create_run(out, about, dataset, lara, explained.details)
        echo(f"how far the model looks, in hops: K = {lara.game.hops} ({how})")
    trusting = " --trust" if run.config.model else ""  # code of the user's own is run only where that is said
    again = f"Go on with: {resume_command(run.folder, bool(trusting))}"
    try:
        echo(f"{run.dataset.name} ({run.dataset.source}); run folder {run.folder}")
        several = len(run.config.players) > 1
        for part in run.parts:
            if several:
                echo(f"\n{part.lara.players.name}")
            trained = part.train()
            if ranks.is_first:
                _tell_of(trained)
    except KeyboardInterrupt:
        if ranks.is_first:
            echo(f"Interrupted; nothing is lost. {again}", err=True)
        sys.exit(130)
    except ProcessLost as lost:
        raise LaraError(f"{lost} {again}") from lost
    ranks.leave()
    asked = f"eval --run {run.folder} --metric fidelity"
    if run.dataset.key.get("parts"):
        asked = f"explain --run {run.folder} --all --out explanations.parquet"
    echo(f"next: dgl-lara {asked}{trusting}")


def _tell_of(lara: LARA) -> None:
    """What came of the training."""
    state = lara.state_
    alone = ""
    if state.best_of_neighbours is not None:
        clear = not math.isnan(state.best_of_neighbours)
        alone = f", {state.best_of_neighbours:.3f}" if clear else ", too little to tell"
        alone += " over the neighbours alone"
    steps = f"{state.step} step{'s' * (state.step != 1)}"
    echo(f"validation agreement ({state.validated_by}): {state.best:.3f}{alone}, after {steps}")
    kept = "no coalitions were kept, so scores are not corrected"
    if lara.samples_:
        use = "to correct scores" if lara.errors_ else "too few to correct scores or to know their errors"
        kept = f"{lara.samples_.pairs:,} pairs of coalitions kept, {use}"
    given = f"the model was given {lara.cost_:,.0f} nodes for each of the {lara.game.num_targets:,} {lara.task}s"
    twice = state.resumed_at is not None and state.resumed_at < state.step
    echo(f"{kept}; {given}" + ", with what was asked again after the interruption" * twice)


def chosen_players(
    who: tuple[str, ...], directed: bool, of: str, baseline: str, groups: Path | None
) -> tuple[PlayerSpec, ...]:
    """The kinds of players asked for, in that order, each once."""
    import json

    from dgl_lara.datasets.file_fields import TEXT_ENCODING
    from dgl_lara.game.player_specs import Edges, Features, Nodes

    if directed and "edges" not in who:
        raise click.UsageError("--directed-edges goes with --players edges.")
    if (of, baseline, groups) != ("field", "zero", None) and "features" not in who:
        raise click.UsageError("--features-of, --baseline and --feature-groups go with --players features.")
    named = None
    if groups is not None:
        try:
            named = json.loads(groups.read_text(TEXT_ENCODING))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f'{groups} must be a JSON file like {{"job": [1, 2, 3]}} ({error}).') from error
    made: dict[str, PlayerSpec] = {"nodes": Nodes(), "edges": Edges(directed)}
    if "features" in who:
        made["features"] = Features(of, baseline, named)
    return tuple(made[name] for name in dict.fromkeys(who))


@dataclass(frozen=True)
class ModelToExplain:
    """The model to explain, what is known of it, and where a model of the user's own comes from."""

    model: Any
    details: dict = field(default_factory=dict)
    own: UserModelRef | None = None


def _whose_model(explained: ModelToExplain, target_file: Path | None, own_graph: bool) -> str:
    """Nobody should take a model that dgl-lara trained by itself for their own."""
    config, test = explained.model.config, explained.details.get("test")
    what = f"{config.architecture}, {config.layers} layers" + (f", test accuracy {test:.3f}" if test else "")
    if target_file:
        return f"explained model: {target_file} ({what})"
    yours = "; yours: --model MODULE:FUNCTION --weights FILE" if own_graph else ""
    return f"explained model: one that dgl-lara trained for this data set ({what}){yours}"


def own_model(name: str, weights: Path | None, dataset: Dataset) -> ModelToExplain:
    from dgl_lara.blackbox.user_model import find_model, open_model

    own = find_model(name)
    model = open_model(own, weights, dataset.features, dataset.num_classes)
    echo(f"explained model: {name}" + ("" if weights else ", as it is returned (no --weights)"))
    return ModelToExplain(model, own=own)


def lara_for(
    model: Any, dataset: Dataset, hops: int | str, value: str | None, memory: int | None, players: PlayerSpec
) -> tuple[LARA, str]:
    """The method on this data, and how its K came about."""
    from dgl_lara.lara_partitioned import lara_on

    if hops == "auto" and not hasattr(model, "num_hops"):
        hops = "measure"
    lara = lara_on(dataset, model, hops, value, memory=memory, players=players)
    how = {"auto": "declared by the model", "measure": "measured, Eq. 13"}.get(str(hops), "given")
    if hops == "measure" and not lara.task.has_distances:
        how = "the explainer's depth; every node of a graph is a player"
    return lara, how


def settings(lara: LARA, dataset: Dataset, preset: str, changes: dict[str, Any], seed: int) -> TrainingConfig:
    """The preset with the changes asked for, in mini-batches where the whole graph does not fit."""
    from dgl_lara.lara_partitioned import PartitionedLara, checked_config
    from dgl_lara.training.config import (
        ALL,
        default,
        full_graph_bytes,
        paper,
        with_mini_batches,
        within_memory,
    )

    given = {field: value for field, value in changes.items() if value is not None}
    if given.get("batch_size") == "all":
        given["batch_size"] = ALL
    for pairs in {"pool", "shared_pairs"} & given.keys():
        given[pairs] = None if given[pairs] == "auto" else int(given[pairs])
    count = len(dataset.split(given.get("train_on", "train")))
    base = paper(dataset.task, seed) if preset == "paper" else default(lara.task, count, seed)
    whole = replace(base, **given)
    if isinstance(lara, PartitionedLara):
        return checked_config(with_mini_batches(whole, given))
    config = within_memory(whole, lara.game, given)
    if config != whole:
        echo(
            f"mini-batches of {config.batch_size} from {config.targets:,} targets: the whole graph at once needs "
            f"about {full_graph_bytes(lara.game, whole) >> 30} GB; --memory or --batch-size say otherwise"
        )
    return config

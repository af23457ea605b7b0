"""Command `dgl-lara train`. Train an explainer for a model on a data set."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dgl_lara.cli.console import UsageError, echo
from dgl_lara.cli.launch import is_child, join_processes, memory_share, run_processes
from dgl_lara.cli.options import (
    FILE,
    NEW_FOLDER,
    RUN,
    NonEmptyPath,
    apply_options,
    check_options,
    check_run,
    choose_device,
    count_or,
    dataset_options,
    device_option,
    gnn_for,
    load_dataset,
    memory_option,
    options_set,
    seed_option,
    stored_name,
)
from dgl_lara.constants import BASELINES, EMBEDDINGS, FEATURES_OF, INPUTS, PLAYERS, PRESETS, TRAIN_ON, VALUES
from dgl_lara.datasets import Options, is_path
from dgl_lara.errors import InputError, LaraError
from dgl_lara.explainer.gates import GATES
from dgl_lara.training.objectives import OBJECTIVES

if TYPE_CHECKING:
    from dgl_lara.blackbox.user_model import UserModelRef
    from dgl_lara.datasets.dataset import Dataset
    from dgl_lara.game.index import Index
    from dgl_lara.game.player_specs import PlayerSpec
    from dgl_lara.lara import LARA
    from dgl_lara.runs.run import Run
    from dgl_lara.training.config import TrainingConfig

WITH_RESUME = ("resume", "own_name", "trust", "memory", "processes", "device")  # all else is stored in the run
REQUIRES = {"--weights": ["--model"]}


def _training_options(command: Callable) -> Callable:
    """Add an option for each setting of `TrainingConfig`, which checks the values."""
    options = [
        click.option("--preset", type=click.Choice(PRESETS), default="default", show_default=True,
                     help="Start from the settings that measured best, or from those of the paper."),
        click.option("--objective", type=click.Choice(OBJECTIVES.names), help="Loss of the explainer."),
        click.option("--gate", type=click.Choice(GATES.names), help="How a score depends on the player's position."),
        click.option("--inputs", type=click.Choice(INPUTS), help="Input of the explainer for each node."),
        click.option("--embedding", type=click.Choice(EMBEDDINGS), help="Separate p and t, or one embedding for both."),
        click.option("--train-on", type=click.Choice(TRAIN_ON), help="Targets to train on. No label is used."),
        click.option("--targets", type=int, help="Train on this many of them, drawn at random. Default is all."),
        click.option("--batch-size", type=count_or("all"), help="Targets a step."),
        click.option("--dim", type=int, help="Length of p and t."),
        click.option("--hidden", type=int, help="Width of the encoder."),
        click.option("--layers", type=int, help="GraphConv layers. 0 is an MLP. Default is K."),
        click.option("--masks", type=int, help="Coalition pairs drawn a step."),
        click.option("--pool", type=count_or("auto", "0"), metavar="N|auto|0",
                     help="Coalition pairs of the whole graph that all steps share. 0: new ones at every step."),
        click.option("--epochs", type=int, help="Passes over the training targets."),
        click.option("--shared-pairs", type=count_or("auto", "0"), metavar="N|auto|0",
                     help="Coalition pairs of every target that are kept to correct its scores. 0: none."),
        click.option("--lr", type=float, help="Learning rate of Adam."),
    ]  # fmt: skip
    return apply_options(command, options)


@click.command()
@partial(dataset_options, required=False)
@click.option("--target", "target_file", type=FILE, help="Model to explain (.pt or .npz). Default is train one.")
@click.option("--graph", "graph_file", type=NonEmptyPath(path_type=Path),
              help="Your own graph: .bin, .npz, or a folder of parts.")  # fmt: skip
@click.option("--model", "own_name", metavar="MODULE:FUNCTION", help="Your own model: the function that builds it.")
@click.option("--weights", "weights_file", type=FILE, help="Its weights, a state dict (with --model).")
@click.option("--hops", type=count_or("auto", "measure"), default="auto", show_default=True,
              help="K, the reach of the model: as it declares, measured (Eq. 13), or a number.")  # fmt: skip
@click.option("--value", type=click.Choice(VALUES), help="Number to explain. Default is logit, for links output.")
@click.option("--index", default="banzhaf", show_default=True, metavar="banzhaf|shapley|keep-P",
              help="Law of coalitions. shapley: scores add up. keep-0.9: 90 % of the players stay.")  # fmt: skip
@click.option(
    "--players",
    "player_names",
    type=click.Choice(PLAYERS),
    multiple=True,
    default=("nodes",),
    show_default="nodes",
    help="Player set to score. Repeatable: the run holds an explainer for each.",
)
@click.option("--directed-edges", is_flag=True, help="Each direction is a player (with --players edges).")
@click.option(
    "--features-of",
    type=click.Choice(FEATURES_OF),
    default="field",
    show_default=True,
    help="Mask the feature in the whole receptive field, or only in the target (with --players features).",
)
@click.option(
    "--baseline",
    type=click.Choice(BASELINES),
    default="zero",
    show_default=True,
    help="Replacement of a masked feature. rows: values of rows of the data (with --players features).",
)
@click.option("--feature-groups", type=FILE,
              help='With --players features: columns that are one player, a JSON file {"job": [1, 2, 3]}.')  # fmt: skip
@_training_options
@click.option("--out", type=NEW_FOLDER, help="Run folder. Default is runs/<dataset>-<time>.")
@click.option("--resume", type=RUN, help="Continue this run with its own settings.")
@memory_option
@click.option("--processes", type=click.IntRange(1, 1024), default=1, show_default="1",
              help="Processes on this machine that train together. On several machines, use torchrun.")  # fmt: skip
@click.option("--trust", is_flag=True, help="Run the code of the model that the run names (with --resume).")
@seed_option
@device_option
def train(
    name: str | None,
    graph_file: Path | None,
    out: Path | None,
    resume: Path | None,
    memory: int | None,
    processes: int,
    trust: bool,
    device: str,
    **values: Any,
) -> None:
    """Train an explainer for a model on a data set."""
    if processes > 1 and not is_child():
        sys.exit(run_processes(processes))
    from dgl_lara._util.distributed import ProcessLost
    from dgl_lara._util.writable import check_folder
    from dgl_lara.runs.folder import RUNS, check_unused, resume_command
    from dgl_lara.runs.open import open_run

    group = join_processes(device)
    memory = memory_share(group, memory, device)
    exclusive = [("--model", "--target")]
    check_options(options_set(), ("--dataset", "--graph", "--resume"), exclusive, {} if resume else REQUIRES)
    if resume:
        if extra := options_set(besides=WITH_RESUME):
            raise UsageError("train.resume_option", name=extra[0])
        check_run(resume)
        check_folder(resume, "Continue with a copy of it in another place.")
        run = open_run(resume, choose_device(device), memory, trust=values["own_name"] or trust)
    else:
        if out:
            check_unused(out)
        else:
            check_folder(RUNS, "Name another place with --out.")
        name = str(graph_file.resolve()) if graph_file else str(name)
        run = _create(name, out, memory, device, **values)
    command = resume_command(run.folder, run.config.model is not None)
    try:
        echo(f"{run.dataset.name} ({run.dataset.source}); run folder {run.folder}")
        for part in run.parts:
            if len(run.config.players) > 1:
                echo(f"\n{part.lara.players.name}")
            lara = part.train()
            if group.is_first:
                _print_result(lara)
    except KeyboardInterrupt:
        if group.is_first:
            echo(f"Interrupted. Nothing is lost. Continue with: {command}", err=True)
        sys.exit(130)
    except ProcessLost as error:
        raise LaraError("train.process_lost", command=command) from error
    group.leave()
    words = f"eval --run {run.folder} --metric fidelity"
    if run.dataset.key.get("parts"):
        words = f"explain --run {run.folder} --all --out explanations.parquet"
    echo(f"next: dgl-lara {words}{' --trust' * bool(run.config.model)}")


def _create(
    name: str,
    out: Path | None,
    memory: int | None,
    device: str,
    options: Options,
    target_file: Path | None,
    own_name: str | None,
    weights_file: Path | None,
    hops: int | str,
    value: str | None,
    index: str,
    player_names: tuple[str, ...],
    directed_edges: bool,
    features_of: str,
    baseline: str,
    feature_groups: Path | None,
    preset: str,
    seed: int,
    **changes: Any,
) -> Run:
    """Create a new run: settings, data, model to explain, method."""
    from dgl_lara.game.index import as_index
    from dgl_lara.runs.config import RunConfig
    from dgl_lara.runs.create import create_run

    changes = _training_changes(changes)
    players = _player_specs(player_names, directed_edges, features_of, baseline, feature_groups)
    dataset = load_dataset(name, options, device)
    if own_name is not None:
        explained = _own_model(own_name, weights_file, dataset)
    else:
        explained = _shipped_model(dataset, target_file, seed, own_graph=is_path(name))
    lara, how = _lara(explained.model, dataset, hops, value, memory, players[0], as_index(index))
    lara.config = _training_config(lara, dataset, preset, changes, seed)
    config = RunConfig(
        dataset=stored_name(name),
        options=options,
        hops=lara.game.hops,
        value=lara.value,
        index=as_index(index).name,
        training=lara.config,
        preset=preset,
        model=explained.own,
        players=players,
    )
    run = create_run(out, config, dataset, lara, explained.details)
    echo(f"reach of the model: K = {lara.game.hops} hops ({how})")
    return run


@dataclass(frozen=True)
class _ModelToExplain:
    """The model to explain, facts about one of our models, and the source of a user's model."""

    model: Any
    details: dict = field(default_factory=dict)
    own: UserModelRef | None = None


def _own_model(name: str, weights: Path | None, dataset: Dataset) -> _ModelToExplain:
    from dgl_lara.blackbox.user_model import find_model, open_model

    own = find_model(name)
    model = open_model(own, weights, dataset.features, dataset.num_classes)
    echo(f"explained model: {name}" + ("" if weights else ", with the weights that it is built with (no --weights)"))
    return _ModelToExplain(model, own=own)


def _shipped_model(dataset: Dataset, file: Path | None, seed: int, own_graph: bool) -> _ModelToExplain:
    """Load or train one of our models and print which one."""
    from dgl_lara._util.distributed import get_process_group
    from dgl_lara._util.notices import notice

    group = get_process_group()
    if file is None:
        notice("train.shipped_model")
    try:
        with group.first_before_others():
            model, details = gnn_for(dataset, file, seed)
    except KeyboardInterrupt:
        if group.is_first:
            echo("Interrupted during the training of the model to explain, which starts again next time.", err=True)
        sys.exit(130)
    architecture, layers, test = model.config.architecture, model.config.layers, details.get("test")
    what = f"{architecture}, {layers} layers" + (f", test accuracy {test:.3f}" if test else "")
    own = "; for your own model use --model MODULE:FUNCTION --weights FILE" if own_graph and not file else ""
    echo(f"explained model: {file or 'one that dgl-lara trained for this data set'} ({what}){own}")
    return _ModelToExplain(model, details)


def _player_specs(
    names: tuple[str, ...], directed: bool, of: str, baseline: str, groups: Path | None
) -> tuple[PlayerSpec, ...]:
    """Return the requested player sets, each once."""
    from dgl_lara.game.player_specs import BY_NAME

    if directed and "edges" not in names:
        raise UsageError("options.requires", name="--directed-edges", others="--players edges")
    if (of, baseline, groups) != ("field", "zero", None) and "features" not in names:
        option = "--features-of, --baseline or --feature-groups"
        raise UsageError("options.requires", name=option, others="--players features")
    columns = _read_groups(groups) if groups else None
    options: dict[str, dict[str, Any]] = {
        "edges": {"directed": directed},
        "features": {"of": of, "baseline": baseline, "groups": columns},
    }
    return tuple(BY_NAME[name](**options.get(name, {})) for name in dict.fromkeys(names))


def _read_groups(path: Path) -> Any:
    from dgl_lara.datasets.text_files import TEXT_ENCODING

    try:
        return json.loads(path.read_text(TEXT_ENCODING))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("groups.file", path=path, problem=error) from error


def _lara(
    model: Any,
    dataset: Dataset,
    hops: int | str,
    value: str | None,
    memory: int | None,
    players: PlayerSpec,
    index: Index,
) -> tuple[LARA, str]:
    """Return the method on this data, and where its K comes from."""
    from dgl_lara.lara_distributed import lara_on

    if hops == "auto" and not hasattr(model, "num_hops"):
        hops = "measure"
    lara = lara_on(dataset, model, hops, value, memory=memory, players=players, index=index)
    how = {"auto": "declared by the model", "measure": "measured, Eq. 13"}.get(str(hops), "as requested")
    if hops == "measure" and not lara.task.has_distances:
        how = "depth of the explainer; every node of a graph is a player"
    return lara, how


def _training_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that were requested, after checking them. Data and model are loaded later."""
    from dgl_lara.training.config import ALL, TrainingConfig

    words = {
        ("batch_size", "all"): ALL,
        ("pool", "auto"): None,
        ("pool", "0"): 0,
        ("shared_pairs", "auto"): None,
        ("shared_pairs", "0"): 0,
    }
    requested = {name: words.get((name, value), value) for name, value in changes.items() if value is not None}
    TrainingConfig(**requested)
    return requested


def _training_config(lara: LARA, dataset: Dataset, preset: str, changes: dict[str, Any], seed: int) -> TrainingConfig:
    """Return the settings of a preset with changes, with mini-batches if the whole graph does not fit the memory."""
    from dgl_lara._util.notices import notice
    from dgl_lara.training.config import default, full_graph_bytes, paper

    count = len(dataset.split(changes.get("train_on", "train")))
    base = paper(dataset.task, seed) if preset == "paper" else default(lara.task, count, seed, lara.index)
    requested = replace(base, **changes)
    config = lara.fit_config(requested, changes)
    if config != requested and not dataset.key.get("parts"):
        needed = full_graph_bytes(lara.game, requested) >> 30
        notice("train.mini_batches", batch_size=config.batch_size, targets=config.targets, gigabytes=needed)
    return config


def _print_result(lara: LARA) -> None:
    """Print quality and cost of a training."""
    state, neighbours = lara.state_, ""
    if state.best_of_neighbours is not None:
        measured = not math.isnan(state.best_of_neighbours)
        figure = f"{state.best_of_neighbours:.3f}" if measured else "too noisy to measure"
        neighbours = f", {figure} without the target itself"
    steps = f"{state.step} step{'s' * (state.step != 1)}"
    echo(f"validation agreement ({state.validated_by}): {state.best:.3f}{neighbours}, after {steps}")
    kept = "no coalitions kept, so scores are not corrected"
    if lara.samples_:
        use = "to correct scores" if lara.errors_ else "too few to correct scores or to estimate their errors"
        kept = f"{lara.samples_.pairs:,} pairs of coalitions kept, {use}"
    again = state.resumed_at is not None and state.resumed_at < state.step
    cost = f"the model evaluated {lara.cost_:,.0f} nodes for each of the {lara.game.num_targets:,} {lara.task}s"
    echo(f"{kept}; {cost}" + ", including repetitions after the interruption" * again)

"""Run folders: everything a training run was made of, and everything needed to continue or use it.

config.json       data set, target model, settings of training and explainer
environment.json  command, versions, git hash, time
target.pt         the explained model (weights.pt: those of a model of the user's own)
feature_groups.json  columns that play together, as --feature-groups takes them, where there are some
metrics.csv       loss and validation agreement
checkpoint.pt     to continue from (train --resume)
explainer.pt      the best weights of g
samples.pt        what f said in training of coalitions that all targets share; corrects scores
embeddings.pt     p and t of everything and f's logits: the second explanation costs next to nothing
rows/             the same of a graph in parts, one mapped file each
"""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dgl
import pandas as pd
import torch
from torch import Tensor

from dgl_lara import constants, datasets
from dgl_lara._util.atomic import atomic_write, load_tensors, locked, save_tensors, zip_fingerprint
from dgl_lara._util.distributed import get_process_group
from dgl_lara._util.environment import environment, versions
from dgl_lara._util.progress import log_info, working
from dgl_lara._util.schema import abbreviated, flag, maybe, number, rows_of, table, tensors, text, validate, whole, word
from dgl_lara.attribution.shared_samples import SharedSamples
from dgl_lara.blackbox.call import Model
from dgl_lara.blackbox.identity import identity, is_other, weights_of
from dgl_lara.blackbox.user_model import UserModelRef, find_model, open_model
from dgl_lara.constants import PLAYERS, PRESETS, VALUES
from dgl_lara.datasets import Options
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import InputError, LaraError
from dgl_lara.explainer.network import ExplainerConfig, load_explainer, save_explainer
from dgl_lara.game import player_specs
from dgl_lara.game.game import Game
from dgl_lara.game.player_specs import Nodes, PlayerSpec
from dgl_lara.game.receptive_field import MOST_HOPS
from dgl_lara.gnns.base import ShippedModel
from dgl_lara.gnns.checkpoint import load_gnn, save_gnn
from dgl_lara.inference.embedding_store import EmbeddingStore
from dgl_lara.inference.error_model import ErrorModel
from dgl_lara.lara import LARA, described
from dgl_lara.lara_partitioned import PartitionedLara, lara_on
from dgl_lara.runs.layout import FEATURE_GROUPS, how_to_go_on, run_itself
from dgl_lara.training.config import MAX_PAIRS, TrainingConfig
from dgl_lara.training.state import TrainingState

RUNS = Path(constants.RUNS)
CONFIG = {
    "dataset": text, "options": table, "hops": whole(0, MOST_HOPS), "value": word(*VALUES), "training": table,
    "preset": word(*PRESETS), "model": maybe(table), "data": maybe(text), "players": rows_of({"kind": word(*PLAYERS)}),
}  # fmt: skip
OPTIONS = {
    "source": word(*datasets.SOURCES), "seed": whole(0, 2**32 - 1), "undirected": flag, "nodes": maybe(whole(1)),
    "data_dir": maybe(text), "target_type": maybe(text), "pairs": maybe(text), "relation": maybe(text),
    "leave_out": flag,
}  # fmt: skip
NEWER = ("target_type", "pairs", "relation", "leave_out")  # options that runs of 0.1.0 do not have
MODEL = {"module": text, "function": text, "file": text}
MADE_WITH = {"command": text, "time": text, "git": maybe(text), "versions": table}
CHECKPOINT = {
    "step": whole(), "explainer": tensors, "average": tensors, "optimiser": table, "best": number,
    "best_weights": tensors, "running_mean": maybe(tensors), "nodes_asked": whole(), "shared": maybe(table),
    "pool": whole(0, MAX_PAIRS), "settings": table,
    "history": rows_of({"step": whole(1), "epoch": whole(1), "loss": number, "agreement": number}),
}  # fmt: skip


@dataclass(frozen=True)
class RunConfig:
    """What identifies a run."""

    dataset: str
    options: Options
    hops: int
    value: str
    training: TrainingConfig
    preset: str
    model: UserModelRef | None = None  # None: one of the models that ship with dgl-lara
    data: str | None = None  # the content of the data set, to notice a change; None: a run of 0.1.0
    players: tuple[PlayerSpec, ...] = (Nodes(),)  # who is scored: an explainer each, the first in the folder itself

    def to_dict(self) -> dict:
        content = {**asdict(self), "players": [player_specs.to_dict(choice) for choice in self.players]}
        for name in ("data_dir", "pairs"):
            given = content["options"][name]
            content["options"][name] = str(given.resolve()) if given else None
        return content

    @staticmethod
    def from_dict(content: dict, where: object) -> RunConfig:
        """LaraError that names the place, TypeError or ValueError where it is not one."""
        validate(content, CONFIG, where, optional=("model", "data", "players"))
        validate(content["options"], OPTIONS, f"{where}, options,", optional=NEWER)
        if content.get("model") is not None:
            validate(content["model"], MODEL, f"{where}, model,")
        options = dict(content["options"])
        for name in ("data_dir", "pairs"):
            options[name] = Path(options[name]) if options.get(name) else None
        training, model = TrainingConfig(**content["training"]), content.get("model")
        own = UserModelRef(**model) if model else None
        players = tuple(map(player_specs.from_dict, content.get("players", []))) or (Nodes(),)
        rebuilt = {"options": Options(**options), "training": training, "model": own, "players": players}
        return RunConfig(**{**content, **rebuilt})


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder, opened: the data set, and the `LARA` that was (or will be) trained on it."""

    folder: Path
    config: RunConfig
    dataset: Dataset
    lara: LARA

    @property
    def model(self) -> Model:
        return self.lara.user_model

    on_other_graph: bool = False  # it is asked about another graph than its own

    def with_lara(
        self,
        lara: LARA,
        file: Path | None = None,
        graph: dgl.DGLGraph | None = None,
        features: Any = None,
        pairs: Tensor | None = None,
    ) -> Run:
        """The same explainer, asked about other links, or about the graph of a file."""
        nobody = torch.empty(0, dtype=torch.long)
        count = len(pairs) if pairs is not None else lara.task.num_targets(lara.graph)
        changed: dict[str, Any] = {"pairs": pairs, "labels": torch.zeros(count, dtype=torch.long)}
        changed |= dict.fromkeys(("train", "val", "test"), nobody)
        if graph is not None and file is not None:
            names = {name: known for name, known in self.dataset.display_names.items() if name != "nodes"}
            changed |= {"graph": graph, "features": features, "motif": None, "display_names": names}
            changed |= {"name": file.stem, "source": f"file {file.name}", "key": {"dataset": file.stem}}
        other = replace(self.dataset, **changed)
        return Run(self.folder, self.config, other, lara, on_other_graph=graph is not None)

    @cached_property
    def names(self) -> dict[str, Any]:
        """By which people know nodes, features and the classes of the model."""
        known, outputs = self.dataset.names, self.trained().explainer_.config.num_classes
        classes = known.get("classes")
        if classes is None or len(classes) == outputs:
            return known
        if self.config.value != "output":
            log_info(
                f"note: the model tells {outputs} classes apart, and {len(classes)} have names: they go by numbers."
            )
        return {**known, "classes": None}

    @property
    def parts(self) -> list[Run]:
        """Itself, and the explainers of other kinds of players that the folder holds, each in a folder of its own."""
        return [self, *(self.part(choice) for choice in self.config.players if choice != self.lara.players)]

    def part(self, choice: PlayerSpec) -> Run:
        """The same run for another kind of players."""
        of = self.lara
        where = (of.model, of.graph, of.features, of.task, self.config.hops, of.value, of.config, of.memory)
        lara = LARA(*where, of.compute_device, players=choice)
        lara.asked = of.asked
        return make_run(self.folder / choice.name, self.config, self.dataset, lara)

    @property
    def game(self) -> Game:
        return self.lara.game

    def checkpoint(self, state: TrainingState) -> None:
        """Called by training now and then, and when it is interrupted.

        The checkpoint comes last: whoever is killed before it goes on from the one before and writes the others again.
        """
        self._check_still_there()
        with atomic_write(self.folder / "metrics.csv") as temporary:
            pd.DataFrame(state.history).to_csv(temporary, index=False)
        self._keep_best(state)
        save_tensors({**state.to_dict(), "settings": self._settings}, self.folder / "checkpoint.pt")

    def _check_still_there(self) -> None:
        """What is written into a folder that somebody has removed would be no run."""
        if not (run_itself(self.folder) / "config.json").exists():
            raise LaraError(f"{self.folder} was removed while it was being trained; start a new run.")

    def _keep_best(
        self, state: TrainingState, errors: ErrorModel | None = None, cost: float | None = None, **beside: str
    ) -> None:
        if state.best_weights:
            about = described(self._identity, self.config.training, self.config.value, errors, cost)
            about |= {"data": self.config.data, "best": state.best, **beside}
            save_explainer(state.best_explainer(), self.folder / "explainer.pt", **about)

    def last_checkpoint(self) -> dict | None:
        """None where the run was interrupted before its first step: it begins at the beginning."""
        path = self.folder / "checkpoint.pt"
        newer = ("nodes_asked", "shared", "pool", "settings")  # than 0.1.0
        return validate(load_tensors(path), CHECKPOINT, path, newer) if path.exists() else None

    def train(self) -> LARA:
        """From the last checkpoint on, if there is one; afterwards f's answer is kept for whoever opens the run.
        Of several processes the first one writes."""
        if self.has_other_data:
            raise InputError(
                f"the data set {self.config.dataset} was changed since {self.folder} was begun, so it cannot go on; "
                "put the old one back, or start a new run."
            )
        split, val = map(self.dataset.targets, (self.dataset.split(self.config.training.train_on), self.dataset.val))
        ranks = get_process_group()
        with locked(self.folder) if ranks.is_first else nullcontext():
            begun = self.last_checkpoint()
            self._check_began_so(begun or {})
            if ranks.count > 1:
                made_with = {f"the version of {name}": version for name, version in versions().items()}
                step = begun["step"] if begun else 0
                ranks.agree({**made_with, **self._settings, "the step of the checkpoint": step})
            self.lara.fit(split, val, begun, self.checkpoint)
            if not ranks.is_first:
                return self.lara
            self._check_still_there()
            if self.lara.samples_:
                save_tensors(self.lara.samples_.to_dict(), self.folder / "samples.pt")
            beside = {"samples_file": zip_fingerprint(self.folder / "samples.pt")} if self.lara.samples_ else {}
            # also where nothing was left to do
            self._keep_best(self.lara.state_, self.lara.errors_, self.lara.cost_, **beside)
            if self.lara.store is not None:  # of a graph in parts it is on disk already
                self.lara.store.keep_answer(self.game.full_outputs)
        return self.lara

    @cached_property
    def _identity(self) -> dict[str, str]:
        return identity(self.model, self.config.model.function if self.config.model else "")

    @cached_property
    def _settings(self) -> dict[str, Any]:
        """What all processes of a training have in common, and its halves: plain values, by their names in words."""
        settings: dict[str, Any] = {"the content of the data set": self.dataset.fingerprint, **self._identity}
        settings |= {
            "K": self.config.hops,
            "value": self.config.value,
            "players": player_specs.to_dict(self.lara.players),
        }
        return settings | {name.replace("_", " "): value for name, value in asdict(self.config.training).items()}

    def _check_began_so(self, checkpoint: dict) -> None:
        """A training that goes on under other settings would be none that anybody could repeat."""
        begun = checkpoint.get("settings", {})
        self._check_model(begun)
        for name, then in begun.items():
            now = self._settings.get(name, then)
            if now != then and name not in self._identity:
                raise LaraError(
                    f"{self.folder} cannot go on: {name} was {abbreviated(then)} when its training began, and is now "
                    f"{abbreviated(now)}; put it back, or start a new run."
                )

    def _check_model(self, stored: dict) -> None:
        """Its numbers are those that g learned from; its code may have been worded anew."""
        if is_other("model", stored, self._identity):
            weights = "target.pt" if self.config.model is None else "weights.pt"
            raise LaraError(
                f"{self.folder} does not fit together: its explainer learned from a model of other weights than those "
                f"in {weights}; put the file back, or start a new run."
            )
        if is_other("code", stored, self._identity):
            own = self.config.model
            which = f": {own.function} in {own.file}" if own else ""
            log_info(f"note: the code of the model is not what it was when {self.folder} was trained{which}.")

    def _check_fit(self, shape: ExplainerConfig, stored: dict) -> None:
        """The explainer is the one that config.json describes; an edited file would change what its scores mean."""
        training = self.config.training
        told = {"task": self.dataset.task, "hops": self.config.hops, "dim": training.dim, "hidden": training.hidden}
        told |= {"embedding": training.embedding, "encoder": training.encoder}
        told |= {"players": self.lara.players.name}
        told |= {"layers": self.config.hops if training.layers is None else training.layers}
        told |= {"gate": training.gate} if self.lara.task.has_distances else {}
        self._check_same({**told, "value": self.config.value}, {"value": self.config.value, **stored, **asdict(shape)})
        self._check_same(asdict(training), stored.get("training", {}))
        self._check_same({"data": self.config.data}, stored)

    def _note_other_history(self, best: float | None) -> None:
        """What lists of runs show comes from metrics.csv."""
        try:
            told = self.history()["agreement"].max()
        except LaraError:
            return
        if best is not None and abs(told - best) > 1e-6:
            log_info(
                f"note: by {self.folder / 'metrics.csv'} the best agreement was {told:.3f}, by explainer.pt "
                f"{best:.3f}; one of them is older, or of another run."
            )

    def _check_same(self, told: dict, learned: dict) -> None:
        for name, value in told.items():
            if name in learned and learned[name] != value:
                raise LaraError(
                    f"{self.folder} does not fit together: by config.json {name} is {abbreviated(value)}, by "
                    f"explainer.pt {abbreviated(learned[name])}; was one of them changed?"
                )

    @property
    def has_other_data(self) -> bool:
        return self.config.data not in (None, self.dataset.fingerprint)

    def history(self) -> pd.DataFrame:
        """Loss and validation agreement by step."""
        path = self.folder / "metrics.csv"
        try:
            found = pd.read_csv(path)
            return found[["step", "epoch", "loss", "agreement"]].astype({"step": int, "epoch": int, "agreement": float})
        except (OSError, ValueError, KeyError, OverflowError) as error:  # pandas' own errors are ValueErrors
            raise LaraError(f"{path} cannot be understood ({str(error).splitlines()[0]}).") from error

    def made_with(self) -> dict:
        """environment.json: command, versions, time."""
        path = self.folder / "environment.json"
        try:
            return validate(json.loads(path.read_text()), MADE_WITH, path)
        except (OSError, ValueError, RecursionError) as error:
            raise LaraError(f"{path} cannot be understood ({error}).") from error

    def _samples(self, expected: str | None) -> SharedSamples | None:
        """What f said in training; scores of g alone are better than none, so a damaged file is left out, and one that
        is not `expected` (older explainers expect none)."""
        path = self.folder / "samples.pt"
        if not path.exists():
            if expected:
                log_info(f"note: {path} is missing: scores are not corrected.")
            return None
        sizes = self.game.num_players, self.dataset.num_targets
        try:
            known = None if self.has_other_data else sizes
            content = load_tensors(path, mmap=True)
            if expected and zip_fingerprint(path) != expected:
                raise LaraError(f"{path} is not the file that the explainer beside it was trained with.")
            return SharedSamples.from_dict(content, path, known, self.lara.task.num_endpoints > 1)
        except LaraError as damage:
            log_info(f"{damage} Going on without it: scores are not corrected.")
            return None

    def trained(self) -> LARA:
        """The `LARA` with its explainer, ready to explain."""
        if not self.lara.is_trained:
            path = self.folder / "explainer.pt"
            if not path.exists():
                raise not_trained_yet(self.folder, self.config.model is not None)
            explainer, stored = load_explainer(path, self.lara.features.device)
            self._check_model(stored)
            self._check_fit(explainer.config, stored)
            self._note_other_history(stored.get("best"))
            about = described(self._identity, self.config.training, self.config.value)
            more = {name: stored.get(name) for name in ("errors", "cost")}
            self.lara.with_explainer(explainer, {**about, **more})
            self.lara.samples_ = self._samples(stored.get("samples_file"))
        return self.lara


def not_trained_yet(folder: Path, runs_code: bool) -> LaraError:
    return LaraError(f"{folder} has no trained explainer yet; go on with: {how_to_go_on(folder, runs_code)}")


def make_run(folder: Path, config: RunConfig, dataset: Dataset, lara: LARA) -> Run:
    """The run, whose LARA keeps its embeddings in the folder."""
    built_by = {"model": config.model.function} if config.model else {}  # a file of code may hold several
    data = json.dumps({**dataset.key, **built_by, "content": dataset.fingerprint}, sort_keys=True)
    if isinstance(lara, PartitionedLara):
        lara.keep_rows(folder / "rows", data)
    else:
        sizes = lara.graph.num_nodes(), lara.task.num_rows(lara.graph)
        lara.store = EmbeddingStore(folder / "embeddings.pt", lara.model, data, sizes)
    return Run(folder, config, dataset, lara)


def create_run(out: Path | None, config: RunConfig, dataset: Dataset, lara: LARA, details: dict) -> Run:
    """A new folder, runs/<dataset>-<time> unless `out` names one. `details`: what is known of one of our models."""
    ranks = get_process_group()
    folder = out or _fresh(RUNS / f"{dataset.name}-{time.strftime('%Y%m%d-%H%M%S')}")
    folder = Path(ranks.text_of_first(str(folder)))
    config = replace(config, data=dataset.fingerprint)
    if not ranks.is_first:
        return make_run(folder, config, dataset, lara)
    check_free(folder)
    with locked(folder):
        check_free(folder)  # somebody else may have been faster
        if isinstance(lara.user_model, ShippedModel):
            save_gnn(lara.user_model, folder / "target.pt", details)
        elif weights := weights_of(lara.model):
            save_tensors(weights, folder / "weights.pt")
        for groups in filter(None, (getattr(choice, "groups", None) for choice in config.players)):
            _write_json(folder / FEATURE_GROUPS, dict(groups))
        _write_json(folder / "environment.json", environment())
        _write_json(folder / "config.json", config.to_dict())  # last: a folder with a config is a run
    return make_run(folder, config, dataset, lara)


def check_free(folder: Path) -> None:
    if (folder / "config.json").exists():
        raise InputError(f"{folder} holds a run already; name another --out, or continue it with --resume {folder}")


def _fresh(folder: Path) -> Path:
    """The folder itself, or with a number behind it if two runs start in the same second."""
    number, candidate = 2, folder
    while candidate.exists():
        candidate, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return candidate


def open_run(
    folder: Path | str,
    device: torch.device | str = "cpu",
    memory: int | None = None,
    offload: bool = False,
    trust: bool | str = False,
    players: str | None = None,
    to_explain: bool = False,
) -> Run:
    """`offload`: the data stays in main memory, only batches go to the device. `trust`: whether the code of a model of
    the user's own may be run, as the folder names it (True) or as it is named here ("my_module:build_model").
    `players`: which of the explainers that the folder holds; without it, the first. `to_explain`: a run without an
    explainer is refused before anything is loaded."""
    folder, device = Path(folder), torch.device(device)
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(f"'{folder}' is not a run folder (it has no config.json); `dgl-lara runs` lists them.")
    try:
        config = RunConfig.from_dict(json.loads(path.read_text()), path)
    except (ValueError, TypeError, RecursionError) as error:
        raise LaraError(f"{path} cannot be understood ({error}).") from error
    if to_explain and not any(folder.rglob("explainer.pt")):
        raise not_trained_yet(folder, config.model is not None)
    own = _trusted(folder, config, trust)
    config = replace(config, model=own)  # it may have been named again
    where = torch.device("cpu") if offload else device
    with working(f"reading {config.dataset}"):
        dataset = datasets.load(config.dataset, config.options).to(where)
    model: Model
    if own:
        weights = folder / "weights.pt"
        model = open_model(own, weights if weights.exists() else None, dataset.features, dataset.num_classes)
    else:
        model = load_gnn(folder / "target.pt", dataset)[0].to(where)
    compute_device = device if offload else None
    lara = lara_on(
        dataset, model, config.hops, config.value, config.training, memory, compute_device, players=config.players[0]
    )
    run = make_run(folder, config, dataset, lara)
    if players is not None and players != config.players[0].name:
        found = [choice for choice in config.players if choice.name == players]
        if not found:
            held = " and ".join(choice.name for choice in config.players)
            raise InputError(f"{folder} was trained to score {held}, not {players}; train with --players {players}.")
        run = run.part(found[0])
    if run.has_other_data:
        log_info(f"note: the data set {config.dataset} is not as it was when {folder} was trained.")
    return run


def _trusted(folder: Path, config: RunConfig, trust: bool | str) -> UserModelRef | None:
    """The model of the user's own that may be run. A run folder can come from anybody, and names code."""
    own = config.model
    if own is None:
        if isinstance(trust, str):
            raise InputError(f"{folder} explains a model that ships with dgl-lara; leave out --model.")
        return None
    if isinstance(trust, str):
        named = find_model(trust)
        if named.function != own.function:
            raise InputError(f"{folder} explains what {own.function} builds, not {named.function} (--model {trust}).")
        return named
    if not trust:
        raise InputError(
            f"{folder} explains a model whose code would be run: {own.function} in {own.file}. If you trust that file, "
            f"add --trust, or name the model again, e.g. --model {own.module}:{own.function}."
        )
    return own


def newest_run(dataset: str | None = None) -> Path:
    """The run that was started last, of this data set if one is named; one that has an explainer, if there is any."""
    found = []
    for path in RUNS.glob("*/config.json"):
        try:
            of = json.loads(path.read_text()).get("dataset")
        except (OSError, ValueError, AttributeError, RecursionError):
            continue  # damaged: not a run that can be meant
        if dataset is None or of == dataset:
            found.append((any(path.parent.rglob("explainer.pt")), path.stat().st_mtime_ns, path.parent))
    if not found:
        of = f" of {dataset}" if dataset else ""
        raise InputError(
            f"there is no run{of} in {RUNS}/; train one with: dgl-lara train --dataset {dataset or 'NAME'}"
        )
    return max(found)[2]


def _write_json(path: Path, content: dict) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")

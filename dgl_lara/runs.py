"""Run folders: everything a training run was made of, and everything needed to continue or use it.

config.json       data set, target model, settings of training and explainer
environment.json  command, versions, git hash, time
target.pt         the explained model (weights.pt: those of a model of the user's own)
metrics.csv       loss and validation agreement
checkpoint.pt     to continue from (train --resume)
explainer.pt      the best weights of g
embeddings.pt     p and t of everything and f's logits: the second explanation costs next to nothing
"""

from __future__ import annotations

import json
import pickle
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from dgl_lara import __version__, datasets
from dgl_lara.datasets import Options
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import InputError, LaraError
from dgl_lara.explainer.network import Explainer, ExplainerConfig
from dgl_lara.explanation import Explanations
from dgl_lara.game.game import Game
from dgl_lara.inference.layerwise import Elsewhere, embed_layerwise, full_pass_bytes, predict_in_batches
from dgl_lara.inference.scores import Embeddings, check_range, embed_all, explain, explain_apart
from dgl_lara.model.blackbox import Model
from dgl_lara.model.own_model import OwnModel, open_model
from dgl_lara.model.weights import weights_hash, weights_of
from dgl_lara.targets.checkpoint import load_target, save_target
from dgl_lara.targets.models import TargetModel
from dgl_lara.training.loop import TrainingConfig, TrainingState
from dgl_lara.utils.files import written_whole
from dgl_lara.utils.memory import most_of_what_is_free
from dgl_lara.utils.progress import say

RUNS = Path("runs")


@dataclass(frozen=True)
class RunConfig:
    """What identifies a run."""

    dataset: str
    options: Options
    hops: int
    value: str
    training: TrainingConfig
    preset: str
    model: OwnModel | None = None  # None: one of the models that ship with dgl-lara

    def to_dict(self) -> dict:
        content = asdict(self)
        content["options"]["data_dir"] = str(self.options.data_dir.resolve()) if self.options.data_dir else None
        return content

    @staticmethod
    def from_dict(content: dict) -> RunConfig:
        options = dict(content["options"])
        options["data_dir"] = Path(options["data_dir"]) if options["data_dir"] else None
        training, model = TrainingConfig(**content["training"]), content.get("model")
        own = OwnModel(**model) if model else None
        return RunConfig(**{**content, "options": Options(**options), "training": training, "model": own})


@dataclass(frozen=True, eq=False)
class Run:
    """A run folder, opened."""

    folder: Path
    config: RunConfig
    dataset: Dataset
    target: Model
    known_game: Game | None = None
    memory: int = field(default_factory=most_of_what_is_free)  # bytes a pass may take before it goes in batches
    batches_on: torch.device | None = None  # the models are there and get batches; the data stays in main memory

    @cached_property
    def game(self) -> Game:
        """Made when first asked for: f's pass over the graph is spared where its logits are stored."""
        if self.known_game is not None:
            return self.known_game
        data, hops = self.dataset, self.config.hops
        in_batches = self.batches_on if data.task == "node" else None  # graphs come in batches anyway
        f = Elsewhere(self.target, in_batches) if in_batches else self.target
        answer = self._store["answer"].to(self.device) if self._store.get("game") == self._game_key else None
        if answer is None and in_batches:
            answer = predict_in_batches(f, data.graph, data.features, hops)
        return Game(f, data.graph, data.features, data.task, hops, self.config.value, answer)

    @property
    def device(self) -> torch.device:
        return self.dataset.features.device

    @cached_property
    def _game_key(self) -> str:
        return f"{weights_hash(self.target)} {json.dumps(self.dataset.key, sort_keys=True)}"

    @cached_property
    def _store(self) -> dict:
        """What embeddings.pt holds; empty where there is none."""
        path = self.folder / "embeddings.pt"
        try:
            return _load(path, mmap=True) if path.exists() else {}
        except LaraError as damage:
            say(f"{damage} It is computed anew.")
            return {}

    def checkpoint(self, state: TrainingState) -> None:
        """Called by training now and then, and when it is interrupted."""
        pd.DataFrame(state.history).to_csv(self.folder / "metrics.csv", index=False)
        _save(state.to_dict(), self.folder / "checkpoint.pt")
        if state.best_weights:
            content = {"config": asdict(state.explainer.config), "weights": state.best_weights}
            _save(content, self.folder / "explainer.pt")

    def last_checkpoint(self) -> dict | None:
        """None where the run was interrupted before its first step: it begins at the beginning."""
        path = self.folder / "checkpoint.pt"
        return _load(path) if path.exists() else None

    def explainer(self) -> Explainer:
        path = self.folder / "explainer.pt"
        if not path.exists():
            raise LaraError(
                f"{self.folder} has no trained explainer yet; continue it with: train --resume {self.folder}"
            )
        content = _load(path)
        explainer = Explainer(ExplainerConfig(**content["config"])).to(self.device)
        explainer.load_state_dict(content["weights"])
        return explainer.eval()

    def embeddings(self, explainer: Explainer, workers: int = 0) -> Embeddings:
        """p and t of everything: kept with the run, computed anew when graph, model or explainer have changed."""
        game, key = self.game, f"{weights_hash(explainer)} {self._game_key}"
        if self._store.get("key") == key:
            return Embeddings(self._store["source"].to(self.device), self._store["target"].to(self.device))
        kind = self.config.training.inputs
        if game.task == "node" and (self.batches_on or full_pass_bytes(explainer, game.num_targets) > self.memory):
            embeddings = embed_layerwise(explainer.to(self.batches_on or self.device), game, kind, workers=workers)
            explainer.to(self.device)
        else:
            embeddings = embed_all(explainer, game, kind)
        parts = {"source": embeddings.source, "target": embeddings.target, "answer": game.answer}
        self._store.update({"key": key, "game": self._game_key, **{name: part.cpu() for name, part in parts.items()}})
        _save(self._store, self.folder / "embeddings.pt")
        return embeddings

    def keep_answer(self) -> None:
        """Store what f says of the untouched graph, so that whoever opens the run need not ask again."""
        self._store.update({"game": self._game_key, "answer": self.game.answer.cpu()})
        _save(self._store, self.folder / "embeddings.pt")

    def explain(self, explainer: Explainer, targets: Tensor) -> Explanations:
        """A few targets, quickly: from the store, else from their surroundings alone."""
        if self._store.get("key") == f"{weights_hash(explainer)} {self._game_key}" or self.dataset.task == "graph":
            return explain(explainer, self.game, self.embeddings(explainer), targets)
        data, config = self.dataset, self.config
        check_range(targets, data.num_targets, data.task)
        kind = config.training.inputs
        return explain_apart(explainer, self.target, data.graph, data.features, config.value, kind, targets)


def create_run(out: Path | None, config: RunConfig, dataset: Dataset, target: Model, game: Game, details: dict) -> Run:
    """A new folder, runs/<dataset>-<time> unless `out` names one."""
    folder = out or _fresh(RUNS / f"{dataset.name}-{time.strftime('%Y%m%d-%H%M%S')}")
    if (folder / "config.json").exists():
        raise InputError(f"{folder} holds a run already; name another --out, or continue it with --resume {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(target, TargetModel):
        save_target(target, folder / "target.pt", details)
    elif weights := weights_of(target):
        _save(weights, folder / "weights.pt")
    _write_json(folder / "environment.json", environment())
    _write_json(folder / "config.json", config.to_dict())  # last: a folder with a config is a run
    return Run(folder, config, dataset, target, game)


def _fresh(folder: Path) -> Path:
    """The folder itself, or with a number behind it if two runs start in the same second."""
    number, candidate = 2, folder
    while candidate.exists():
        candidate, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return candidate


def open_run(folder: Path, device: torch.device, memory: int | None = None, offload: bool = False) -> Run:
    """`offload`: the data stays in main memory, only batches go to the device."""
    if not (folder / "config.json").is_file():
        raise InputError(f"'{folder}' is not a run folder (it has no config.json).")
    try:
        config = RunConfig.from_dict(json.loads((folder / "config.json").read_text()))
    except (ValueError, KeyError, TypeError) as error:
        raise LaraError(f"{folder / 'config.json'} cannot be understood ({error}).") from error
    where = torch.device("cpu") if offload else device
    dataset = datasets.load(config.dataset, config.options).to(where)
    target: Model
    if config.model:
        weights = folder / "weights.pt"
        target = open_model(config.model, weights if weights.exists() else None, dataset)
    else:
        target = load_target(folder / "target.pt", dataset)[0].to(where)
    return Run(
        folder, config, dataset, target, memory=memory or most_of_what_is_free(), batches_on=device if offload else None
    )


def newest_run(dataset: str | None = None) -> Path:
    """The run that was started last, of this data set if one is named."""
    found = []
    for path in RUNS.glob("*/config.json"):
        try:
            of = json.loads(path.read_text()).get("dataset")
        except (ValueError, AttributeError):
            continue  # damaged: not a run that can be meant
        if dataset is None or of == dataset:
            found.append((path.stat().st_mtime_ns, path.parent))
    if not found:
        of = f" of {dataset}" if dataset else ""
        raise InputError(
            f"there is no run{of} in {RUNS}/; train one with: dgl-lara train --dataset {dataset or 'NAME'}"
        )
    return max(found)[1]


def environment() -> dict:
    """What this run was made with."""
    versions = {
        module: sys.modules[module].__version__ for module in ("torch", "dgl", "numpy") if module in sys.modules
    }
    return {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
        "versions": {"dgl-lara": __version__, "python": platform.python_version(), **versions},
        "git": _git_hash(),
    }


def _git_hash() -> str | None:
    try:
        asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _write_json(path: Path, content: dict) -> None:
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")


def _save(content: dict, path: Path) -> None:
    with written_whole(path) as temporary:
        torch.save(content, temporary)


def _load(path: Path, mmap: bool = False) -> dict:
    try:
        return torch.load(path, weights_only=True, map_location="cpu", mmap=mmap)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise LaraError(f"{path} is truncated or not a checkpoint ({str(error).splitlines()[0]}).") from error

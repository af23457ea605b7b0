"""Run folders: everything a training run was made of, and everything needed to continue or use it.

config.json       data set, target model, settings of training and explainer
environment.json  command, versions, git hash, time
target.pt         the explained model (weights.pt: those of a model of the user's own)
metrics.csv       loss and validation agreement
checkpoint.pt     to continue from (train --resume)
explainer.pt      the best weights of g
samples.pt        what f said in training of coalitions that all targets share; corrects scores
embeddings.pt     p and t of everything and f's logits: the second explanation costs next to nothing
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import torch

from dgl_lara import __version__, choices, datasets
from dgl_lara.datasets import Options
from dgl_lara.datasets.dataset import Dataset
from dgl_lara.errors import InputError, LaraError
from dgl_lara.explainer.network import load_explainer, save_explainer
from dgl_lara.game.game import Game
from dgl_lara.inference.store import EmbeddingStore
from dgl_lara.lara import LARA, described
from dgl_lara.model.blackbox import Model
from dgl_lara.model.own_model import OwnModel, open_model
from dgl_lara.model.weights import weights_of
from dgl_lara.targets.checkpoint import load_target, save_target
from dgl_lara.targets.models import TargetModel
from dgl_lara.training.config import TrainingConfig
from dgl_lara.training.state import TrainingState
from dgl_lara.utils.files import load_tensors, save_tensors, written_whole
from dgl_lara.utils.progress import working

RUNS = Path(choices.RUNS)


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
    """A run folder, opened: the data set, and the `LARA` that was (or will be) trained on it."""

    folder: Path
    config: RunConfig
    dataset: Dataset
    lara: LARA

    @property
    def model(self) -> Model:
        return self.lara.model

    @property
    def game(self) -> Game:
        return self.lara.game

    def checkpoint(self, state: TrainingState) -> None:
        """Called by training now and then, and when it is interrupted."""
        pd.DataFrame(state.history).to_csv(self.folder / "metrics.csv", index=False)
        save_tensors(state.to_dict(), self.folder / "checkpoint.pt")
        if state.best_weights:
            about = described(self.config.training, self.config.value)
            save_explainer(state.best_explainer(), self.folder / "explainer.pt", **about)

    def last_checkpoint(self) -> dict | None:
        """None where the run was interrupted before its first step: it begins at the beginning."""
        path = self.folder / "checkpoint.pt"
        return load_tensors(path) if path.exists() else None

    def train(self) -> LARA:
        """From the last checkpoint on, if there is one; afterwards f's answer is kept for whoever opens the run."""
        split = self.dataset.split(self.config.training.train_on)
        self.lara.fit(split, self.dataset.val, self.last_checkpoint(), self.checkpoint)
        assert self.lara.store is not None
        self.lara.store.keep_answer(self.game.answer)
        if self.lara.samples_:
            save_tensors(self.lara.samples_.to_dict(), self.folder / "samples.pt")
        about = described(self.config.training, self.config.value, self.lara.errors_)
        save_explainer(self.lara.explainer_, self.folder / "explainer.pt", **about)
        return self.lara

    def trained(self) -> LARA:
        """The `LARA` with its explainer, ready to explain."""
        if not self.lara.is_trained:
            path = self.folder / "explainer.pt"
            if not path.exists():
                raise LaraError(
                    f"{self.folder} has no trained explainer yet; continue it with: train --resume {self.folder}"
                )
            explainer, stored = load_explainer(path, self.lara.features.device)
            about = described(self.config.training, self.config.value)
            samples = self.folder / "samples.pt"
            about["samples"] = load_tensors(samples, mmap=True) if samples.exists() else None
            self.lara.with_explainer(explainer, {**about, "errors": stored.get("errors")})
        return self.lara


def make_run(folder: Path, config: RunConfig, dataset: Dataset, lara: LARA) -> Run:
    """The run, whose LARA keeps its embeddings in the folder."""
    data = json.dumps(dataset.key, sort_keys=True)
    lara.store = EmbeddingStore(folder / "embeddings.pt", lara.model, data)
    return Run(folder, config, dataset, lara)


def create_run(out: Path | None, config: RunConfig, dataset: Dataset, lara: LARA, details: dict) -> Run:
    """A new folder, runs/<dataset>-<time> unless `out` names one. `details`: what is known of one of our models."""
    folder = out or _fresh(RUNS / f"{dataset.name}-{time.strftime('%Y%m%d-%H%M%S')}")
    if (folder / "config.json").exists():
        raise InputError(f"{folder} holds a run already; name another --out, or continue it with --resume {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(lara.model, TargetModel):
        save_target(lara.model, folder / "target.pt", details)
    elif weights := weights_of(lara.model):
        save_tensors(weights, folder / "weights.pt")
    _write_json(folder / "environment.json", environment())
    _write_json(folder / "config.json", config.to_dict())  # last: a folder with a config is a run
    return make_run(folder, config, dataset, lara)


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
    with working(f"reading {config.dataset}"):
        dataset = datasets.load(config.dataset, config.options).to(where)
    model: Model
    if config.model:
        weights = folder / "weights.pt"
        model = open_model(config.model, weights if weights.exists() else None, dataset.features, dataset.num_classes)
    else:
        model = load_target(folder / "target.pt", dataset)[0].to(where)
    lara = LARA(
        model,
        dataset.graph,
        dataset.features,
        dataset.task,
        config.hops,
        config.value,
        config.training,
        memory,
        device if offload else None,
    )
    return make_run(folder, config, dataset, lara)


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

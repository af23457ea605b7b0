"""Runs: a folder with everything that a training was made of and everything needed to continue or use it.

config.json          data set, explained model, settings of training and explainer
environment.json     command, versions, git hash, time
target.pt            the explained model, or weights.pt, the weights of the user's own model
feature_groups.json  groups of feature columns, if there are any, as --feature-groups takes them
metrics.csv          loss and validation agreement
checkpoint.pt        state to continue from (train --resume)
explainer.pt         best weights of the explainer
samples.pt           outputs of the model for shared coalitions, which correct the scores
embeddings.pt        p and t of all nodes and the logits of the model
rows/                outputs and embeddings of a partitioned graph, one mapped file each
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from dgl_lara._util.atomic import atomic_write, load_tensors, locked, save_tensors, zip_fingerprint
from dgl_lara._util.distributed import get_process_group
from dgl_lara._util.environment import versions
from dgl_lara._util.notices import notice
from dgl_lara._util.schema import maybe, number, rows_of, table, tensors, validate, whole
from dgl_lara.attribution.shared_samples import SharedSamples
from dgl_lara.errors import LaraError
from dgl_lara.explainer.network import load_explainer, save_explainer
from dgl_lara.lara import LARA
from dgl_lara.runs.config import RunConfig
from dgl_lara.runs.folder import not_trained, run_root
from dgl_lara.runs.manifest import build_manifest, check_manifest, flattened
from dgl_lara.runs.overview import RunSummary
from dgl_lara.training.config import MAX_PAIRS

if TYPE_CHECKING:
    import dgl
    from torch import Tensor

    from dgl_lara.blackbox.call import Model
    from dgl_lara.datasets.dataset import Dataset
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_specs import PlayerSpec
    from dgl_lara.training.state import TrainingState

CHECKPOINT = {
    "step": whole(), "explainer": tensors, "average": tensors, "optimiser": table, "best": number,
    "best_weights": tensors, "running_mean": maybe(tensors), "nodes_asked": whole(), "shared": maybe(table),
    "pool": whole(0, MAX_PAIRS), "manifest": table,
    "history": rows_of({"step": whole(1), "epoch": whole(1), "loss": number, "agreement": number}),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Run:
    """An opened run folder: its data set and the `LARA` that was or will be trained on it.

    Attributes:
        folder: The folder.
        config: Content of config.json.
        dataset: Data set, or the graph that is asked about instead.
        lara: Method with the first player set of the run, or with the one that was asked for.
        on_other_graph: Whether `dataset` is another graph than the one of the training.
    """

    folder: Path
    config: RunConfig
    dataset: Dataset
    lara: LARA
    on_other_graph: bool = False

    @property
    def model(self) -> Model:
        return self.lara.user_model

    @property
    def game(self) -> Game:
        return self.lara.game

    @cached_property
    def names(self) -> dict[str, Any]:
        """Return names of nodes, features and classes. Classes have none if the model has other outputs."""
        names, num_outputs = self.dataset.names, self.trained().explainer_.config.num_classes
        classes = names.get("classes")
        if classes is None or len(classes) == num_outputs:
            return names
        if self.config.value != "output":
            notice("run.class_names", outputs=num_outputs, names=len(classes))
        return {**names, "classes": None}

    @property
    def parts(self) -> list[Run]:
        """Return this run and one run for each further player set."""
        return [self, *(self.part(players) for players in self.config.players if players != self.lara.players)]

    def part(self, players: PlayerSpec) -> Run:
        """Return the run for another player set. Its files are in a folder within this one."""
        lara = self.lara.for_players(players, self.config.hops)
        return make_run(self.folder / players.name, self.config, self.dataset, lara)

    def with_lara(
        self,
        lara: LARA,
        file: Path | None = None,
        graph: dgl.DGLGraph | None = None,
        features: Any = None,
        pairs: Tensor | None = None,
    ) -> Run:
        """Return a run that explains other links, or the graph of a file, with this explainer.

        Args:
            lara: The method on that graph.
            file: File of the graph.
            graph: Graph of the file. None means the graph of this run.
            features: Features of that graph.
            pairs: Links to explain.
        """
        count = len(pairs) if pairs is not None else lara.task.num_targets(lara.graph)
        changes: dict[str, Any] = {"pairs": pairs, "labels": torch.zeros(count, dtype=torch.long)}
        changes |= dict.fromkeys(("train", "val", "test"), torch.empty(0, dtype=torch.long))
        if graph is not None and file is not None:
            names = {name: words for name, words in self.dataset.display_names.items() if name != "nodes"}
            changes |= {"graph": graph, "features": features, "motif": None, "display_names": names}
            changes |= {"name": file.stem, "source": f"file {file.name}", "key": {"dataset": file.stem}}
        dataset = replace(self.dataset, **changes)
        return Run(self.folder, self.config, dataset, lara, on_other_graph=graph is not None)

    @property
    def data_changed(self) -> bool:
        """Return whether the data set differs from the one of the training."""
        return self.config.data != self.dataset.fingerprint

    @property
    def history(self) -> pd.DataFrame:
        """Return step, epoch, loss and validation agreement of the training."""
        path = self.folder / "metrics.csv"
        try:
            rows = pd.read_csv(path)
            return rows[["step", "epoch", "loss", "agreement"]].astype({"step": int, "epoch": int, "agreement": float})
        except (OSError, ValueError, KeyError, OverflowError) as error:  # pandas' own errors are ValueErrors
            raise LaraError("file.content", where=path, problem=str(error).splitlines()[0]) from error

    @cached_property
    def _manifest(self) -> dict[str, Any]:
        return build_manifest(self.config, self.model, self.lara.players)

    # --- training

    def train(self) -> LARA:
        """Train from the last checkpoint, or from the start. Of several processes the first one writes files.

        Returns:
            The trained `LARA`.

        Raises:
            LaraError: If data, model or settings differ from those of the checkpoint.
        """
        if self.data_changed:
            raise LaraError("run.data_changed", folder=self.folder, dataset=self.config.dataset)
        split = self.dataset.split(self.config.training.train_on)
        targets, validation = self.dataset.targets(split), self.dataset.targets(self.dataset.val)
        group = get_process_group()
        with locked(self.folder) if group.is_first else nullcontext():
            checkpoint = self._last_checkpoint()
            check_manifest(checkpoint["manifest"] if checkpoint else {}, self._manifest, self.folder)
            if group.count > 1:
                step = checkpoint["step"] if checkpoint else 0
                group.agree({**versions(), **flattened(self._manifest), "checkpoint step": step})
            self.lara.fit(targets, validation, checkpoint, self.checkpoint)
            if group.is_first:
                self._save_results()
        return self.lara

    def checkpoint(self, state: TrainingState) -> None:
        """Write the state of a training, so that it can continue from here.

        The checkpoint is written last. A run that is killed before that continues from the previous one and writes the
        other files again.
        """
        self._check_exists()
        with atomic_write(self.folder / "metrics.csv") as temporary:
            pd.DataFrame(state.history).to_csv(temporary, index=False)
        self._save_best(state)
        save_tensors({**state.to_dict(), "manifest": self._manifest}, self.folder / "checkpoint.pt")

    def _last_checkpoint(self) -> dict[str, Any] | None:
        path = self.folder / "checkpoint.pt"
        return validate(load_tensors(path), CHECKPOINT, path) if path.exists() else None

    def _save_results(self) -> None:
        """Write what is known after the last step."""
        self._check_exists()
        lara, path = self.lara, self.folder / "samples.pt"
        results: dict[str, Any] = {"errors": lara.errors_.to_dict() if lara.errors_ else None, "cost": lara.cost_}
        if lara.samples_:
            save_tensors(lara.samples_.to_dict(), path)
            results["samples_file"] = zip_fingerprint(path)
        self._save_best(lara.state_, **results)
        lara.store_outputs()

    def _save_best(self, state: TrainingState, errors: Any = None, cost: float | None = None, **more: Any) -> None:
        if state.best_weights:
            more |= {**self._manifest, "errors": errors, "cost": cost, "best": state.best}
            save_explainer(state.best_explainer(), self.folder / "explainer.pt", **more)

    def _check_exists(self) -> None:
        """Raise LaraError if the folder was removed meanwhile. Writing into it would not make it a run again."""
        if not (run_root(self.folder) / "config.json").exists():
            raise LaraError("run.removed", folder=self.folder)

    # --- explaining

    def trained(self) -> LARA:
        """Return the `LARA` with its explainer, ready to explain.

        Raises:
            LaraError: If there is no explainer, or if it was trained with other data, settings or another model.
        """
        if not self.lara.is_trained:
            path = self.folder / "explainer.pt"
            if not path.exists():
                raise not_trained(self.folder, self.config.model is not None)
            explainer, stored = load_explainer(path, self.lara.features.device)
            check_manifest(stored, self._manifest, self.folder)
            self._note_other_history(stored.get("best"))
            results = {name: stored.get(name) for name in ("errors", "cost")}
            self.lara.restore(explainer, {**self._manifest, **results})
            self.lara.with_samples(self._samples(stored.get("samples_file")))
        return self.lara

    def _note_other_history(self, best: float | None) -> None:
        best_of_history = RunSummary(self.folder).agreement
        if best is not None and best_of_history is not None and abs(best - best_of_history) > 1e-6:
            notice("run.other_history", folder=self.folder, history=best_of_history, explainer=best)

    def _samples(self, fingerprint: str | None) -> SharedSamples | None:
        """Read the samples that correct scores. Damaged ones are left out, because scores can do without."""
        path = self.folder / "samples.pt"
        if not path.exists():
            if fingerprint:
                notice("run.samples_missing", path=path)
            return None
        sizes = None if self.data_changed else (self.game.num_players, self.dataset.num_targets)
        try:
            content = load_tensors(path, mmap=True)
            if fingerprint and zip_fingerprint(path) != fingerprint:
                raise LaraError("run.other_samples", path=path)
            return SharedSamples.from_dict(content, path, sizes, self.lara.task.num_endpoints > 1)
        except LaraError as error:
            notice("run.samples_skipped", problem=str(error))
            return None


def make_run(folder: Path, config: RunConfig, dataset: Dataset, lara: LARA) -> Run:
    """Return the run of a folder. Its LARA keeps embeddings there."""
    built_by = {"model": config.model.function} if config.model else {}  # a file of code may hold several
    data = json.dumps({**dataset.key, **built_by, "content": dataset.fingerprint}, sort_keys=True)
    lara.keep_embeddings(folder, data)
    return Run(folder, config, dataset, lara)

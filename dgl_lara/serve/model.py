"""A run that is served, with its current snapshot and its log of updates."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dgl_lara import __version__
from dgl_lara._util.atomic import atomic_write, locked
from dgl_lara._util.notices import notice
from dgl_lara._util.schema import table, validation_error, whole
from dgl_lara.errors import InputError, LaraError, ModelError
from dgl_lara.lara import LARA
from dgl_lara.runs.open import open_run
from dgl_lara.runs.run import Run
from dgl_lara.serve.ids import make_ids
from dgl_lara.serve.request_graph import check_finite, check_row
from dgl_lara.serve.schemas import GraphUpdate
from dgl_lara.serve.snapshot import Snapshot, checksums, open_snapshot, snapshot_of_run, write_snapshot
from dgl_lara.serve.update_log import Entry, UpdateLog
from dgl_lara.serve.updates import apply_updates

OLD_SNAPSHOTS = 1  # kept for a process that is about to open one
CURRENT_FIELDS = {"sequence": whole(1), "embedded_again": whole(), "sums": table, "rejected": table}


class ServedModel:
    """A run that is served under a name. Only the updater writes, and `follow` returns the newest snapshot.

    Caches and graph updates are in the folder `state`, by default in that of the run.
    """

    def __init__(self, name: str, run: Run, state: Path | None = None) -> None:
        self.name, self.run = name, run
        self.laras: dict[str, LARA] = {part.lara.players.name: part.trained() for part in run.parts}
        self.lara = next(iter(self.laras.values()))
        self.task, self._num_nodes = self.lara.task, self.lara.graph.num_nodes()
        self.ids = make_ids(self.lara.game, run.names, self.node_name, self.lara.relation)
        home = state / name if state else run.folder / "serving"
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError("state.folder", folder=home, problem=error.strerror) from error
        self.log = UpdateLog(home / f"updates-{run.dataset.fingerprint}.jsonl")
        self.folder = home / self._key()
        self._forget_damaged()
        self.snapshot = snapshot_of_run(self.laras, self.folder / "0", self.ids)
        applied, logged = self.published(), len(self.log.entries())
        if applied > logged:
            raise LaraError("update_log.truncated", path=self.log.path, got=logged, expected=applied)
        self._current_file: tuple[int, int] | None = None  # inode and time of the file that was read last
        self._new_names: dict[int, str | None] = {}
        self._num_named = 0  # entries of the log whose names are in `_new_names`

    def _key(self) -> str:
        """Return what snapshots depend on. Updates belong to the data, so a retrained run keeps its log."""
        digest = hashlib.sha256(f"{__version__} {self.run.dataset.fingerprint}".encode())
        for part in self.run.parts:
            for name in ("explainer.pt", "samples.pt"):
                if (path := part.folder / name).exists():
                    digest.update(f"{name} {path.stat().st_size} {path.stat().st_mtime_ns}".encode())
        return digest.hexdigest()[:12]

    # --- following the updater

    def follow(self) -> Snapshot:
        """Return the newest snapshot, at the cost of one `stat` if nothing has changed."""
        try:
            status = os.stat(self.folder / "current")
        except OSError:
            return self.snapshot
        if (current_file := (status.st_ino, status.st_mtime_ns)) != self._current_file:
            self.snapshot = self._newest()
            self._current_file = current_file
        return self.snapshot

    def _newest(self) -> Snapshot:
        failed = None
        while (sequence := self.published()) != self.snapshot.sequence:
            try:
                return open_snapshot(self.laras, self.folder / str(sequence), sequence, self.ids)
            except FileNotFoundError as error:  # deleted, because there is a newer one
                if sequence == failed:
                    raise self._damaged(f"it names {sequence}, which is missing") from error
                failed = sequence
        return self.snapshot

    def warm_up(self) -> None:
        """Compute one explanation, which loads what is compiled."""
        snapshot = self.follow()
        snapshot.first.explain_one(int(np.argmin(snapshot.removed)))

    def published(self) -> int:
        """Return the number of the newest snapshot on disk."""
        return self._current()["sequence"]

    def _current(self) -> dict[str, Any]:
        try:
            content = json.loads((self.folder / "current").read_text())
        except FileNotFoundError:
            return {"sequence": 0, "rejected": {}}
        except (OSError, ValueError) as error:
            raise self._damaged(str(error)) from error
        if problem := validation_error(content, CURRENT_FIELDS):
            raise self._damaged(problem)
        return content

    def _damaged(self, problem: str) -> LaraError:
        return LaraError("snapshot.current_damaged", path=self.folder / "current", problem=problem)

    def _forget_damaged(self) -> None:
        """Forget a snapshot whose checksums are wrong. The next one is rebuilt from the log."""
        with locked(self.folder, wait=True):
            try:
                current = self._current()
                number = current["sequence"]
                if number == 0 or checksums(self.folder / str(number)) == current["sums"]:
                    return
            except LaraError:
                pass
            notice("snapshot.rebuilt", folder=self.folder)
            (self.folder / "current").unlink()

    def check_target(self, number: int) -> None:
        """Raise if there is no target with this number."""
        self.ids.checked([number], len(self.follow().removed))

    # --- updates

    def accept(self, update: GraphUpdate) -> Entry:
        """Check an update, write it to the log and return its entry."""
        if not self.ids.takes_updates or self.lara.explainer_.config.edge_columns:
            raise InputError("update.unsupported")
        return self.log.append(lambda earlier: self._entry(update, earlier))

    def _entry(self, update: GraphUpdate, earlier: Sequence[Entry]) -> Entry:
        snapshot = self.follow()
        pending = earlier[snapshot.sequence :]
        count = snapshot.graph.num_nodes() + sum(len(entry["features"]) for entry in pending)
        removed = set(snapshot.removed.nonzero()[0].tolist()).union(*(entry["removed_nodes"] for entry in pending))
        total, numbers = count + len(update.add_nodes), self._numbers_of_new(update, count, snapshot.features)

        def number(end: int | str, field: str, most: int) -> int:
            node = numbers.get(end) if isinstance(end, str) else end
            if node is None:
                raise InputError("update.unknown_key", field=field, got=end)
            if node >= most or node in removed:
                raise InputError("update.node", field=field, most=most - 1, got=node)
            return node

        def edges(pairs: Sequence[tuple[int | str, int | str]], field: str) -> list[list[int]]:
            ends = [[number(end, field, total) for end in pair] for pair in pairs]
            return ends + [pair[::-1] for pair in ends] if update.both_ways else ends

        entry: Entry = {
            "features": [node.features for node in update.add_nodes],
            "names": [node.name for node in update.add_nodes],
            "nodes": list(range(count, total)),
            "edges": edges(update.add_edges, "add_edges"),
            "removed_nodes": [number(node, "remove_nodes", count) for node in update.remove_nodes],
            "removed_edges": edges(update.remove_edges, "remove_edges"),
        }
        if not any(entry.values()):
            raise InputError("update.empty")
        dangling = {node for edge in entry["edges"] for node in edge} & set(update.remove_nodes)
        if dangling:
            raise InputError("update.edge_to_removed", got=min(dangling))
        return entry

    @staticmethod
    def _numbers_of_new(update: GraphUpdate, count: int, features: torch.Tensor) -> dict[str, int]:
        """Return the number of each new node by its key, and check the new nodes."""
        for row, node in enumerate(update.add_nodes):
            field = f"add_nodes.{row}.features"
            check_row(node.features, features.shape[1], field)
            check_finite(torch.tensor(node.features, dtype=features.dtype), field)
        keys = [node.key for node in update.add_nodes]
        numbers = {key: count + row for row, key in enumerate(keys) if key is not None}
        if len(numbers) < len(keys) - keys.count(None):
            raise InputError("update.duplicate_keys")
        return numbers

    def apply_pending_updates(self) -> int:
        """Write and publish the snapshot after all updates of the log, and return its number."""
        if self.follow().sequence >= len(self.log.entries()):
            return self.snapshot.sequence
        with locked(self.folder, wait=True):
            snapshot, entries = self.follow(), self.log.entries()
            if snapshot.sequence >= len(entries):
                return snapshot.sequence
            current = self._write_next(snapshot, entries[snapshot.sequence :])
            number = current["sequence"]
            current["sums"] = checksums(self.folder / str(number))
            with atomic_write(self.folder / "current") as temporary:
                temporary.write_text(json.dumps(current) + "\n")
            self.follow()
            self._delete_old(number)
            return number

    def _write_next(self, snapshot: Snapshot, pending: Sequence[Entry]) -> dict[str, Any]:
        """Write the snapshot after all pending updates.

        If the model fails then, apply only the first. If it fails on that one, reject it but keep its node numbers,
        which later updates use.
        """
        rejected: dict[str, str] = self._current()["rejected"] if snapshot.sequence else {}
        for count in sorted({len(pending), 1}, reverse=True):
            try:
                return {**self._write(snapshot, pending[:count]), "rejected": rejected}
            except ModelError as error:
                problem = str(error)
        first = pending[0]
        notice("updater.rejected", model=self.name, sequence=first["sequence"], problem=problem)
        empty = {**first, "edges": [], "removed_edges": [], "removed_nodes": first["nodes"]}
        empty["features"] = [[0.0] * snapshot.features.shape[1]] * len(first["nodes"])
        return {**self._write(snapshot, [empty]), "rejected": {**rejected, str(first["sequence"]): problem}}

    def _write(self, snapshot: Snapshot, entries: Sequence[Entry]) -> dict[str, Any]:
        after = apply_updates(snapshot.graph, snapshot.features, torch.from_numpy(snapshot.removed), entries)
        number = entries[-1]["sequence"]
        folder = self.folder / str(number)
        shutil.rmtree(folder, ignore_errors=True)  # of an attempt that failed
        return {"sequence": number, "embedded_again": write_snapshot(snapshot, after, folder)}

    def rejection_reason(self, sequence: int) -> str:
        """Return why an update was rejected, or nothing."""
        return str(self._current()["rejected"].get(str(sequence), ""))

    def _delete_old(self, newest: int) -> None:
        numbers = sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit() and path.name != "0")
        for number in numbers[: -OLD_SNAPSHOTS - 1]:
            shutil.rmtree(self.folder / str(number), ignore_errors=True)

    # --- names

    def node_name(self, node: int) -> str:
        """Return the name of a node, or its number."""
        labels = self.ids.names["labels"]
        if node < self._num_nodes:
            return str(labels[node]) if labels is not None else str(node)
        entries = self.log.entries()
        for entry in entries[self._num_named :]:
            self._new_names |= zip(entry["nodes"], entry["names"], strict=True)
        self._num_named = len(entries)
        return self._new_names.get(node) or str(node)


def open_models(
    folders: Sequence[Path], state: Path | None, memory: int | None, trust: bool | str
) -> list[ServedModel]:
    """Open runs under the names of their folders."""
    names = [folder.resolve().name for folder in folders]
    for name in names:
        if names.count(name) > 1:
            raise InputError("model.duplicate", name=name)
    torch.set_num_threads(1)
    models = []
    for name, folder in zip(names, folders, strict=True):
        run = open_run(folder, "cpu", memory, trust=trust, to_explain=True)
        models.append(ServedModel(name, run, state))
    return models

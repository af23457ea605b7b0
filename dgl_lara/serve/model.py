"""A run that is served: its current snapshot, its log of updates, and whoever makes the next snapshot of it."""

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
from dgl_lara._util.progress import log_info
from dgl_lara._util.schema import table, validation_error, whole
from dgl_lara.errors import InputError, LaraError, ModelError
from dgl_lara.lara import LARA
from dgl_lara.runs.open import open_run
from dgl_lara.runs.run import Run
from dgl_lara.serve.ids import IdCodec
from dgl_lara.serve.schemas import GraphUpdate
from dgl_lara.serve.snapshot import Snapshot, base_snapshot, checksums, open_snapshot, write_snapshot
from dgl_lara.serve.update_log import Entry, UpdateLog
from dgl_lara.serve.updates import changed

KEPT_BEHIND = 1  # snapshots before the current one: somebody may be about to open it


class ServedModel:
    """`follow` brings it up to date with what the keeper has made (`keeper.py`); everything else only reads."""

    def __init__(self, name: str, run: Run, state: Path | None = None) -> None:
        self.name, self.run = name, run
        self.laras: dict[str, LARA] = {part.lara.players.name: part.trained() for part in run.parts}
        self.lara = next(iter(self.laras.values()))
        self.task = self.lara.task
        self.called = IdCodec(self.lara, run.names, self.node_name)
        home = state / name if state else run.folder / "serving"
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"{home} cannot be made ({error.strerror}); name a folder to keep shared tables and graph updates in "
                "with --state."
            ) from error
        self.log = UpdateLog(home / f"updates-{run.dataset.fingerprint}.jsonl")
        self.folder = home / self._key()
        self._forget_damaged()
        self.base = base_snapshot(self.laras, self.folder / "0", self.called)
        self.snapshot = self.base
        counted, known = self.published(), len(self.log.entries())
        if counted > known:
            raise LaraError(f"{self.log.path} lacks updates that count already (it has {known} of {counted}).")
        self._seen: tuple[int, int] | None = None
        self._new_names: dict[int, str | None] = {}
        self._named = 0  # entries of the log whose names those are

    def _key(self) -> str:
        """Another explainer, other samples, another version: other snapshots. Updates belong to the data and outlive a
        retrained g."""
        digest = hashlib.sha256(f"{__version__} {self.run.dataset.fingerprint}".encode())
        for part in self.run.parts:
            for name in ("explainer.pt", "samples.pt"):
                if (path := part.folder / name).exists():
                    digest.update(f"{name} {path.stat().st_size} {path.stat().st_mtime_ns}".encode())
        return digest.hexdigest()[:12]

    # --- following

    def follow(self) -> Snapshot:
        """The newest snapshot. Costs one look at a file where nothing has changed."""
        try:
            found = os.stat(self.folder / "current")
        except OSError:
            return self.snapshot
        if (seen := (found.st_ino, found.st_mtime_ns)) != self._seen:
            self.snapshot = self._newest()
            self._seen = seen
        return self.snapshot

    def _newest(self) -> Snapshot:
        tried = None
        while (sequence := self.published()) != self.snapshot.sequence:
            try:
                return open_snapshot(self.laras, self.folder / str(sequence), sequence, self.called)
            except FileNotFoundError as error:  # a newer one has come and this one is gone
                if sequence == tried:
                    raise self._damaged(f"it names {sequence}, which is not there") from error
                tried = sequence
        return self.snapshot

    def warm_up(self) -> None:
        """One explanation, whatever is known of it: loads what is compiled."""
        snapshot = self.follow()
        snapshot.first.one(int(np.argmin(snapshot.gone_targets)), [])

    def published(self) -> int:
        """The number of the newest snapshot on disk."""
        return self._current()["sequence"]

    def _current(self) -> dict[str, Any]:
        try:
            content = json.loads((self.folder / "current").read_text())
        except FileNotFoundError:
            return {"sequence": 0}
        except (OSError, ValueError) as error:
            raise self._damaged(str(error)) from error
        fields = {"sequence": whole(1), "embedded_again": whole(), "sums": table, "taken_back": table}
        if wrong := validation_error(content, fields, optional=("taken_back",)):
            raise self._damaged(wrong)
        return content

    def _damaged(self, why: str) -> LaraError:
        return LaraError(
            f"{self.folder / 'current'} cannot be understood ({why}); start the service again, which makes it anew "
            "from the log of updates."
        )

    def _forget_damaged(self) -> None:
        """A snapshot that is not as it was written is none: the next one is made from the log."""
        with locked(self.folder, wait=True):
            try:
                current = self._current()
                number = current["sequence"]
                if number == 0 or checksums(self.folder / str(number)) == current["sums"]:
                    return
            except LaraError:
                pass
            log_info(f"note: the stored graph in {self.folder} is damaged; it is made anew from the log of updates.")
            (self.folder / "current").unlink()

    def check_target(self, number: int) -> None:
        """InputError where nothing of that number can be explained."""
        self.called.checked([number], len(self.follow().gone_targets))

    # --- updating

    def accept(self, update: GraphUpdate) -> Entry:
        """Checked and written to the log. Returns the entry, in which all nodes have their numbers."""
        if not self.task.has_distances:
            raise InputError("this model explains graphs, each for itself; updates are for models that explain nodes.")
        if self.task.num_endpoints > 1 or self.lara.types is not None or self.lara.explainer_.config.edge_columns:
            raise InputError(
                "updates are for models that explain nodes of one type and read no edge data; send what is new as a "
                "subgraph, or change the data set and reload."
            )
        return self.log.append(lambda before: self._entry(update, before))

    def _entry(self, update: GraphUpdate, before: Sequence[Entry]) -> Entry:
        snapshot = self.follow()
        later = before[snapshot.sequence :]
        count = snapshot.graph.num_nodes() + sum(len(entry["features"]) for entry in later)
        gone = set(snapshot.gone.nonzero()[0].tolist()).union(*(entry["removed_nodes"] for entry in later))
        total, width = count + len(update.add_nodes), snapshot.features.shape[1]
        for row, node in enumerate(update.add_nodes):
            if len(node.features) != width:
                raise InputError(f"add_nodes.{row}.features must be {width} numbers (got {len(node.features)}).")
            if not bool(torch.tensor(node.features, dtype=snapshot.features.dtype).isfinite().all()):
                raise InputError(f"add_nodes.{row}.features must be numbers of ordinary size.")
        keys = [node.key for node in update.add_nodes]
        numbers = {key: count + row for row, key in enumerate(keys) if key is not None}
        if len(numbers) < len(keys) - keys.count(None):
            raise InputError("add_nodes must have keys of their own (two are the same).")

        def number(end: int | str, what: str, most: int) -> int:
            found = numbers.get(end) if isinstance(end, str) else end
            if found is None:
                raise InputError(f"{what} names a node {end!r} that this update does not add.")
            if found >= most or found in gone:
                raise InputError(f"{what} must name nodes that are there, 0..{most - 1} (got {found}).")
            return found

        def edges(given: Sequence[tuple[int | str, int | str]], what: str) -> list[list[int]]:
            found = [[number(end, what, total) for end in edge] for edge in given]
            return found + [edge[::-1] for edge in found] if update.both_ways else found

        entry = {
            "features": [node.features for node in update.add_nodes],
            "names": [node.name for node in update.add_nodes],
            "nodes": list(range(count, total)),
            "edges": edges(update.add_edges, "add_edges"),
            "removed_nodes": [number(node, "remove_nodes", count) for node in update.remove_nodes],
            "removed_edges": edges(update.remove_edges, "remove_edges"),
        }
        if not any(entry.values()):
            raise InputError("the update is empty: name nodes or edges to add or to remove.")
        lost = {node for edge in edges(update.add_edges, "add_edges") for node in edge} & set(update.remove_nodes)
        if lost:
            raise InputError(f"add_edges must not lead to a node that the same update removes (got {min(lost)}).")
        return entry

    def apply_pending_updates(self) -> int:
        """The snapshot after everything in the log, made and published where it is not yet. Returns its number."""
        if self.follow().sequence >= len(self.log.entries()):
            return self.snapshot.sequence
        with locked(self.folder, wait=True):
            snapshot, entries = self.follow(), self.log.entries()
            if snapshot.sequence >= len(entries):
                return snapshot.sequence
            current = self._next(snapshot, entries[snapshot.sequence :])
            number = current["sequence"]
            current["sums"] = checksums(self.folder / str(number))
            with atomic_write(self.folder / "current") as temporary:
                temporary.write_text(json.dumps(current) + "\n")
            self.follow()
            self._sweep(number)
            return number

    def _next(self, snapshot: Snapshot, waiting: Sequence[Entry]) -> dict[str, Any]:
        """The snapshot after all that waits. Where the model has no answer then, after the first of them alone; and if
        it is that one, after nothing but its numbers of nodes, on which later updates rest: it is taken back."""
        taken_back: dict[str, str] = {} if not snapshot.sequence else self._current().get("taken_back", {})
        for count in sorted({len(waiting), 1}, reverse=True):
            try:
                return {**self._written(snapshot, waiting[:count]), "taken_back": taken_back}
            except ModelError as error:
                why = str(error)
        first = waiting[0]
        log_info(f"{self.name}: update {first['sequence']} is taken back: {why}")
        empty = {**first, "edges": [], "removed_edges": [], "removed_nodes": first["nodes"]}
        empty["features"] = [[0.0] * snapshot.features.shape[1]] * len(first["nodes"])
        return {**self._written(snapshot, [empty]), "taken_back": {**taken_back, str(first["sequence"]): why}}

    def _written(self, snapshot: Snapshot, entries: Sequence[Entry]) -> dict[str, Any]:
        """Its number, and for how many nodes p and t were made anew."""
        after = changed(snapshot.graph, snapshot.features, torch.from_numpy(snapshot.gone), entries)
        number = entries[-1]["sequence"]
        shutil.rmtree(self.folder / str(number), ignore_errors=True)  # of a try that was killed, or that failed
        return {"sequence": number, "embedded_again": write_snapshot(snapshot, after, self.folder / str(number))}

    def rejection_reason(self, sequence: int) -> str:
        """Of an update that came and could not stay; empty of all others."""
        return str(self._current().get("taken_back", {}).get(str(sequence), ""))

    def _sweep(self, newest: int) -> None:
        numbers = sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit() and path.name != "0")
        for number in numbers[: -KEPT_BEHIND - 1]:
            shutil.rmtree(self.folder / str(number), ignore_errors=True)

    # --- what things are called

    def node_name(self, node: int) -> str:
        """A node's own name, or its number."""
        labels, count = self.called.names["labels"], self.lara.graph.num_nodes()
        if node < count:
            return str(labels[node]) if labels is not None else str(node)
        entries = self.log.entries()
        for entry in entries[self._named :]:
            self._new_names |= zip(entry["nodes"], entry["names"], strict=True)
        self._named = len(entries)
        return self._new_names.get(node) or str(node)


def open_models(
    folders: Sequence[Path], state: Path | None, memory: int | None, trust: bool | str
) -> list[ServedModel]:
    """Under the names of their folders."""
    names = [folder.resolve().name for folder in folders]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two runs are called '{name}'; a model is served under the name of its folder.")
    torch.set_num_threads(1)
    found = []
    for name, folder in zip(names, folders, strict=True):
        run = open_run(folder, "cpu", memory, trust=trust, to_explain=True)
        found.append(ServedModel(name, run, state))
    return found

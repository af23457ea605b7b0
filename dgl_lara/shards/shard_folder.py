"""A folder of shards, written by processes that need not know of each other.

shard-00000-of-00004.parquet   explanations: of all shards together, in this order, those of one process
_shard-00000-of-00004.json     its rows and its checksum, written after it: the shard is done
_question.json                 what all of them answer, written by whoever comes first
_manifest.json                 all of it in one file, written last: the folder is complete

Whatever reads folders of Parquet files (pandas, Arrow, Spark) passes over names that begin with an underscore. Every
file is written whole, and two that write one write the same; so no lock is needed, and any shared file system will do.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from dgl_lara._util.atomic import atomic_write, short_hash
from dgl_lara._util.progress import Progress, log_info
from dgl_lara._util.schema import rows_of, text, validate, whole
from dgl_lara.constants import EXPORTS
from dgl_lara.errors import InputError, LaraError
from dgl_lara.inference.export import WRITERS

QUESTION, MANIFEST = "_question.json", "_manifest.json"
RECORD = {"file": text, "targets": whole(1), "rows": whole(), "sha256": text}


@dataclass(frozen=True)
class Shard:
    """The `number`-th of so many, from 0 on."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def name(self) -> str:
        return f"shard-{self.number:05d}-of-{self.of:05d}"

    def cut(self, targets: Tensor) -> Tensor:
        """Neighbouring targets, as many as in any other shard, or one more."""
        if len(targets) < self.of:
            raise InputError(
                f"{len(targets)} targets cannot be cut into {self.of} shards; take at most {len(targets)}."
            )
        first, end = (len(targets) * number // self.of for number in (self.number, self.number + 1))
        return targets[first:end]


class ShardFolder:
    """`folder`: its ending, if it is one of an export's, is that of its files; they are Parquet otherwise."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ending = folder.suffix if folder.suffix in EXPORTS else ".parquet"
        if folder.exists() and not folder.is_dir():
            raise InputError(f"shards are put into a folder, and {folder} is a file; name another.")

    def file(self, shard: Shard) -> Path:
        return self.folder / (shard.name + self.ending)

    def question(self) -> dict[str, Any] | None:
        """What the shards in it answer; None: nobody has come yet."""
        path = self.folder / QUESTION
        return _read(path, {"shards": whole(1)}) if path.exists() else None

    def agree(self, question: Mapping[str, Any]) -> None:
        """Refuse to put answers of two questions into one folder.

        Asked before a shard is begun, and again before it counts: two that came at the same moment both found nobody.
        """
        if self.question() is None:
            _write(self.folder / QUESTION, question)
        others = self.question() or {}
        for name in {**question, **others}:
            if question.get(name) != others.get(name):
                raise InputError(
                    f"{self.folder} holds shards of another question: by them {name} is {others.get(name)}, here "
                    f"{question.get(name)}; name another folder, or ask the same everywhere."
                )

    def record(self, shard: Shard) -> dict[str, Any] | None:
        """Of a shard that is done and is as it was then."""
        path, file = self.folder / f"_{shard.name}.json", self.file(shard)
        if not path.exists():
            return None
        try:
            found = self._record(shard)
            if checksum(file) == found["sha256"]:
                return found
            log_info(f"{file} was changed since it was written; it is made anew.")
        except (LaraError, OSError) as damage:
            log_info(f"{damage} Shard {shard} is made anew.")
        return None

    def _record(self, shard: Shard) -> dict[str, Any]:
        """As it is on disk; LaraError where it is of another shard, or of another question than this folder's."""
        path = self.folder / f"_{shard.name}.json"
        found = _read(path, {**RECORD, "question": text}, optional=("question",))  # older ones do not say it
        if found["file"] != self.file(shard).name or found.pop("question", self._asked) != self._asked:
            raise LaraError(f"{path} is of another shard, or of another question than those beside it.")
        return found

    @property
    def _asked(self) -> str:
        return short_hash(self.question() or {})

    def done(self, shard: Shard, targets: int, rows: int) -> dict[str, Any]:
        file = self.file(shard)
        record = {
            "file": file.name,
            "targets": targets,
            "rows": rows,
            "sha256": checksum(file),
            "question": self._asked,
        }
        _write(self.folder / f"_{shard.name}.json", record)
        return record

    def missing(self, of: int) -> list[int]:
        """Shards that have no record yet."""
        there = {path.name for path in self.folder.iterdir()}  # a listing: other machines may remember single absences
        return [one for one in range(of) if f"_{Shard(one, of).name}.json" not in there]

    def complete(self) -> dict[str, Any] | None:
        """The manifest, written where all shards are there; None where some are missing. Whoever finishes asks."""
        question = self.question()
        if question is None or self.missing(question["shards"]):
            return None
        every = (Shard(one, question["shards"]) for one in range(question["shards"]))
        records = [self._record(shard) for shard in every]
        sums = {name: sum(record[name] for record in records) for name in ("targets", "rows")}
        manifest = {"question": question, **sums, "shards": records}
        path = self.folder / MANIFEST
        if not path.exists() or _read(path, {"shards": rows_of(RECORD)}) != manifest:
            _write(path, manifest)
        return manifest

    def whole(self) -> dict[str, Any]:
        """The manifest; LaraError where a shard is missing."""
        question = self.question()
        if question is None:
            raise InputError(f"{self.folder} holds no shards (it has no {QUESTION}).")
        manifest = self.complete()
        if manifest is None:
            of = question["shards"]
            missing = [str(Shard(one, of)) for one in self.missing(of)]
            shown = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
            raise LaraError(f"{self.folder} is not complete: shards {shown} are missing; run them with --shard.")
        return manifest

    def join(self, out: Path) -> int:
        """All shards in one file; returns how many rows it has. LaraError where one is missing or was changed."""
        endings = EXPORTS if self.ending == ".parquet" else (self.ending,)
        if out.suffix not in endings:
            raise InputError(f"these shards are joined to a file that ends in {', '.join(endings)} (got '{out.name}').")
        if out.resolve().parent == self.folder.resolve():
            raise InputError(f"{self.folder} holds the shards; name a file in another place (got '{out}').")
        manifest = self.whole()
        paths = [self.folder / record["file"] for record in manifest["shards"]]
        for path, record in zip(Progress(paths, "checking", unit="shard"), manifest["shards"], strict=True):
            if not path.exists() or checksum(path) != record["sha256"]:
                raise LaraError(f"{path} was changed since it was written; run its shard again.")
        with atomic_write(out) as temporary:
            if self.ending == ".parquet":
                return WRITERS[out.suffix](paths, temporary, manifest["question"])
            _concatenate(paths, temporary, header=self.ending == ".csv")
        return manifest["rows"]


def _concatenate(paths: list[Path], out: Path, header: bool) -> None:
    with out.open("wb") as joined:
        for place, path in enumerate(paths):
            with path.open("rb") as one:
                if header and place:
                    one.readline()
                shutil.copyfileobj(one, joined)


def checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _read(path: Path, fields: Mapping[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    try:
        content = validate(json.loads(path.read_text()), {**fields, "seal": text}, path, optional)
    except (ValueError, RecursionError) as error:
        raise LaraError(f"{path} cannot be understood ({error}).") from error
    if content.pop("seal") != short_hash(content):
        raise LaraError(f"{path} is not as it was written.")
    return content


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps({**content, "seal": short_hash(dict(content))}, indent=1) + "\n")

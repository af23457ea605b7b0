"""A folder of shards, written by independent processes.

shard-00000-of-00004.parquet   explanations; all shards in order are what one process writes
_shard-00000-of-00004.json     record of a shard: its rows and its checksum, written when the file is complete
_request.json                  what all shards explain, written by the first process
_manifest.json                 all records in one file, written when all shards are complete

Readers of Parquet folders (pandas, Arrow, Spark) skip names that begin with an underscore. Every file is written
atomically, and processes that write the same file write equal content. So no lock is needed, and any shared file system
will do.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from dgl_lara._util.atomic import atomic_write, short_hash
from dgl_lara._util.notices import notice
from dgl_lara._util.progress import Progress
from dgl_lara._util.settings import from_dict, settings, to_dict
from dgl_lara.constants import EXPORTS
from dgl_lara.errors import InputError, LaraError
from dgl_lara.inference.export import WRITERS

REQUEST, MANIFEST = "_request.json", "_manifest.json"
MAX_LISTED_SHARDS = 10  # that are missing
Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Shard:
    """One of several shards, counted from 0."""

    index: int
    total: int

    def __str__(self) -> str:
        return f"{self.index}/{self.total}"

    @property
    def name(self) -> str:
        return f"shard-{self.index:05d}-of-{self.total:05d}"

    def select(self, targets: Tensor) -> Tensor:
        """Return the targets of this shard. Shards are contiguous, and their sizes differ by one at most."""
        if len(targets) < self.total:
            raise InputError("shards.too_many", targets=len(targets), got=self.total)
        start, end = (len(targets) * index // self.total for index in (self.index, self.index + 1))
        return targets[start:end]


@settings
class ShardRecord:
    """Record of a complete shard. `request` is the hash of what it explains."""

    file: str
    targets: Annotated[int, Field(ge=1)]
    rows: Count
    sha256: str
    request: str


@settings
class ShardManifest:
    """All records of a folder."""

    request: dict[str, Any]
    targets: Count
    rows: Count
    shards: list[ShardRecord]


class ShardFolder:
    """A folder of shards.

    Args:
        folder: The folder. If its name ends like an export (.csv), so do its files. Otherwise they are Parquet files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ending = folder.suffix if folder.suffix in EXPORTS else ".parquet"
        if folder.exists() and not folder.is_dir():
            raise InputError("shards.is_file", got=folder)

    def file(self, shard: Shard) -> Path:
        """Return the path of the explanations of a shard."""
        return self.folder / (shard.name + self.ending)

    def _record_file(self, shard: Shard) -> Path:
        return self.folder / f"_{shard.name}.json"

    def request(self) -> dict[str, Any] | None:
        """Return what the shards explain. None means there are no shards yet."""
        path = self.folder / REQUEST
        if not path.exists():
            return None
        content = from_dict(dict[str, Any], _read(path), path)
        from_dict(Annotated[int, Field(ge=1)], content.get("shards"), path)
        return content

    def check_request(self, request: Mapping[str, Any]) -> None:
        """Check that the shards of this folder explain the same request, and store it in an empty folder.

        It is checked before a shard is explained and again afterwards, because two processes that start at one moment
        may both find the folder empty.
        """
        if self.request() is None:
            _write(self.folder / REQUEST, request)
        stored = self.request() or {}
        for name in {**request, **stored}:
            if request.get(name) != stored.get(name):
                fields = {"name": name, "then": stored.get(name), "now": request.get(name)}
                raise InputError("shards.other_request", folder=self.folder, **fields)

    def find_record(self, shard: Shard) -> ShardRecord | None:
        """Return the record of a shard, if the shard is complete and unchanged."""
        if not self._record_file(shard).exists():
            return None
        try:
            record = self._read_record(shard)
            if checksum(self.file(shard)) == record.sha256:
                return record
            problem = f"{self.file(shard)} was changed after it was written."
        except (LaraError, OSError) as error:
            problem = str(error)
        notice("shard.repeated", shard=shard, problem=problem)
        return None

    def _read_record(self, shard: Shard) -> ShardRecord:
        path = self._record_file(shard)
        record = from_dict(ShardRecord, _read(path), path)
        if (record.file, record.request) != (self.file(shard).name, self._request_hash):
            raise LaraError("shard.foreign", path=path)
        return record

    @property
    def _request_hash(self) -> str:
        return short_hash(self.request() or {})

    def add_record(self, shard: Shard, num_targets: int, num_rows: int) -> ShardRecord:
        """Write the record of a shard whose file is complete."""
        file = self.file(shard)
        record = ShardRecord(file.name, num_targets, num_rows, checksum(file), self._request_hash)
        _write(self._record_file(shard), to_dict(record))
        return record

    def missing(self, total: int) -> list[int]:
        """Return the indices of shards without a record."""
        names = {path.name for path in self.folder.iterdir()}  # not exists(), whose answer network file systems cache
        return [index for index in range(total) if self._record_file(Shard(index, total)).name not in names]

    def write_manifest(self) -> ShardManifest | None:
        """Write the manifest if all shards are complete. Every process that completes a shard calls this."""
        request = self.request()
        if request is None or self.missing(request["shards"]):
            return None
        total = request["shards"]
        records = [self._read_record(Shard(index, total)) for index in range(total)]
        sums = (sum(record.targets for record in records), sum(record.rows for record in records))
        manifest, path = ShardManifest(request, *sums, records), self.folder / MANIFEST
        if not path.exists() or _read(path) != to_dict(manifest):
            _write(path, to_dict(manifest))
        return manifest

    def manifest(self) -> ShardManifest:
        """Return the manifest, or raise an error if shards are missing."""
        request = self.request()
        if request is None:
            raise InputError("shards.none", folder=self.folder)
        manifest = self.write_manifest()
        if manifest is None:
            missing = [str(Shard(index, request["shards"])) for index in self.missing(request["shards"])]
            more = len(missing) - MAX_LISTED_SHARDS
            listed = ", ".join(missing[:MAX_LISTED_SHARDS]) + (f" and {more} more" if more > 0 else "")
            raise LaraError("shards.missing", folder=self.folder, missing=listed)
        return manifest

    def join(self, out: Path) -> int:
        """Check all shards, write them to one file, and return the number of rows."""
        endings = EXPORTS if self.ending == ".parquet" else (self.ending,)
        if out.suffix not in endings:
            raise InputError("shards.join_ending", endings=", ".join(endings), got=out.name)
        if out.resolve().parent == self.folder.resolve():
            raise InputError("shards.join_folder", folder=self.folder, got=out)
        manifest = self.manifest()
        paths = [self.folder / record.file for record in manifest.shards]
        for path, record in zip(Progress(paths, "checking", unit="shard"), manifest.shards, strict=True):
            if not path.exists() or checksum(path) != record.sha256:
                raise LaraError("shard.changed", path=path)
        with atomic_write(out) as temporary:
            if self.ending == ".parquet":
                return WRITERS[out.suffix](paths, temporary, manifest.request)
            _concatenate(paths, temporary, has_header=self.ending == ".csv")
        return manifest.rows


def _concatenate(paths: list[Path], out: Path, has_header: bool) -> None:
    with out.open("wb") as joined:
        for index, path in enumerate(paths):
            with path.open("rb") as file:
                if has_header and index:
                    file.readline()
                shutil.copyfileobj(file, joined)


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _read(path: Path) -> dict[str, Any]:
    """Read a JSON file and check its seal, a hash of its content."""
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise LaraError("file.content", where=path, problem=error) from error
    if not isinstance(content, dict) or content.pop("seal", None) != short_hash(content):
        raise LaraError("shards.seal", path=path)
    return content


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps({**content, "seal": short_hash(dict(content))}, indent=1) + "\n")

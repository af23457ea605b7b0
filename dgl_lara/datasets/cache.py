"""Data folders, the cache of generated data, and downloads. Every file is written atomically."""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dgl_lara._util.atomic import atomic_write, short_hash
from dgl_lara._util.notices import notice
from dgl_lara._util.progress import Progress
from dgl_lara.datasets import DATASETS
from dgl_lara.errors import LaraError, message

Arrays = dict[str, np.ndarray]
CHUNK_BYTES = 1 << 20
SEAL = "seal"  # name of the checksum in a file of generated arrays
ZIP_ERRORS = (OSError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error)  # raised for a damaged zip


def cache_dir() -> Path:
    """Return DGL_LARA_CACHE, or `data/` of the checkout, or the user's cache folder."""
    if named := os.environ.get("DGL_LARA_CACHE"):
        return Path(named)
    checkout = Path(__file__).parents[2]
    if (checkout / "setup.py").exists() and (checkout / "data").is_dir():
        return checkout / "data"
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "dgl-lara"
    try:
        return Path.home() / ".cache" / "dgl-lara"
    except RuntimeError:  # a container whose user has neither a home nor an entry in passwd
        return Path(tempfile.gettempdir()) / f"dgl-lara-{os.getuid()}"


def data_dirs(data_dir: Path | None) -> list[Path]:
    """Return the folders to search in order: --data-dir, DGL_LARA_DATA, the cache."""
    named = os.environ.get("DGL_LARA_DATA")
    return [folder for folder in (data_dir, Path(named) if named else None, cache_dir()) if folder]


def find_files(files: tuple[str, ...], data_dir: Path | None) -> Path | None:
    """Return the first data folder that holds all of these files, or None."""
    for folder in data_dirs(data_dir):
        if all((folder / file).is_file() for file in files):
            return folder
    return None


def cached(name: str, parameters: dict, build: Callable[[], Arrays]) -> Arrays:
    """Return the cached arrays of `build()`, or build and cache them.

    Args:
        name: Of the data set.
        parameters: Everything that the arrays depend on, for the name of the file.
        build: Called if there is no valid file.
    """
    path = cache_dir() / "generated" / f"{name}-{short_hash(parameters)}.npz"
    if path.exists():
        try:
            arrays = read_arrays(path)
            if str(arrays.pop(SEAL, "")) != _seal(arrays, parameters):
                raise LaraError("cache.changed", path=path)
            return arrays
        except LaraError as error:
            notice("cache.rebuilt", cause=error)
    arrays = build()
    try:
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays, **{SEAL: np.array(_seal(arrays, parameters))})  # type: ignore[arg-type]
    except OSError as error:
        notice("cache.not_written", folder=path.parent, cause=error.strerror)
    return arrays


def _seal(arrays: Arrays, parameters: dict) -> str:
    digest = hashlib.sha256(short_hash(parameters).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def read_arrays(path: Path, skip_objects: bool = False) -> Arrays:
    """Return all arrays of an .npz file. Raise LaraError if it is damaged.

    Args:
        path: The file. Its checksums are verified.
        skip_objects: Leave out arrays of Python objects, which are never unpickled.
    """
    arrays: Arrays = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for name in file.files:
                try:
                    arrays[name] = file[name]
                except ValueError as error:
                    if not skip_objects or "Object arrays" not in str(error):
                        raise
    except (*ZIP_ERRORS, EOFError, KeyError, AttributeError, TypeError, MemoryError) as error:
        # NumPy advises to load other files as pickles, which may run code
        raise LaraError("npz.damaged", path=path, cause="no archive" if "pickle" in str(error) else error) from error
    return arrays


def checksum(*arrays: np.ndarray) -> str:
    """Return the SHA-256 of integers, independent of their type and file format."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return digest.hexdigest()


def text_checksum(*paths: Path) -> str:
    """Return the SHA-256 of the text of these files, independent of line ends."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()


def download(url: str, path: Path, remedy: str) -> None:
    """Download a file with a progress bar. Raise LaraError with a remedy if that fails."""
    try:
        with urllib.request.urlopen(url, timeout=30) as reply, atomic_write(path) as temporary:
            if url.startswith("https:") and not reply.url.startswith("https:"):
                raise OSError(f"redirected to {reply.url}, which is not secure")
            size = int(reply.headers.get("Content-Length") or 0)
            chunks = iter(lambda: reply.read(CHUNK_BYTES), b"")
            with temporary.open("wb") as file:
                for chunk in Progress(chunks, f"downloading {path.name}", total=-(-size // CHUNK_BYTES), unit="MB"):
                    file.write(chunk)
            if size and temporary.stat().st_size != size:
                raise OSError(f"the connection ended after {temporary.stat().st_size} of {size} bytes")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        cause = getattr(error, "reason", None) or error
        raise LaraError("download.failed", url=url, cause=cause, remedy=remedy) from error


def locate(name: str, data_dir: Path | None, url: str | None = None, folder: str = "") -> Path:
    """Return the data folder that holds the files of a data set; download them or raise LaraError.

    Args:
        name: Of the data set.
        data_dir: Searched first.
        url: Of an archive with all files, None if the data may not be passed on.
        folder: Unpacked folder of the archive.
    """
    files = DATASETS[name].files
    found = find_files(files, data_dir)
    if found is not None:
        return found
    if url is None:
        raise LaraError("dataset.not_found", name=name, remedy=how_to_get(name))
    target = cache_dir() / folder
    if target.exists():
        missing = [file for file in files if not (cache_dir() / file).is_file()]
        raise LaraError("download.incomplete_folder", folder=target, missing=", ".join(missing))
    archive = target.with_suffix(".zip")
    download(url, archive, how_to_get(name))
    try:
        _unzip(archive, target, files)
    finally:
        archive.unlink()
    return cache_dir()


def _unzip(archive: Path, into: Path, files: tuple[str, ...]) -> None:
    """Unpack the one folder of an archive as `into`, which appears complete or not at all."""
    with tempfile.TemporaryDirectory(dir=into.parent) as temporary:
        try:
            with zipfile.ZipFile(archive) as file:
                file.extractall(temporary)
        except ZIP_ERRORS as error:
            raise LaraError("download.damaged", archive=archive.name) from error
        inner = next((path for path in Path(temporary).iterdir() if path.is_dir()), Path(temporary))
        missing = [file for file in files if not (inner / Path(file).relative_to(into.name)).is_file()]
        if missing:
            raise LaraError("download.content", archive=archive.name, missing=", ".join(missing))
        os.replace(inner, into)


def how_to_get(name: str) -> str:
    """Return the remedy for missing files."""
    entry = DATASETS[name]
    code = "dataset.how_to_get_or_stand_in" if entry.stand_in else "dataset.how_to_get"
    return message(code, files=", ".join(entry.files), cache=cache_dir(), stand_in=entry.stand_in)

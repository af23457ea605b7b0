"""Where data lies: the look-up order, the cache, downloads. Every file is written whole or not at all."""

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
from dgl_lara._util.progress import Progress, log_info
from dgl_lara.errors import LaraError

Arrays = dict[str, np.ndarray]
CHUNK = 1 << 20
SEAL = "seal"  # the name of the checksum in a file of generated arrays
DAMAGE = (OSError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error)  # what reading a damaged zip raises


def cache_dir() -> Path:
    """DGL_LARA_CACHE, else `data/` of the checkout this package runs from, else the user's cache folder."""
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
    """The folders to look in, in order: --data-dir, DGL_LARA_DATA, the cache."""
    named = os.environ.get("DGL_LARA_DATA")
    return [folder for folder in (data_dir, Path(named) if named else None, cache_dir()) if folder]


def find_files(files: tuple[str, ...], data_dir: Path | None) -> Path | None:
    """The first data folder that holds all of these files."""
    for folder in data_dirs(data_dir):
        if all((folder / file).is_file() for file in files):
            return folder
    return None


def cached(name: str, parameters: dict, build: Callable[[], Arrays]) -> Arrays:
    """The arrays of `build()`, kept in a file whose name holds every parameter; a damaged file is made anew."""
    path = cache_dir() / "generated" / f"{name}-{short_hash(parameters)}.npz"
    if path.exists():
        try:
            return _as_kept(path, parameters)
        except LaraError as damage:
            log_info(f"{damage} It is built anew.")
    arrays = build()
    try:
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays, **{SEAL: np.array(_seal(arrays, parameters))})  # type: ignore[arg-type]
    except OSError as error:
        log_info(f"the cache {path.parent} cannot be written ({error.strerror}); going on without it.")
    return arrays


def _as_kept(path: Path, parameters: dict) -> Arrays:
    """The arrays of the file, if they are those that were put there for these parameters."""
    arrays = read_arrays(path)
    if str(arrays.pop(SEAL, "")) != _seal(arrays, parameters):
        raise LaraError(f"{path} does not hold what was put there.")
    return arrays


def _seal(arrays: Arrays, parameters: dict) -> str:
    digest = hashlib.sha256(short_hash(parameters).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def read_arrays(path: Path) -> Arrays:
    """All arrays of an .npz file. Reading to the end also checks the checksum that the file carries of each."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except (*DAMAGE, EOFError, KeyError, AttributeError, TypeError, MemoryError) as error:
        raise damaged(path, error) from error


def damaged(path: Path, error: Exception) -> LaraError:
    """Of what is no archive numpy says that it could be loaded as a pickle, which is bad advice."""
    reason = "" if "pickle" in str(error) else f" ({error})"
    return LaraError(f"{path} is truncated or not an .npz file{reason}.")


def checksum(*arrays: np.ndarray) -> str:
    """Of the numbers, not of the text they were written in: line ends and compression do not matter."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return digest.hexdigest()


def text_checksum(*paths: Path) -> str:
    """Of the text of these files, whatever their line ends."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()


def download(url: str, path: Path, otherwise: str) -> None:
    """Fetch `url` into `path`, with a progress bar; where that fails, one sentence that ends with `otherwise`."""
    try:
        with urllib.request.urlopen(url, timeout=30) as reply, atomic_write(path) as temporary:
            if url.startswith("https:") and not reply.url.startswith("https:"):
                raise OSError(f"it was sent on to {reply.url}, which is not secure")
            size = int(reply.headers.get("Content-Length") or 0)
            chunks = iter(lambda: reply.read(CHUNK), b"")
            with temporary.open("wb") as file:
                for chunk in Progress(chunks, f"downloading {path.name}", total=-(-size // CHUNK), unit="MB"):
                    file.write(chunk)
            if size and temporary.stat().st_size != size:
                raise OSError(f"the connection ended after {temporary.stat().st_size} of {size} bytes")
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise LaraError(f"{url} could not be downloaded ({reason}). {otherwise}") from error


def fetch(url: str, into: Path, files: tuple[str, ...], otherwise: str) -> None:
    """Download the archive at `url` and unpack its one folder as `into`, which then holds `files`."""
    if into.exists():
        missing = [file for file in files if not (into.parent / file).is_file()]
        raise LaraError(f"{into} lacks {', '.join(missing)}; complete it, or remove it and run again to download all.")
    archive = into.with_suffix(".zip")
    download(url, archive, otherwise)
    try:
        unzip(archive, into, files)
    finally:
        archive.unlink()


def unzip(archive: Path, into: Path, files: tuple[str, ...]) -> None:
    """Extract into a fresh folder first, so that `into` appears whole or not at all."""
    with tempfile.TemporaryDirectory(dir=into.parent) as temporary:
        try:
            with zipfile.ZipFile(archive) as file:
                file.extractall(temporary)
        except DAMAGE as error:
            raise LaraError(f"{archive.name} is damaged and was removed; run the command again.") from error
        inner = next((path for path in Path(temporary).iterdir() if path.is_dir()), Path(temporary))
        missing = [file for file in files if not (inner / Path(file).relative_to(into.name)).is_file()]
        if missing:
            raise LaraError(f"{archive.name} does not hold {', '.join(missing)}: not the data set as published.")
        os.replace(inner, into)


def how_to_get(name: str, files: tuple[str, ...], stand_in: str | None) -> str:
    instead = f", or use the generated stand-in --dataset {stand_in}" if stand_in else ""
    return (
        f"Put {', '.join(files)} into a folder and name it with --data-dir or DGL_LARA_DATA (or into {cache_dir()})"
        f"{instead}."
    )

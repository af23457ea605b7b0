"""Files: atomic writes, locks between processes, checksums, tensors."""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from dgl_lara._util.progress import status
from dgl_lara._util.writable import is_device
from dgl_lara.errors import InputError, LaraError

CHUNK_BYTES = 2**24  # read at a time
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
FULL_DISK_BYTES = 2**20  # free bytes of a full disk, at most


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` when the block succeeds and is removed when it fails.

    Temporary files of killed processes are removed. A link stays and its target is written. A device or a pipe is
    written to.

    Args:
        path: The file to write.
    """
    if is_device(path):
        with tempfile.TemporaryDirectory() as folder:
            yield (copy := Path(folder) / path.name)
            with path.open("ab") as device, copy.open("rb") as content:
                shutil.copyfileobj(content, device)
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path)
    handle, name = _new_temporary(path)
    try:
        yield Path(name)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as error:
        # the error of a full disk lacks the file
        if error.errno in DISK_ERRORS and error.filename in (None, name):
            error.filename = str(path)
        raise
    finally:
        os.close(handle)
        Path(name).unlink(missing_ok=True)


def _new_temporary(path: Path) -> tuple[int, str]:
    """Create a temporary file with a lock, which files of killed processes lack."""
    while True:
        try:
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        except OSError as error:  # name the file that the user knows
            raise OSError(error.errno, error.strerror, str(path)) from error
        with suppress(OSError):  # file systems without locks, on which nothing is removed
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_nlink:  # not removed before it was locked
            return handle, name
        os.close(handle)


def _sweep(path: Path) -> None:
    """Remove temporary files of killed processes."""
    for orphan in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with suppress(OSError):  # it is being written, or is gone already
            handle = os.open(orphan, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                orphan.unlink()
            finally:
                os.close(handle)


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Lock a folder, which is created if it is missing.

    Args:
        folder: The folder.
        wait: Wait for another process instead of raising LaraError.
    """
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        try:
            if not _has_lock(handle, wait):
                raise LaraError("folder.locked", folder=folder)
            if folder.exists() and os.path.samestat(os.fstat(handle), folder.stat()):
                yield
                return
        finally:
            os.close(handle)  # releases the lock
        # another process has removed the folder: create it again


@contextmanager
def exclusive_file(path: Path, waiting: str) -> Iterator[bool]:
    """Let one process at a time create a file. Without a lock (the folder is read-only) there is no waiting.

    The lock is a file, because NFS locks only what is open for writing.

    Args:
        path: The file.
        waiting: Label of the progress line of a process that waits.

    Yields:
        Whether this process has waited, so that the file may exist now.
    """
    lock, waited = path.with_name(f".{path.name}.lock"), False
    while True:
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError:
            yield waited
            return
        try:
            if not _has_lock(handle, wait=False):
                waited = True
                with status(waiting):
                    _has_lock(handle, wait=True)
            if os.fstat(handle).st_nlink:
                try:
                    yield waited
                finally:
                    lock.unlink(missing_ok=True)
                return
        finally:
            os.close(handle)
        # another process has removed it: create it again


def _has_lock(handle: int, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return True


def checksum(path: Path) -> str:
    """Return a checksum against damage (not against malice), as fast as a disk."""
    total = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            total = zlib.crc32(chunk, total)
    return f"{total:08x}"


def short_hash(parameters: dict) -> str:
    """Return a short hash of plain values."""
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:12]


def save_tensors(content: dict[str, Any], path: Path) -> None:
    """Write tensors and plain values with torch.save."""
    with atomic_write(path) as temporary:
        try:
            torch.save(content, temporary)
        except RuntimeError as error:  # torch does not report why writing failed
            full = shutil.disk_usage(path.parent).free < FULL_DISK_BYTES
            reason = errno.ENOSPC if full else errno.EIO
            raise OSError(reason, os.strerror(reason), str(path)) from error


def load_tensors(path: Path, mmap: bool = False) -> dict[str, Any]:
    """Read what torch.save wrote. Only tensors and plain values are unpickled.

    Args:
        path: The file.
        mmap: Map tensors into memory.

    Raises:
        InputError: If there is no such file.
        LaraError: If the file is damaged or holds other objects.
    """
    if not path.is_file():
        raise InputError("file.missing", path=path)
    try:
        _check_sums(path)
        return torch.load(str(path), weights_only=True, map_location="cpu", mmap=mmap)
    except LaraError:
        raise
    except Exception as error:  # a damaged file can raise anything in torch
        problem = (str(error) or "the file is empty").splitlines()[0]
        if type(error).__name__ == "UnpicklingError":  # torch would advise to load code
            problem = "torch.save has not written it, or it holds more than tensors and plain values"
        raise LaraError("file.no_checkpoint", path=path, problem=problem) from error


def zip_fingerprint(path: Path) -> str:
    """Return a fingerprint of a file of torch.save, from the checksums of its entries."""
    with zipfile.ZipFile(path) as file:
        entries = [(Path(entry.filename).name, entry.CRC, entry.file_size) for entry in file.infolist()]
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:16]


def _check_sums(path: Path) -> None:
    """Check the checksums of the zip file that torch.save writes. torch.load ignores them."""
    if not zipfile.is_zipfile(path):
        return  # files before torch 1.6 have no checksums
    with zipfile.ZipFile(path) as file:
        changed = file.testzip()
    if changed is not None:
        raise LaraError("file.checksum", path=path, entry=Path(changed).name)

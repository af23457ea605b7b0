"""Files that are written whole or not at all, that notice when they were changed, and that one process writes at a
time; short names for what went into them."""

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

CHUNK = 2**24  # bytes read at a time
NO_MORE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
NO_ROOM = 2**20  # bytes: a disk with less has no room


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that replaces it when the block ends well and vanishes when it does not.

    What a killed process left of an earlier try is swept away. What a link names is written, the link stays; a device
    or a pipe is written to and never replaced.
    """
    if is_device(path):
        with tempfile.TemporaryDirectory() as folder:
            yield (aside := Path(folder) / path.name)
            with path.open("ab") as device, aside.open("rb") as content:
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
        # a full disk does not say what it has no room for
        if error.errno in NO_MORE and error.filename in (None, name):
            error.filename = str(path)
        raise
    finally:
        os.close(handle)
        Path(name).unlink(missing_ok=True)


def _new_temporary(path: Path) -> tuple[int, str]:
    """Locked while its writer lives: by that, others tell it from one that was left behind."""
    while True:
        try:
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        except OSError as error:  # under the name that the user knows
            raise OSError(error.errno, error.strerror, str(path)) from error
        with suppress(OSError):  # file systems without locks: nothing is swept there
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_nlink:  # not swept away between its making and its locking
            return handle, name
        os.close(handle)


def _sweep(path: Path) -> None:
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with suppress(OSError):  # somebody writes it right now, or has swept it already
            handle = os.open(left, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()
            finally:
                os.close(handle)


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """The folder (made where it is missing) for this process alone; LaraError if another has it, unless we wait."""
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
            os.close(handle)  # gives the lock back
        # whoever had it has removed the folder: a new one


@contextmanager
def exclusive_file(path: Path, waiting: str) -> Iterator[bool]:
    """One process at a time makes this file; others say what they are `waiting` for, and are told that they did: by
    then it may be there. Where no lock can be had (nothing can be written there), nobody waits.

    The lock is a file and not the folder: NFS, which machines share, locks only what is open for writing.
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
        # whoever had it has removed it: a new one


def _has_lock(handle: int, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks: nobody else can be told apart
    return True


def checksum(path: Path) -> str:
    """Against damage, not against malice: as fast as a disk."""
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            found = zlib.crc32(chunk, found)
    return f"{found:08x}"


def short_hash(parameters: dict) -> str:
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:12]


def save_tensors(content: dict[str, Any], path: Path) -> None:
    with atomic_write(path) as temporary:
        try:
            torch.save(content, temporary)
        except RuntimeError as error:  # torch's own writer does not say why it failed
            full = shutil.disk_usage(path.parent).free < NO_ROOM
            reason = errno.ENOSPC if full else errno.EIO
            raise OSError(reason, os.strerror(reason), str(path)) from error


def load_tensors(path: Path, mmap: bool = False) -> dict[str, Any]:
    """What torch.save wrote, if its checksums hold; nothing but tensors and plain values is unpickled."""
    if not path.is_file():
        raise InputError(f"there is no file '{path}'.")
    try:
        _check_sums(path)
        return torch.load(str(path), weights_only=True, map_location="cpu", mmap=mmap)
    except LaraError:
        raise
    except Exception as error:  # torch raises whatever a damaged file makes it meet
        said = (str(error) or "the file is empty").splitlines()[0]
        if type(error).__name__ == "UnpicklingError":  # torch would advise to load what may run code
            said = "torch.save has not written it, or it holds more than tensors and plain values"
        raise LaraError(f"{path} is truncated or not a checkpoint ({said}).") from error


def zip_fingerprint(path: Path) -> str:
    """Tells one file that torch.save wrote from another, by the checksums that it carries of every part."""
    with zipfile.ZipFile(path) as file:
        parts = [(Path(part.filename).name, part.CRC, part.file_size) for part in file.infolist()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _check_sums(path: Path) -> None:
    """torch stores a zip file with a checksum of every part, and does not look at them when it loads."""
    if not zipfile.is_zipfile(path):
        return  # the format before torch 1.6, of a user's weights, has none
    with zipfile.ZipFile(path) as file:
        changed = file.testzip()
    if changed is not None:
        raise LaraError(f"{path} was changed since it was written (the checksum of {Path(changed).name} differs).")

"""Whether something can be written at a place: asked before the work, so that nobody waits for files that cannot be."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from dgl_lara.errors import InputError

REASONS = {errno.ENOENT: "nothing can be written"}  # what /proc says of new files; others say it well themselves


def obstacle(path: Path) -> str:
    """Why neither a file nor a folder can be made here, with the folders above it; empty where it can.

    A file without a name is opened and let go of where it would be written: what permissions say is not true of root,
    nor of a read-only disk. Nothing is left behind, also where the process is killed meanwhile.
    """
    try:
        while not _is_there(path):
            path = path.parent
        if not path.is_dir():
            return f"{path} is not a folder"
        with tempfile.TemporaryFile(dir=path):
            return ""
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        return f"{REASONS.get(error.errno or 0, said)} in {path.absolute()}"


def unwritable(path: Path) -> str:
    """A sentence, where it cannot be written; else nothing."""
    try:
        if is_device(path):
            reason = "" if os.access(path, os.W_OK) else "permission denied"
        else:
            there = Path(os.path.realpath(path)) if path.is_symlink() else path
            reason = obstacle(there if there.is_dir() else there.parent)
    except OSError as error:  # longer than any name can be, on the way to it no folder may be entered
        reason = (error.strerror or str(error)).lower()
    return f"'{path}' cannot be written ({reason}); name another place." if reason else ""


def is_device(path: Path) -> bool:
    """Or a pipe: something that is there, and neither a file nor a folder."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_folder(folder: Path, remedy: str) -> None:
    """InputError where nothing can be written into a folder that no option named."""
    if reason := obstacle(folder):
        raise InputError(f"'{folder}' cannot be written ({reason}); {remedy}.")


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True

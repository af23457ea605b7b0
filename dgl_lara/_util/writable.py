"""Checks before any work that a path can be written."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from dgl_lara.errors import InputError

REASONS = {errno.ENOENT: "nothing can be written"}  # the error of /proc for new files


def obstacle_to_write(path: Path) -> str:
    """Return why a file or folder cannot be written. Empty if it can."""
    try:
        if is_device(path):
            return "" if os.access(path, os.W_OK) else "permission denied"
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        return _obstacle(target if target.is_dir() else target.parent)
    except OSError as error:  # the name is too long, or a folder above it may not be entered
        return (error.strerror or str(error)).lower()


def is_device(path: Path) -> bool:
    """Return whether a path is a device or a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


def check_folder(folder: Path, remedy: str) -> None:
    """Raise InputError if nothing can be written into a folder.

    Args:
        folder: The folder. It need not exist.
        remedy: A sentence about what to do instead.
    """
    if reason := _obstacle(folder):
        raise InputError("folder.unwritable", folder=folder, reason=reason, remedy=remedy)


def _obstacle(folder: Path) -> str:
    """Return why nothing can be created in a folder, or in the closest one above it that exists.

    A temporary file is the test, because permissions say nothing about root or a read-only disk.
    """
    try:
        while not _exists(folder):
            folder = folder.parent
        if not folder.is_dir():
            return f"{folder} is not a folder"
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return f"{REASONS.get(error.errno or 0, reason)} in {folder.absolute()}"


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True

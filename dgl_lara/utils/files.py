"""Files that are written whole or not at all, and short names for what went into them."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from dgl_lara.errors import InputError, LaraError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that replaces it when the block ends well and vanishes when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def short_hash(parameters: dict) -> str:
    return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:12]


def save_tensors(content: dict[str, Any], path: Path) -> None:
    with written_whole(path) as temporary:
        torch.save(content, temporary)


def load_tensors(path: Path, mmap: bool = False) -> dict[str, Any]:
    """What torch.save wrote; nothing but tensors and plain values is unpickled."""
    if not path.is_file():
        raise InputError(f"there is no file '{path}'.")
    try:
        return torch.load(str(path), weights_only=True, map_location="cpu", mmap=mmap)
    except Exception as error:  # torch raises whatever a damaged file makes it meet
        said = (str(error) or "the file is empty").splitlines()[0]
        raise LaraError(f"{path} is truncated or not a checkpoint ({said}).") from error

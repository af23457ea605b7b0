"""Text files of users: lists of nodes and of pairs."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

from dgl_lara.errors import InputError

TEXT_ENCODING = "utf-8-sig"  # skips the byte order mark that Windows editors write
NODE_ID = "[0-9]{1,18}"  # int() would also take 1_0, +1, digits of other scripts and numbers beyond 2^63


def read_lines(path: Path) -> list[tuple[int, str]]:
    """Return the stripped lines that are not blank, each with its line number."""
    try:
        lines = path.read_text(TEXT_ENCODING).splitlines()
    except OSError as error:
        raise InputError("text_file.unreadable", path=path, cause=(error.strerror or str(error)).lower()) from error
    except ValueError as error:
        raise InputError("text_file.not_text", path=path) from error
    numbered = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise InputError("text_file.empty", path=path)
    return numbered


def read_pairs(path: Path) -> Tensor:
    """Return (num_pairs, 2) the distinct pairs of a file in its order.

    A line holds u and v with a comma, blank or tab between them. A first line of words is skipped.
    """
    lines = [(number, line, re.split(r"[,\s]+", line)) for number, line in read_lines(path)]
    if not any(re.match(r"[-+.]?\d", word) for word in lines[0][2]):
        lines = lines[1:]
    if not lines:
        raise InputError("text_file.empty", path=path)
    for number, line, words in lines:
        if len(words) != 2 or not all(re.fullmatch(NODE_ID, word) for word in words):
            raise InputError("pairs_file.line", path=path, number=number, got=line[:40])
    return torch.tensor(list(dict.fromkeys((int(u), int(v)) for _, _, (u, v) in lines)))

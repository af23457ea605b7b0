"""What a file of the user's own is made of: edges, labels, masks, edge data; one sentence where one is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dgl_lara.datasets.cache import checksum
from dgl_lara.datasets.dataset import random_split
from dgl_lara.errors import InputError

PARTS = ("train", "val", "test")
LABELS = ("y", "label", "labels")
TEXT_ENCODING = "utf-8-sig"  # on any machine; editors of Windows put a mark at the beginning, which is none of the text
NODE_ID = "[0-9]{1,18}"  # int() would also take 1_0, +1, digits of other scripts, and what is beyond 2^63


def read_lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a list of the user's own that are not blank, stripped, each with its number in the file."""
    try:
        lines = path.read_text(TEXT_ENCODING).splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({(error.strerror or str(error)).lower()}).") from error
    except ValueError as error:
        raise InputError(f"{path} must be a text file.") from error
    found = [(place, line.strip()) for place, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise InputError(f"{path} is empty.")
    return found


def pick(path: Path, what: str, data: Mapping[str, Tensor], names: tuple[str, ...], hint: str = "") -> Tensor:
    for name in names:
        if name in data:
            return data[name]
    found = ", ".join(data) or "nothing"
    raise InputError(f"{path}: {what} must be stored as {' or '.join(names)} (found: {found}). {hint}".rstrip())


def whole_numbers(path: Path, name: str, values: Tensor) -> Tensor:
    if values.is_floating_point() and not bool((values == values.round()).all()):
        raise InputError(f"{path}: {name} must be whole numbers (got fractions).")
    if values.is_floating_point() and bool((values.abs() > 2**53).any()):
        raise InputError(f"{path}: {name} must be whole numbers (got numbers beyond 2^53, which floats do not hold).")
    return values.long()


def check_edges(path: Path, src: Tensor, dst: Tensor, nodes: int) -> None:
    outside = ((src < 0) | (src >= nodes) | (dst < 0) | (dst >= nodes)).nonzero().flatten()
    if len(outside):
        edge = int(outside[0])
        raise InputError(
            f"{path}: edges must join nodes 0..{nodes - 1} (x has {nodes} rows); {len(outside)} do not, "
            f"first: edge {edge}, {int(src[edge])} -> {int(dst[edge])}."
        )


def labels_in(data: Mapping[str, Tensor]) -> Tensor | None:
    """None where a graph has none: then only a model of the user's own can be explained, which needs none."""
    return next((data[name] for name in LABELS if name in data), None)


def labels_and_splits(
    path: Path, task: str, y: Tensor | None, count: int, masks: dict, seed: int
) -> tuple[Tensor, dict, str]:
    """The labels, -1 for all `count` targets where there are none, the targets of each part, and in words where the
    parts come from if the file does not say it."""
    if y is None:
        y = torch.full((count,), -1)
    elif y.is_floating_point() and not bool((y == y.round()).all()):
        raise InputError(f"{path}: labels must be whole numbers (got fractions); a model of your own needs none.")
    y = whole_numbers(path, "labels", y)
    y = y.flatten() if y.dim() == 2 and y.shape[1] == 1 else y
    if y.dim() != 1:
        raise InputError(f"{path}: labels must have one entry a {task} (got shape {tuple(y.shape)}).")
    if len(y) and int(y.max()) >= len(y):
        raise InputError(f"{path}: labels must be numbered 0, 1, 2, ... (got {int(y.max())} among {len(y)} {task}s).")
    given = {part: mask for part, mask in masks.items() if mask is not None}
    if given and len(given) < 3:
        raise InputError(f"{path}: give train_mask, val_mask and test_mask, or none (got {', '.join(given)} only).")
    for part, mask in given.items():
        if mask.shape != y.shape:
            raise InputError(
                f"{path}: {part}_mask must have the shape of y, {tuple(y.shape)} (got {tuple(mask.shape)})."
            )
        if not bool(((mask == 0) | (mask == 1)).all()):
            raise InputError(
                f"{path}: {part}_mask must say yes or no (1 or 0) of every {task}; it holds other numbers (is it a "
                f"list of {task}s?)."
            )
    if given:
        return y, {part: mask.bool().nonzero().flatten() for part, mask in given.items()}, ""
    labelled = (y >= 0).nonzero().flatten() if bool((y >= 0).any()) else torch.arange(len(y))
    parts = (labelled[part] for part in random_split(len(labelled), seed))
    return y, dict(zip(PARTS, parts, strict=True)), f", random split, seed {seed}"


def numbers_of(data: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The edge data that a model may read; what DGL itself keeps there (_ID, _TYPE) is none."""
    kept = {name: data[name] for name in data if not name.startswith("_") and not data[name].is_complex()}
    return {name: part.float() if part.is_floating_point() else part for name, part in kept.items()}


def content_of(*parts: Tensor) -> str:
    """A short checksum of the numbers."""

    def as_whole(part: Tensor) -> np.ndarray:
        return part.double().contiguous().numpy().view(np.int64) if part.is_floating_point() else part.long().numpy()

    return checksum(*map(as_whole, parts))[:12]

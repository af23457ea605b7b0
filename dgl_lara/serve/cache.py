"""Memory-mapped cache of the best players of every target, as numbers and as JSON text. All workers share it.

Rows are written before they are marked valid, and writers are deterministic, so no lock is needed. Each row has a
checksum. A row that a crash or a disk has damaged counts as missing.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dgl_lara._util.atomic import atomic_write
from dgl_lara.errors import LaraError
from dgl_lara.explanation import Explanations
from dgl_lara.serve.schemas import TOP

UNKNOWN, AMORTISED, CORRECTED = range(3)
TEXT_BYTES = 60 * TOP + 140  # of one explanation; a longer text is built again for each answer
COLUMNS = {
    "player": (np.int64, TOP), "score": (np.float64, TOP), "hop": (np.int8, TOP),
    "confidence": (np.float64, 1), "kept": (np.int16, 1), "text": (np.uint8, TEXT_BYTES), "length": (np.int16, 1),
    "sum": (np.uint32, 1), "state": (np.uint8, 1),
}  # fmt: skip
NUMBER_COLUMNS = ("player", "score", "hop", "confidence", "kept")
CHECKED_COLUMNS = (*NUMBER_COLUMNS, "text", "length")


@dataclass(eq=False)
class TopKRows:
    """The best players of some targets, as rows of the cache."""

    player: np.ndarray  # (num_targets, top)
    score: np.ndarray  # (num_targets, top)
    hop: np.ndarray  # (num_targets, top)
    confidence: np.ndarray  # (num_targets,)
    kept: np.ndarray  # (num_targets,) how many players a row has
    state: np.ndarray  # (num_targets,)

    @staticmethod
    def of(explanations: Explanations, top: int) -> TopKRows:
        """Return the `top` best players of each explanation."""
        players, rank, count = explanations.players, explanations.rank(), len(explanations)
        best = rank < top
        index, shape = (players.row[best].numpy(), rank[best].numpy()), (count, top)
        player, score, hop = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, np.int8)
        player[index] = players.player[best].numpy()
        score[index] = round_digits(explanations.scores[best].numpy())
        hop[index] = players.hop[best].numpy()
        expected = explanations.confidence
        confidence = np.full(count, np.nan) if expected is None else round_digits(expected.numpy())
        corrected = torch.zeros(count) if explanations.corrected is None else explanations.corrected
        state = np.where(corrected.numpy(), CORRECTED, AMORTISED).astype(np.uint8)
        return TopKRows(player, score, hop, confidence, players.counts.clamp(max=top).numpy(), state)


class ExplanationCache:
    """One row for each target: its best players, the confidence, the text and the state of the row.

    The file is created, with all rows missing, unless it has the right size.
    """

    player: np.ndarray
    score: np.ndarray
    hop: np.ndarray
    confidence: np.ndarray
    kept: np.ndarray
    text: np.ndarray
    length: np.ndarray
    sum: np.ndarray
    state: np.ndarray

    def __init__(self, path: Path, rows: int) -> None:
        size = sum(np.dtype(dtype).itemsize * width for dtype, width in COLUMNS.values()) * rows
        if not path.exists() or path.stat().st_size != size:
            with atomic_write(path) as temporary:
                _reserve(temporary, size)
        content, start = np.memmap(path, np.uint8, "r+"), 0
        for name, (dtype, width) in COLUMNS.items():
            end = start + np.dtype(dtype).itemsize * width * rows
            column = np.asarray(content[start:end].view(dtype))
            setattr(self, name, column.reshape(rows, width) if width > 1 else column)
            start = end
        self.path, self.rows = path, rows
        self._is_checked = np.zeros(rows, dtype=bool)  # by this process
        self._all_text = self.text.reshape(-1).data

    def fill(self, targets: np.ndarray, best: TopKRows, texts: Iterable[bytes]) -> None:
        """Write the rows of some targets."""
        for name in NUMBER_COLUMNS:
            getattr(self, name)[targets] = getattr(best, name)
        for target, text in zip(targets.tolist(), texts, strict=True):
            fits = len(text) <= TEXT_BYTES
            self.length[target] = len(text) if fits else 0
            if fits:
                self.text[target, : len(text)] = np.frombuffer(text, np.uint8)
        self.sum[targets] = self._checksums(targets)
        self._is_checked[targets] = True
        self.state[targets] = best.state

    def _checksums(self, rows: np.ndarray) -> np.ndarray:
        columns = [
            np.ascontiguousarray(getattr(self, name)[rows].reshape(len(rows), COLUMNS[name][1]))
            for name in CHECKED_COLUMNS
        ]
        content = np.concatenate([column.view(np.uint8) for column in columns], axis=1)
        return np.fromiter((zlib.crc32(row) for row in content), np.uint32, len(rows))

    def is_valid(self, targets: np.ndarray) -> np.ndarray:
        """Return whether each target has an undamaged row. Every process checks a row once."""
        if not self._is_checked[targets].all():
            new = np.unique(targets[~self._is_checked[targets]])
            new = new[self.state[new] != UNKNOWN]
            self.state[new[self.sum[new] != self._checksums(new)]] = UNKNOWN
            self._is_checked[new] = True
        return self.state[targets] != UNKNOWN

    def missing(self, targets: np.ndarray) -> np.ndarray:
        """Return the targets without a valid row."""
        return targets[~self.is_valid(targets)]

    def read(self, targets: np.ndarray) -> TopKRows:
        """Return the rows of some targets."""
        return TopKRows(*(getattr(self, name)[targets] for name in (*NUMBER_COLUMNS, "state")))

    def texts(self, targets: np.ndarray) -> list[memoryview] | None:
        """Return the explanations as JSON with all their players. None means a text was too long to be kept."""
        lengths = self.length[targets].tolist()
        if 0 in lengths:
            return None
        starts, text = (targets * TEXT_BYTES).tolist(), self._all_text
        return [text[start : start + length] for start, length in zip(starts, lengths, strict=True)]

    def copy_to(self, path: Path, rows: int, stale: np.ndarray) -> None:
        """Copy valid rows that are not `stale` (bool, one a row) to a file with as many rows or more."""
        if rows == self.rows:
            shutil.copyfile(self.path, path)
        other = ExplanationCache(path, rows)
        other.state[:] = UNKNOWN
        valid = np.flatnonzero((self.state != UNKNOWN) & ~stale[: self.rows])
        if rows != self.rows:
            for name in COLUMNS:
                getattr(other, name)[valid] = getattr(self, name)[valid]
        else:
            other.state[valid] = self.state[valid]


def _reserve(path: Path, size: int) -> None:
    """Reserve the bytes of a file on disk. A process that writes to a mapped page without space is killed."""
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise LaraError("cache.no_space", size=size / 2**20, folder=path.parent, problem=error.strerror) from error


def round_digits(values: np.ndarray) -> np.ndarray:
    """Return float64 values with the seven digits that a float32 has. The JSON is half as long."""
    exact = np.asarray(values, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = 10.0 ** (6 - np.floor(np.log10(np.abs(exact))))
        rounded = np.round(exact * power) / power
    return np.where(np.isfinite(rounded), rounded, np.where(np.isfinite(exact), 0.0, exact))

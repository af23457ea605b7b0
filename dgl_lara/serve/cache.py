"""The best players of every target in one memory-mapped file that all workers read and fill; as numbers, and as the
text that is sent.

A row is written first and marked last, and whoever writes it writes the same numbers: no lock is needed. It carries a
checksum, by which a service tells rows that a crash or a disk has damaged since; they count as unknown.
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from dgl_lara._util.atomic import atomic_write
from dgl_lara.errors import LaraError
from dgl_lara.explanation import Explanations
from dgl_lara.serve.schemas import TOP

UNKNOWN, AMORTISED, CORRECTED = range(3)
ROOM = 60 * TOP + 140  # bytes for the text of an explanation; where names are longer, it is made anew for each answer
COLUMNS = {
    "player": (np.int64, TOP), "score": (np.float64, TOP), "hop": (np.int8, TOP),
    "confidence": (np.float64, 1), "kept": (np.int16, 1), "text": (np.uint8, ROOM), "length": (np.int16, 1),
    "sum": (np.uint32, 1), "state": (np.uint8, 1),
}  # fmt: skip
NUMBERS = ("player", "score", "hop", "confidence", "kept")
SUMMED = (*NUMBERS, "text", "length")


class ExplanationCache:
    """Of each target: `kept` players, best first, with `score` and `hop`; how far they can be trusted; `state`."""

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
        """Opened; made, with no row known, where there is none of this size."""
        size = sum(np.dtype(kind).itemsize * width for kind, width in COLUMNS.values()) * rows
        if not path.exists() or path.stat().st_size != size:
            with atomic_write(path) as temporary:
                _reserve(temporary, size)
        whole, start = np.memmap(path, np.uint8, "r+"), 0
        for name, (kind, width) in COLUMNS.items():
            end = start + np.dtype(kind).itemsize * width * rows
            part_of = np.asarray(whole[start:end].view(kind))
            setattr(self, name, part_of.reshape(rows, width) if width > 1 else part_of)
            start = end
        self.path, self.rows = path, rows
        self._looked_at = np.zeros(rows, dtype=bool)
        self._all_text = self.text.reshape(-1).data

    def fill(self, targets: np.ndarray, best: TopKRows, texts: Iterable[bytes]) -> None:
        for name in NUMBERS:
            getattr(self, name)[targets] = getattr(best, name)
        for target, text in zip(targets.tolist(), texts, strict=True):
            fits = len(text) <= ROOM
            self.length[target] = len(text) if fits else 0
            if fits:
                self.text[target, : len(text)] = np.frombuffer(text, np.uint8)
        self.sum[targets] = self._sums(targets)
        self._looked_at[targets] = True
        self.state[targets] = best.state

    def _sums(self, rows: np.ndarray) -> np.ndarray:
        columns = [
            np.ascontiguousarray(getattr(self, name)[rows].reshape(len(rows), COLUMNS[name][1])) for name in SUMMED
        ]
        content = np.concatenate([column.view(np.uint8) for column in columns], axis=1)
        return np.fromiter((zlib.crc32(row) for row in content), np.uint32, len(rows))

    def known(self, targets: np.ndarray) -> np.ndarray:
        """Whether each has a row that is as it was written; every process looks at a row once."""
        if not self._looked_at[targets].all():
            new = np.unique(targets[~self._looked_at[targets]])
            new = new[self.state[new] != UNKNOWN]
            self.state[new[self.sum[new] != self._sums(new)]] = UNKNOWN
            self._looked_at[new] = True
        return self.state[targets] != UNKNOWN

    def read(self, targets: np.ndarray) -> TopKRows:
        return TopKRows(*(getattr(self, name)[targets] for name in (*NUMBERS, "state")))

    def texts(self, targets: np.ndarray) -> list[memoryview] | None:
        """The explanations as they are sent, with all players that are kept; None where one had no room."""
        lengths = self.length[targets].tolist()
        if 0 in lengths:
            return None
        starts, text = (targets * ROOM).tolist(), self._all_text
        return [text[start : start + length] for start, length in zip(starts, lengths, strict=True)]

    def unknown(self, targets: np.ndarray) -> np.ndarray:
        return targets[~self.known(targets)]

    def copied(self, path: Path, rows: int, stale: np.ndarray) -> None:
        """To another file with as many rows or more, less what is stale (bool, one a row of it)."""
        if rows == self.rows:
            shutil.copyfile(self.path, path)
        other = ExplanationCache(path, rows)
        other.state[:] = UNKNOWN
        known = np.flatnonzero((self.state != UNKNOWN) & ~stale[: self.rows])
        if rows != self.rows:
            for name in COLUMNS:
                getattr(other, name)[known] = getattr(self, name)[known]
        else:
            other.state[known] = self.state[known]


def _reserve(path: Path, size: int) -> None:
    """All of its bytes on disk, now: whoever writes to a mapped page that a full disk has no room for is killed."""
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise LaraError(
            f"a table of explanations needs {size / 2**20:,.1f} MB in {path.parent} ({error.strerror}); make room, or "
            "name another folder with --state."
        ) from error


def short(values: np.ndarray) -> np.ndarray:
    """As float64 with the seven digits that a float32 has: an answer is half as long, and no less exact."""
    exact = np.asarray(values, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = 10.0 ** (6 - np.floor(np.log10(np.abs(exact))))
        rounded = np.round(exact * power) / power
    return np.where(np.isfinite(rounded), rounded, np.where(np.isfinite(exact), 0.0, exact))


class TopKRows:
    """The best players of some targets, as rows of a table."""

    def __init__(
        self,
        player: np.ndarray,
        score: np.ndarray,
        hop: np.ndarray,
        confidence: np.ndarray,
        kept: np.ndarray,
        state: np.ndarray,
    ) -> None:
        self.player, self.score, self.hop = player, score, hop  # (num_targets, top)
        self.confidence, self.kept, self.state = confidence, kept, state  # (num_targets,)

    @staticmethod
    def of(explanations: Explanations, top: int) -> TopKRows:
        players, rank, count = explanations.players, explanations.rank(), len(explanations)
        best = rank < top
        place = (players.row[best].numpy(), rank[best].numpy())
        shape = (count, top)
        player, score, hop = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape, np.int8)
        player[place] = players.player[best].numpy()
        score[place] = short(explanations.scores[best].numpy())
        hop[place] = players.hop[best].numpy()
        known = explanations.confidence
        confidence = np.full(count, np.nan) if known is None else short(known.numpy())
        corrected = torch.zeros(count) if explanations.corrected is None else explanations.corrected
        state = np.where(corrected.numpy(), CORRECTED, AMORTISED).astype(np.uint8)
        return TopKRows(player, score, hop, confidence, players.counts.clamp(max=top).numpy(), state)

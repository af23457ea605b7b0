"""`attribution/posterior.py` for many targets on the CPU, compiled: a step of conjugate gradients is players x pairs
of work, and no matrix is ever inverted. A test holds the two together."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from torch import Tensor

from dgl_lara._util.numba_threads import inner, kernel, run_in_threads
from dgl_lara._util.progress import Progress
from dgl_lara.attribution.posterior import LEAST_NOISE, LEAST_SCALE, ROUNDS
from dgl_lara.attribution.shared_samples import SharedSamples
from dgl_lara.game.player_index import Players

STEPS, CLOSE = 40, 1e-3  # of conjugate gradients, at most; the share of the residual at which they stop
LEAST_SAID = 1e-15  # of expected squared errors: scores that are as good as right, whose squares no float32 holds
A_PART = 512  # targets at a time: their d is brought to full precision, and the reader hears how far it is


def correct_all(
    players: Players, own: Tensor, scores: Tensor, samples: SharedSamples, prior: Tensor, known: Tensor
) -> tuple[Tensor, Tensor]:
    """Better scores and their expected squared errors, of the targets that are `known` to the samples."""
    inside, wanted, itself = samples.inside.numpy(), known.numpy(), own.numpy()
    better, variance = scores.clone(), prior.clone()
    total = len(players.targets)
    parts: Iterable[slice] = [slice(first, min(first + A_PART, total)) for first in range(0, total, A_PART)]
    if total > A_PART:
        parts = Progress(parts, "correcting scores", total, unit="target", weight=lambda rows: rows.stop - rows.start)
    for rows in parts:
        ends = players.indptr[rows.start : rows.stop + 1].numpy()
        d = samples.differences(players.targets[rows]).numpy()
        known = np.isnan(d)  # of each target, the places of the samples that it has come first
        used = np.argsort(known, axis=1, kind="stable").astype(np.int32)
        many = (~known).sum(1)
        most = int(players.counts[rows].max())
        run_in_threads(
            _correct, len(d), inside, d, used, many, ends, players.player.numpy(), itself, prior.numpy(), wanted[rows],
            most, better.numpy(), variance.numpy(),
        )  # fmt: skip
    return better, variance


@kernel(fastmath=True)
def _correct(worker, workers, inside, d, used, many, ends, player, own, prior, wanted, most, scores, variance):  # type: ignore[no-untyped-def]
    """Every worker has scratch rows of its own."""
    pairs = d.shape[1]
    signs = np.empty((most, pairs), np.int8)
    vectors = np.empty((6, most), np.float32)
    left, moved = np.empty(pairs, np.float32), np.empty(pairs, np.float32)
    for row in range(worker, len(d), workers):
        if wanted[row]:
            mine = slice(ends[row], ends[row + 1])
            _correct_one(
                inside, d[row], used[row, : many[row]], player[mine], own[mine], prior[mine], signs, vectors,
                left, moved, scores[mine], variance[mine],
            )  # fmt: skip


@inner(fastmath=True)
def _correct_one(inside, d, used, player, own, prior, signs, vectors, left, moved, scores, variance):  # type: ignore[no-untyped-def]
    count, pairs = len(player), len(used)
    itself = -1
    for j in range(count):
        _unpack(inside[player[j]], signs[j], used)
        if own[j]:
            itself = j
    # what the scores leave of d, seen from the target
    for m in range(pairs):
        left[m] = d[used[m]]
    for j in range(count):
        _add(left, signs[j], -scores[j], pairs)
    mean = np.float32(0)
    if itself >= 0:
        for j in range(count):
            if j != itself:
                for m in range(pairs):
                    signs[j, m] *= signs[itself, m]
        for m in range(pairs):
            left[m] *= signs[itself, m]
        mean = _centre(left, pairs)
    square = np.float32(0)
    for m in range(pairs):
        square += left[m] * left[m]
    # how wrong the scores seem to be, beside what is known of explanations like this one
    seen, root, step, residual, direction, image = (
        vectors[0], vectors[1], vectors[2], vectors[3], vectors[4], vectors[5],
    )  # fmt: skip
    spread = square / max(pairs - 1, 1)
    said, found = np.float32(1e-30), np.float32(0)
    others = 0
    for j in range(count):
        seen[j] = np.float32(0)
        if j != itself:
            seen[j] = _dot(signs[j], left, pairs)
            found += seen[j] * seen[j] - square
            said += prior[j]
            others += 1
    if others == 0:
        if itself >= 0:
            scores[itself] += mean
            variance[itself] = spread / pairs
        return
    if said < LEAST_SAID:
        return
    found /= max(pairs * (pairs - 1), 1)
    uncertain = 2 * others * (spread / pairs) ** 2 + 4 * spread * said / pairs
    weight = said * said / (said * said + uncertain)
    scale = max((weight * found + (1 - weight) * said) / said, np.float32(LEAST_SCALE))
    noise = max(spread - said * scale, np.float32(LEAST_NOISE) * spread, np.float32(1e-30))
    for j in range(count):
        root[j] = np.sqrt(prior[j] * scale) if j != itself else np.float32(0)
    # conjugate gradients for (root signs signs^T root + noise) step = root signs left
    norm = np.float32(0)
    for j in range(count):
        step[j] = 0
        residual[j] = root[j] * seen[j]
        direction[j] = residual[j]
        norm += residual[j] * residual[j]
    begin = norm
    for _ in range(STEPS):
        if norm <= CLOSE * CLOSE * begin or norm <= 0:
            break
        for m in range(pairs):
            moved[m] = 0
        for j in range(count):
            if root[j] > 0:
                _add(moved, signs[j], direction[j] * root[j], pairs)
        if itself >= 0:
            _centre(moved, pairs)
        curve = np.float32(0)
        for j in range(count):
            image[j] = noise * direction[j]
            if root[j] > 0:
                image[j] += root[j] * _dot(signs[j], moved, pairs)
            curve += image[j] * direction[j]
        if curve <= 0:
            break
        length = norm / curve
        before, norm = norm, np.float32(0)
        for j in range(count):
            step[j] += length * direction[j]
            residual[j] -= length * image[j]
            norm += residual[j] * residual[j]
        for j in range(count):
            direction[j] = residual[j] + norm / before * direction[j]
    # the better scores
    for m in range(pairs):
        moved[m] = 0
    for j in range(count):
        if j != itself:
            scores[j] += root[j] * step[j]
            _add(moved, signs[j], root[j] * step[j], pairs)
    if itself >= 0:
        scores[itself] += mean - _centre(moved, pairs)
        variance[itself] = noise / pairs
    # and what remains unknown of them
    k = noise
    for _ in range(ROUNDS):
        unknown = np.float32(0)
        for j in range(count):
            if j != itself:
                unknown += root[j] * root[j] * k / (k + pairs * root[j] * root[j])
        if abs(noise + unknown - k) <= np.float32(1e-6) * k:
            break
        k = noise + unknown
    for j in range(count):
        if j != itself:
            variance[j] = root[j] * root[j] * k / (k + pairs * root[j] * root[j])


@inner()
def _unpack(bits, signs, used):  # type: ignore[no-untyped-def]
    """One bit a pair, the first in the highest bit of a byte -> +1 inside S, -1 outside."""
    for m in range(len(used)):
        pair = used[m]
        signs[m] = 2 * ((bits[pair >> 3] >> (7 - (pair & 7))) & 1) - 1


@inner(fastmath=True)
def _add(total, signs, factor, pairs):  # type: ignore[no-untyped-def]
    for m in range(pairs):
        total[m] += factor * signs[m]


@inner(fastmath=True)
def _dot(signs, values, pairs):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for m in range(pairs):
        total += signs[m] * values[m]
    return total


@inner(fastmath=True)
def _centre(values, pairs):  # type: ignore[no-untyped-def]
    """Takes the mean out, and returns it."""
    mean = np.float32(0)
    for m in range(pairs):
        mean += values[m]
    mean /= pairs
    for m in range(pairs):
        values[m] -= mean
    return mean

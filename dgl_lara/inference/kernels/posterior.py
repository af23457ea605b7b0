"""Compiled `attribution/posterior.py` for many targets on the CPU.

An iteration of conjugate gradients is players x samples of work, and no matrix is inverted. Signs are stored as int8.
The design is z = a sigma - b (see `game/index.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from torch import Tensor

from dgl_lara._util.numba_threads import inner, kernel, run_in_threads
from dgl_lara._util.progress import Progress
from dgl_lara.attribution.posterior import MIN_NOISE, MIN_SCALE, NUM_ITERATIONS
from dgl_lara.attribution.shared_samples import SharedSamples
from dgl_lara.game.player_index import Players

MAX_STEPS = 40  # of conjugate gradients
TOLERANCE = 1e-3  # share of the residual at which they stop
MIN_EXPECTED = 1e-15  # expected squared errors below have squares that no float32 holds
TARGETS_PER_PART = 512  # whose responses are converted to full precision at a time


def correct_all(
    players: Players, own: Tensor, scores: Tensor, samples: SharedSamples, prior: Tensor, known: Tensor
) -> tuple[Tensor, Tensor]:
    """Correct the scores of all targets that have samples.

    Args:
        players: (target, player) pairs.
        own: (num_pairs,) bool, whether the player is the target itself.
        scores: (num_pairs,)
        samples: Samples of the targets.
        prior: (num_pairs,) expected squared errors of the scores.
        known: (num_targets,) bool, targets that have samples.

    Returns:
        Scores and their expected squared errors.
    """
    inside, has_samples, is_own = samples.inside.numpy(), known.numpy(), own.numpy()
    scale, shift = samples.law.affine(samples.probability)
    law = np.float32(scale), shift.numpy()
    better, variance = scores.clone(), prior.clone()
    total = len(players.targets)
    parts: Iterable[slice] = [
        slice(first, min(first + TARGETS_PER_PART, total)) for first in range(0, total, TARGETS_PER_PART)
    ]
    if total > TARGETS_PER_PART:
        parts = Progress(parts, "correcting scores", total, unit="target", weight=lambda rows: rows.stop - rows.start)
    for rows in parts:
        ends = players.indptr[rows.start : rows.stop + 1].numpy()
        responses = samples.responses_of(players.targets[rows]).numpy()
        missing = np.isnan(responses)  # valid samples come first
        used = np.argsort(missing, axis=1, kind="stable").astype(np.int32)
        num_valid = (~missing).sum(1)
        most = int(players.counts[rows].max())
        run_in_threads(
            _correct, len(responses), inside, responses, used, num_valid, ends, players.player.numpy(), is_own,
            prior.numpy(), has_samples[rows], law, most, better.numpy(), variance.numpy(),
        )  # fmt: skip
    return better, variance


@kernel(fastmath=True)
def _correct(worker, workers, inside, y, used, counts, ends, player, own, prior, known, law, most, scores, variance):  # type: ignore[no-untyped-def]
    """Correct every `workers`-th target, with scratch rows of this worker."""
    pairs = y.shape[1]
    signs = np.empty((most, pairs), np.int8)
    vectors = np.empty((6, most), np.float32)
    columns = np.empty((5, pairs), np.float32)
    for row in range(worker, len(y), workers):
        if known[row]:
            mine = slice(ends[row], ends[row + 1])
            _correct_one(
                inside, y[row], used[row, : counts[row]], player[mine], own[mine], prior[mine], law[0], law[1],
                signs, vectors, columns, scores[mine], variance[mine],
            )  # fmt: skip


@inner(fastmath=True)
def _correct_one(inside, y, used, player, own, prior, a, shift, signs, vectors, columns, scores, variance):  # type: ignore[no-untyped-def]
    count, pairs = len(player), len(used)
    left, moved, b, own_column, weighted = columns[0], columns[1], columns[2], columns[3], columns[4]
    itself, is_shifted = -1, False
    for j in range(count):
        _unpack(inside[player[j]], signs[j], used)
        if own[j]:
            itself = j
    for m in range(pairs):
        left[m], b[m] = y[used[m]], shift[used[m]]
        is_shifted |= b[m] != 0
    # the residual of the scores, without its part along the target's own column
    total = np.float32(0)
    for j in range(count):
        _add(left, signs[j], -scores[j] * a, pairs)
        total -= scores[j]
    if is_shifted:
        _add(left, b, -total, pairs)
    size, own_error = np.float32(pairs), np.float32(0)
    if itself >= 0:
        for m in range(pairs):
            own_column[m] = a * signs[itself, m] - b[m]
        size = _dot(own_column, own_column, pairs)
        own_error = _project(left, own_column, size, pairs)
    square = np.float32(0)
    for m in range(pairs):
        square += left[m] * left[m]
    # scale the prior to the errors of this target
    along, root, step, residual, direction, image = (
        vectors[0], vectors[1], vectors[2], vectors[3], vectors[4], vectors[5],
    )  # fmt: skip
    spread = square / max(pairs - 1, 1)
    expected, found, energy = np.float32(1e-30), np.float32(0), square
    common = np.float32(0)
    if is_shifted:
        common, energy = _dot(b, left, pairs), np.float32(0)
        for m in range(pairs):
            weighted[m] = left[m] * left[m] * b[m]
            energy += left[m] * left[m] * (a * a + b[m] * b[m])
    others = 0
    for j in range(count):
        along[j] = np.float32(0)
        if j != itself:
            along[j] = a * _dot(signs[j], left, pairs) - common
            found += along[j] * along[j] - energy
            if is_shifted:
                found += 2 * a * _dot(signs[j], weighted, pairs)
            expected += prior[j]
            others += 1
    if others == 0:
        if itself >= 0:
            scores[itself] += own_error
            variance[itself] = spread / size
        return
    if expected < MIN_EXPECTED:
        return
    found /= max(pairs * (pairs - 1), 1)
    uncertain = 2 * others * (spread / pairs) ** 2 + 4 * spread * expected / pairs
    weight = expected * expected / (expected * expected + uncertain)
    scale = max((weight * found + (1 - weight) * expected) / expected, np.float32(MIN_SCALE))
    noise = max(spread - expected * scale, np.float32(MIN_NOISE) * spread, np.float32(1e-30))
    for j in range(count):
        root[j] = np.sqrt(prior[j] * scale) if j != itself else np.float32(0)
    # conjugate gradients for (root z z^T root + noise) step = root z left
    norm = np.float32(0)
    for j in range(count):
        step[j] = 0
        residual[j] = root[j] * along[j]
        direction[j] = residual[j]
        norm += residual[j] * residual[j]
    begin = norm
    for _ in range(MAX_STEPS):
        if norm <= TOLERANCE * TOLERANCE * begin or norm <= 0:
            break
        _combine(moved, signs, direction, root, a, b, is_shifted, count, pairs)
        if itself >= 0:
            _project(moved, own_column, size, pairs)
        common = _dot(b, moved, pairs) if is_shifted else np.float32(0)
        curve = np.float32(0)
        for j in range(count):
            image[j] = noise * direction[j]
            if root[j] > 0:
                image[j] += root[j] * (a * _dot(signs[j], moved, pairs) - common)
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
    _combine(moved, signs, step, root, a, b, is_shifted, count, pairs)
    for j in range(count):
        if j != itself:
            scores[j] += root[j] * step[j]
    if itself >= 0:
        scores[itself] += own_error - _project(moved, own_column, size, pairs)
        variance[itself] = noise / size
    _posterior_variance(root, noise, pairs, itself, count, variance)


@inner(fastmath=True)
def _combine(total, signs, factors, root, a, b, is_shifted, count, pairs):  # type: ignore[no-untyped-def]
    """Compute the sum of z_j root_j factor_j."""
    shift = np.float32(0)
    for m in range(pairs):
        total[m] = 0
    for j in range(count):
        if root[j] > 0:
            factor = factors[j] * root[j]
            _add(total, signs[j], factor * a, pairs)
            shift += factor
    if is_shifted:
        _add(total, b, -shift, pairs)


@inner(fastmath=True)
def _posterior_variance(root, noise, pairs, itself, count, variance):  # type: ignore[no-untyped-def]
    """See `posterior_variance`, with prior = root^2."""
    k = noise
    for _ in range(NUM_ITERATIONS):
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
    """Convert one bit per sample, the first in the highest bit of a byte, to +1 inside S and -1 outside."""
    for m in range(len(used)):
        pair = used[m]
        signs[m] = 2 * ((bits[pair >> 3] >> (7 - (pair & 7))) & 1) - 1


@inner(fastmath=True)
def _add(total, values, factor, pairs):  # type: ignore[no-untyped-def]
    for m in range(pairs):
        total[m] += factor * values[m]


@inner(fastmath=True)
def _dot(values, others, pairs):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for m in range(pairs):
        total += values[m] * others[m]
    return total


@inner(fastmath=True)
def _project(values, column, size, pairs):  # type: ignore[no-untyped-def]
    """Remove the part of the values along a column, and return its factor."""
    along = _dot(column, values, pairs) / size
    for m in range(pairs):
        values[m] -= along * column[m]
    return along

"""Eq. 9: Monte-Carlo estimates of phi, each with its standard error.

per_player     the paper's: for each j coalitions with j in S. Two evaluations are a sample of one player.
paired         each pair S, N without S is a sample sigma_j d(S) of every player
least_squares  the linear fit of the responses on the design, with far less noise (see `game/index.py`)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_lara._util.progress import Progress
from dgl_lara.attribution.efficiency import add_up
from dgl_lara.game.index import BANZHAF, Index, Masks

if TYPE_CHECKING:
    from dgl_lara.game.game import Game
    from dgl_lara.game.player_index import Players
    from dgl_lara.game.values import ClassQuery

RIDGES = torch.logspace(-4, 4, 33)
BYTES_A_DRAW = 6  # per player and coalition: a random number, then a bool
MIN_SAMPLES_PER_PLAYER = 2  # from which on least squares needs no ridge


@dataclass(frozen=True, eq=False)
class Estimate:
    """phi and its standard error, one number a (target, player) pair."""

    phi: Tensor
    error: Tensor


def responses(game: Game, players: Players, masks: Masks, query: ClassQuery | None = None) -> Tensor:
    """(num_masks, num_targets) Evaluate f under coalitions of each target's own players.

    Args:
        game: The game.
        players: (target, player) pairs, one column of the masks each.
        masks: The coalitions.
        query: The class of each target. None means the explained one.

    Returns:
        The responses of the index of the game, d(S) = f(S) - f(N without S) for Banzhaf values.
    """
    index = game.index
    query = query or game.query(players.targets)
    inside = game.values_per_target(players, masks.keep, query)
    outside = game.values_per_target(players, ~masks.keep, query) if index.evaluates_complements else inside
    return index.response(inside, outside, *_full_and_empty(game, players, query), masks.probability)


def _shared_responses(game: Game, players: Players, masks: Masks, query: ClassQuery) -> Tensor:
    """(num_masks, num_targets) Evaluate f under coalitions of all players there are."""
    index, targets = game.index, players.targets
    inside = query.select(game.shared_values(masks.keep)[:, targets])
    outside = query.select(game.shared_values(~masks.keep)[:, targets]) if index.evaluates_complements else inside
    return index.response(inside, outside, *_full_and_empty(game, players, query), masks.probability)


def _full_and_empty(game: Game, players: Players, query: ClassQuery) -> tuple[Tensor, Tensor]:
    """(num_targets,) each: Return the values with all and without any players, zeros if the index needs none."""
    full = game.full_value_of(players.targets, query)
    return (full, game.empty_values_of(players, query)) if game.index.is_centred else (full, torch.zeros_like(full))


def total_of(game: Game, players: Players, query: ClassQuery) -> Tensor | None:
    """(num_targets,) Return f(N) - f(no player), or None if scores need not add up."""
    if not game.index.adds_up:
        return None
    full, empty = _full_and_empty(game, players, query)
    return full - empty


def per_player(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Estimate:
    """Compute Eq. 9 as the paper samples it, from `pairs` coalitions for each single player."""
    device = players.player.device
    phi, error = torch.empty(len(players.player), device=device), torch.empty(len(players.player), device=device)
    for row in range(len(players.targets)):
        alone = players.part(slice(row, row + 1))
        count, start = int(alone.counts[0]), int(players.indptr[row])
        keep = BANZHAF.draw(pairs * count, count, generator, device).keep.view(pairs, count, count)
        keep = (keep | torch.eye(count, dtype=torch.bool, device=device)).flatten(0, 1)  # S_j contains j
        d = (game.values_per_target(alone, keep) - game.values_per_target(alone, ~keep)).view(pairs, count)
        phi[start : start + count], error[start : start + count] = d.mean(0), d.std(0) / pairs**0.5
    return Estimate(phi, error)


def paired(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Estimate:
    """Compute phi_j as the mean of z_j y, for Banzhaf values of sigma_j d."""
    masks = game.index.draw(pairs, len(players.player), generator, players.player.device)
    samples = game.index.design(masks) * responses(game, players, masks)[:, players.row]
    return Estimate(samples.mean(0), samples.std(0) / pairs**0.5)


@dataclass(frozen=True, eq=False)
class Samples:
    """Responses of f under coalitions of every target's players. All estimates of phi are made from these.

    Attributes:
        index: The law of the coalitions.
        players: (target, player) pairs.
        masks: The coalitions.
        responses: (num_samples, num_targets), NaN if S is no coalition for the target.
        own: (num_pairs,) bool, whether the player is the target itself.
        total: (num_targets,) f(N) - f(no player), or None if phi need not add up.
        columns: (num_pairs,) the column of the masks that a pair has. None means its own.
    """

    index: Index
    players: Players
    masks: Masks
    responses: Tensor
    own: Tensor
    total: Tensor | None = None
    columns: Tensor | None = None

    @property
    def enough(self) -> bool:
        """Return whether least squares needs no ridge for any target."""
        counts = len(self.responses) - self.responses.isnan().sum(0)
        return bool((counts >= MIN_SAMPLES_PER_PLAYER * self.players.counts).all())

    def part(self, rows: slice) -> Samples:
        """Select samples."""
        return replace(self, masks=self.masks[rows], responses=self.responses[rows])

    def each(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield the pairs of each target, z (num_samples, players) and y (num_samples,) of its valid samples."""
        for row, pairs in enumerate(Progress(self.players.slices, "reading the model's answers", unit="target")):
            masks = self.masks.for_players(pairs if self.columns is None else self.columns[pairs])
            y = self.responses[:, row]
            valid = ~y.isnan()
            if not bool(valid.all()):
                masks, y = masks[valid], y[valid]
            yield pairs, self.index.design(masks), y


def sample(
    game: Game, players: Players, pairs: int, generator: torch.Generator, query: ClassQuery | None = None
) -> Samples:
    """Evaluate f under coalitions of each target's own.

    Args:
        game: The game.
        players: (target, player) pairs.
        pairs: Coalitions per target. Most laws also evaluate their complements.
        generator: Source of the draws.
        query: The class of each target. None means the explained one.
    """
    game.budget.check(BYTES_A_DRAW * pairs * len(players.player), f"{pairs:,} coalitions of these targets")
    masks = game.index.draw(pairs, len(players.player), generator, players.player.device)
    query = query or game.query(players.targets)
    y, own = responses(game, players, masks, query), game.task.is_target(players)
    return Samples(game.index, players, masks, y, own, total_of(game, players, query))


def sample_shared(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Samples:
    """Evaluate f under masks over the full graph. Each is a sample of every target."""
    columns = game.num_players
    game.budget.check(BYTES_A_DRAW * pairs * columns, f"{pairs:,} coalitions of the whole graph")
    masks = game.index.draw(pairs, columns, generator, game.features.device)
    step = max(1, game.nodes_per_call // game.graph.num_nodes())  # never all masks x nodes x classes at once
    bar = Progress(masks.split(step), "asking the model about coalitions (random subsets)", unit="pass")
    query = game.query(players.targets)
    y = torch.cat([_shared_responses(game, players, part, query) for part in bar])
    y = mask_invalid(game, masks.keep, y, players.targets)
    own, total = game.task.is_target(players), total_of(game, players, query)
    return Samples(game.index, players, masks, y, own, total, players.player)


def mask_invalid(game: Game, keep: Tensor, responses: Tensor, targets: Tensor) -> Tensor:
    """(num_masks, num_targets) Set responses to NaN if a mask over all players is no coalition for the target."""
    valid = game.player_set.valid_masks(lambda players: keep[:, players], targets)
    return responses if valid is None else responses.masked_fill(~valid, torch.nan)


def least_squares(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Estimate:
    """Fit phi for each target from coalitions of its own."""
    return fit_each(sample(game, players, pairs, generator))


def shared_least_squares(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Estimate:
    """Fit phi for each target from masks over the full graph."""
    return fit_each(sample_shared(game, players, pairs, generator))


def fit_each(samples: Samples) -> Estimate:
    """Fit one ridge regression per target. With few samples phi shrinks to 0, but for the target's own."""
    return _joined(samples, [fit(z, y, samples.own[pairs]) for pairs, z, y in samples.each()])


def unbiased_each(samples: Samples) -> Estimate:
    """Estimate phi of each target without bias, as a reference for other scores."""
    return _joined(samples, [unbiased(z, y, samples.own[pairs]) for pairs, z, y in samples.each()])


def _joined(samples: Samples, fits: list[tuple[Tensor, Tensor]]) -> Estimate:
    phi, error = (torch.cat(side) for side in zip(*fits, strict=True))
    return Estimate(phi if samples.total is None else add_up(phi, samples.players, samples.total), error)


def unbiased(z: Tensor, y: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Estimate phi of one target without bias.

    Least squares if the samples are at least twice the players, otherwise means of z y, which have no bias however few
    the samples are.

    Returns:
        (players,) phi and its standard error.
    """
    return _unpenalised(z, y) if len(y) >= MIN_SAMPLES_PER_PLAYER * z.shape[1] else _corrected_means(z, y, own)


def split_half_estimate(first: Samples, second: Samples) -> Estimate:
    """Average two independent unbiased estimates. The square of `error`, half their difference, has no bias."""
    one, two = unbiased_each(first).phi, unbiased_each(second).phi
    return Estimate((one + two) / 2, (one - two).abs() / 2)


def _corrected_means(z: Tensor, y: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Guess phi from one half, add the mean of z times the residual of the other half, and the other way round.

    It has no bias whatever the guess. A good guess leaves a small residual and so little noise.
    """
    half = len(y) // 2
    parts = []
    for guessing, correcting in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
        guess, _ = fit(z[guessing], y[guessing], own)
        residual = y[correcting] - z[correcting] @ guess
        step = residual @ z[correcting] / len(residual)
        energy = sum_of_squares(residual, z[correcting]) / len(residual)
        parts.append((guess + step, (energy - step.square()).clamp(min=0) / max(len(residual) - 1, 1)))
    (one, its), (two, other) = parts
    return (one + two) / 2, (its + other).sqrt() / 2


def sum_of_squares(residual: Tensor, z: Tensor) -> Tensor:
    """Return the sum of (z_j r)^2 for each player, or of r^2 if every z is 1 or -1."""
    if bool((z.abs() == 1).all()):
        return residual.square().sum()
    return residual.square() @ z.square()


def _unpenalised(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Solve the normal equations in double precision. If they are singular, use singular values."""
    if not z.shape[1]:
        return y[:0], y[:0]
    design, response = z.double(), y.double()
    factor, failed = torch.linalg.cholesky_ex(design.T @ design)
    if int(failed) or float(factor.diagonal().min()) < 1e-3 * len(y) ** 0.5:
        return _by_singular_values(z, y)
    phi = torch.cholesky_solve((response @ design).unsqueeze(1), factor).squeeze(1)
    noise = (response - design @ phi).square().sum() / max(len(y) - z.shape[1], 1)
    return phi.to(y), (noise * torch.cholesky_inverse(factor).diagonal()).sqrt().to(y)


def _by_singular_values(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    u, s, vt = torch.linalg.svd(z, full_matrices=False)
    inverse = torch.where(s > 1e-4 * s[0], 1 / s.clamp(min=1e-12), 0)
    phi = vt.T @ (inverse * (u.T @ y))
    noise = (y - z @ phi).square().sum() / max(len(y) - z.shape[1], 1)
    return phi, (noise * ((vt.T * inverse) ** 2).sum(1)).sqrt()


def fit(z: Tensor, y: Tensor, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Fit a ridge regression of y on z, with the ridge of the least generalised cross-validation.

    Args:
        z: (num_masks, players) the design.
        y: (num_masks,) the responses.
        own: (players,) bool, the target itself, which is not penalised if samples are few.

    Returns:
        (players,) phi and its standard error.
    """
    if not z.shape[1]:
        return y[:0], y[:0]
    if own is not None and len(z) < MIN_SAMPLES_PER_PLAYER * z.shape[1] and bool(own.any()):
        return _fit_beside(z, y, own)
    return _ridge(z, y, len(y))


def _ridge(z: Tensor, y: Tensor, dimensions: int) -> tuple[Tensor, Tensor]:
    """Fit a ridge regression in a space of so many dimensions."""
    u, s, vt = torch.linalg.svd(z, full_matrices=False)
    projected = u.T @ y
    outside = (y @ y - projected @ projected).clamp(min=0)  # no linear function explains it
    ridge = RIDGES.to(y).unsqueeze(1) * len(y)  # (ridges, 1)
    shrink = s**2 / (s**2 + ridge)  # (ridges, rank)
    residual = outside + (((1 - shrink) * projected) ** 2).sum(1)
    freedom = (dimensions - shrink.sum(1)).clamp(min=1e-3)
    best = int((residual / freedom**2).argmin())
    noise = residual[best] / freedom[best]
    weights = shrink[best] / s.clamp(min=1e-12)
    return vt.T @ (weights * projected), (noise * ((vt.T * weights) ** 2).sum(1)).sqrt()


def _fit_beside(z: Tensor, y: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Fit the ridge on all players but the target (Frisch and Waugh), then the target on the residual."""
    mine, others = z[:, own].squeeze(1), z[:, ~own]
    size = mine @ mine
    phi, error = torch.empty_like(z[0]), torch.empty_like(z[0])
    beside = others - torch.outer(mine, mine @ others) / size
    phi[~own], error[~own] = _ridge(beside, y - mine * (mine @ y) / size, len(y) - 1)
    residual = y - others @ phi[~own]
    phi[own], error[own] = mine @ residual / size, residual.std(unbiased=len(y) > 1) / size**0.5
    return phi, error

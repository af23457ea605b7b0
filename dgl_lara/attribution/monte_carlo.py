"""Eq. 9: Monte-Carlo estimates of phi, each with its standard error.

per_player     the paper: for each j pairs (S, N without S) with j in S; two evaluations teach one player
paired         the same pair teaches every player: sigma_j d(S), with sigma = +1 inside S and -1 outside
least_squares  phi is also the best linear fit of d(S) on sigma, because E[sigma sigma^T] = I; far less noise

d(S) = f(S) - f(N without S).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dgl_lara._util.progress import Progress
from dgl_lara.game.class_query import ClassQuery
from dgl_lara.game.game import Game
from dgl_lara.game.player_index import Players

RIDGES = torch.logspace(-4, 4, 33)
BYTES_A_DRAW = 6  # of whether one player is in one coalition: a random number, then yes or no
ENOUGH = 2  # samples a player, from which on least squares needs no help


@dataclass(frozen=True, eq=False)
class Estimate:
    """phi and its standard error, one number for each (target, player) pair."""

    phi: Tensor
    error: Tensor


def random_coalitions(count: int, players: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
    """Draw uniform subsets, (count, players) bool. The CPU draws, so that a seed means one thing on every device."""
    return (torch.rand(count, players, generator=generator) < 0.5).to(device)


def signed(keep: Tensor) -> Tensor:
    """Return sigma: +1 for a player inside S, -1 outside."""
    return keep.float() * 2 - 1


def differences(game: Game, players: Players, keep: Tensor, query: ClassQuery | None = None) -> Tensor:
    """Evaluate d(S) = f(S) - f(N without S), (num_masks, num_targets), of the explained class or of a query."""
    return game.values_per_target(players, keep, query) - game.values_per_target(players, ~keep, query)


def per_player(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Estimate:
    """Estimate Eq. 9 as the paper samples it, with `pairs` coalitions for each single player."""
    device = players.player.device
    phi, error = torch.empty(len(players.player), device=device), torch.empty(len(players.player), device=device)
    for row in range(len(players.targets)):
        alone = players.part(slice(row, row + 1))
        count, start = int(alone.counts[0]), int(players.indptr[row])
        keep = random_coalitions(pairs * count, count, generator, device).view(pairs, count, count)
        keep = keep | torch.eye(count, dtype=torch.bool, device=device)  # S_j contains j
        d = differences(game, alone, keep.flatten(0, 1)).view(pairs, count)
        phi[start : start + count], error[start : start + count] = d.mean(0), d.std(0) / pairs**0.5
    return Estimate(phi, error)


def paired(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Estimate:
    """Estimate phi_j as the mean of sigma_j d, so that every pair of coalitions is used for every player."""
    keep = random_coalitions(pairs, len(players.player), generator, players.player.device)
    samples = signed(keep) * differences(game, players, keep)[:, players.row]
    return Estimate(samples.mean(0), samples.std(0) / pairs**0.5)


@dataclass(frozen=True, eq=False)
class Samples:
    """Outputs of f for coalitions of the players of some targets.

    Attributes:
        players: The (target, player) pairs.
        keep: (num_samples, num_columns) bool, the coalitions S.
        d: (num_samples, num_targets), NaN if S is no coalition for the target.
        own: (num_pairs,) bool, the player is the target itself.
        columns: Column of `keep` of each pair. None: its own.
    """

    players: Players
    keep: Tensor  # (num_samples, columns) bool: S
    d: Tensor  # (num_samples, num_targets); NaN where S is no coalition for the target
    own: Tensor  # (num_pairs,) bool: the player is the target itself
    columns: Tensor | None = None  # which column of `keep` a (target, player) pair has; None: its own

    @property
    def enough(self) -> bool:
        """Return whether there are enough samples of every target for least squares."""
        known = len(self.d) - self.d.isnan().sum(0)
        return bool((known >= ENOUGH * self.players.counts).all())

    def part(self, rows: slice) -> Samples:
        """Return some of the samples."""
        return replace(self, keep=self.keep[rows], d=self.d[rows])

    def each(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield for each target its pairs, sigma (num_samples, players) and d (num_samples,) of its samples."""
        for row, pairs in enumerate(Progress(self.players.slices, "reading the model's answers", unit="target")):
            mine = self.keep[:, pairs] if self.columns is None else self.keep[:, self.columns[pairs]]
            d = self.d[:, row]
            known = ~d.isnan()
            if not bool(known.all()):
                mine, d = mine[known], d[known]
            yield pairs, signed(mine), d


def sample(
    game: Game, players: Players, pairs: int, generator: torch.Generator, query: ClassQuery | None = None
) -> Samples:
    """Sample separate coalitions for each target: 2 * pairs evaluations of its explained class, or of a query."""
    game.budget.check(BYTES_A_DRAW * pairs * len(players.player), f"{pairs:,} coalitions of these targets")
    keep = random_coalitions(pairs, len(players.player), generator, players.player.device)
    return Samples(players, keep, differences(game, players, keep, query), game.task.is_target(players))


def sample_shared(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Samples:
    """Sample masks over the full graph: 2 * pairs calls of f for all targets together."""
    columns = game.num_players
    game.budget.check(BYTES_A_DRAW * pairs * columns, f"{pairs:,} coalitions of the whole graph")
    keep = random_coalitions(pairs, columns, generator, game.features.device)
    classes = game.explained_class[players.targets]
    step = max(1, game.nodes_per_call // game.graph.num_nodes())  # never all masks x nodes x classes at once
    d = [
        (game.shared_values(part) - game.shared_values(~part))[:, players.targets, classes]
        for part in Progress(keep.split(step), "asking the model about coalitions (random subsets)", unit="pass")
    ]
    known = mask_invalid(game, keep, torch.cat(d), players.targets)
    return Samples(players, keep, known, game.task.is_target(players), players.player)


def mask_invalid(game: Game, keep: Tensor, d: Tensor, targets: Tensor) -> Tensor:
    """Set d (num_masks, num_targets) to NaN if a mask over all players is no coalition for the target."""
    usable = game.player_set.valid_masks(lambda players: keep[:, players], targets)
    return d if usable is None else d.masked_fill(~usable, torch.nan)


def least_squares(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Estimate:
    """Fit d linearly on sigma, for each target alone."""
    return fit_each(sample(game, players, pairs, generator))


def shared_least_squares(game: Game, players: Players, pairs: int, generator: torch.Generator) -> Estimate:
    """Fit d linearly on sigma, from masks over the full graph."""
    return fit_each(sample_shared(game, players, pairs, generator))


def fit_each(samples: Samples) -> Estimate:
    """Fit one regression for each target. phi shrinks towards 0 if samples are few.

    The phi of the target itself, by far the largest, is not penalised.
    """
    fits = [fit(sigma, d, samples.own[pairs]) for pairs, sigma, d in samples.each()]
    return Estimate(torch.cat([phi for phi, _ in fits]), torch.cat([error for _, error in fits]))


def unbiased_each(samples: Samples) -> Estimate:
    """Estimate phi without shrinkage, to validate other estimates."""
    fits = [unbiased(sigma, d, samples.own[pairs]) for pairs, sigma, d in samples.each()]
    return Estimate(torch.cat([phi for phi, _ in fits]), torch.cat([error for _, error in fits]))


def unbiased(sigma: Tensor, d: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Estimate phi of one target without bias.

    With at least twice as many samples as players this is least squares, otherwise corrected means of sigma d.
    """
    return _unpenalised(sigma, d) if len(d) >= ENOUGH * sigma.shape[1] else _corrected_means(sigma, d, own)


def split_half_estimate(first: Samples, second: Samples) -> Estimate:
    """Return the mean of two independent unbiased estimates, with their difference as the error.

    The square of the error is unbiased over any choice of players.
    """
    one, two = unbiased_each(first).phi, unbiased_each(second).phi
    return Estimate((one + two) / 2, (one - two).abs() / 2)


def _corrected_means(sigma: Tensor, d: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Fit one half of the samples, and correct it by the mean of sigma times the residual of the other half.

    Both halves take turns. This is unbiased for any fit, and a good fit leaves little noise.
    """
    half = len(d) // 2
    parts = []
    for guessing, correcting in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
        guess, _ = fit(sigma[guessing], d[guessing], own)
        residual = d[correcting] - sigma[correcting] @ guess
        step = residual @ sigma[correcting] / len(residual)
        # sigma_j^2 = 1, so the variance of sigma_j r is E[r^2] - (E sigma_j r)^2
        variance = (residual.square().mean() - step.square()).clamp(min=0) / max(len(residual) - 1, 1)
        parts.append((guess + step, variance))
    (one, its), (two, other) = parts
    return (one + two) / 2, (its + other).sqrt() / 2


def _unpenalised(sigma: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    """Solve the normal equations in double precision, or by singular values if they are singular."""
    if not sigma.shape[1]:
        return d[:0], d[:0]
    signs, wanted = sigma.double(), d.double()
    factor, failed = torch.linalg.cholesky_ex(signs.T @ signs)
    if int(failed) or float(factor.diagonal().min()) < 1e-3 * len(d) ** 0.5:
        return _by_singular_values(sigma, d)
    phi = torch.cholesky_solve((wanted @ signs).unsqueeze(1), factor).squeeze(1)
    noise = (wanted - signs @ phi).square().sum() / max(len(d) - sigma.shape[1], 1)
    return phi.to(d), (noise * torch.cholesky_inverse(factor).diagonal()).sqrt().to(d)


def _by_singular_values(sigma: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
    u, s, vt = torch.linalg.svd(sigma, full_matrices=False)
    inverse = torch.where(s > 1e-4 * s[0], 1 / s.clamp(min=1e-12), 0)
    phi = vt.T @ (inverse * (u.T @ d))
    noise = (d - sigma @ phi).square().sum() / max(len(d) - sigma.shape[1], 1)
    return phi, (noise * ((vt.T * inverse) ** 2).sum(1)).sqrt()


def fit(sigma: Tensor, d: Tensor, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Fit a ridge regression of d on sigma (num_masks, players). Generalised cross-validation chooses the ridge.

    With more masks than players the ridge is close to zero. With fewer it limits the noise and shrinks phi towards
    0. Then
    the column marked in `own` (bool) is first removed from everything, so that it does not shrink.
    """
    if not sigma.shape[1]:
        return d[:0], d[:0]
    if own is not None and len(sigma) < ENOUGH * sigma.shape[1] and bool(own.any()):
        return _fit_beside(sigma, d, own)
    return _ridge(sigma, d, len(d))


def _ridge(sigma: Tensor, d: Tensor, dimensions: int) -> tuple[Tensor, Tensor]:
    """Fit the regression. `dimensions` are those of the space that contains d."""
    u, s, vt = torch.linalg.svd(sigma, full_matrices=False)
    projected = u.T @ d
    outside = (d @ d - projected @ projected).clamp(min=0)  # what no linear function explains
    ridge = RIDGES.to(d).unsqueeze(1) * len(d)  # (ridges, 1)
    shrink = s**2 / (s**2 + ridge)  # (ridges, rank)
    residual = outside + (((1 - shrink) * projected) ** 2).sum(1)
    freedom = (dimensions - shrink.sum(1)).clamp(min=1e-3)
    best = int((residual / freedom**2).argmin())
    noise = residual[best] / freedom[best]
    weights = shrink[best] / s.clamp(min=1e-12)
    return vt.T @ (weights * projected), (noise * ((vt.T * weights) ** 2).sum(1)).sqrt()


def _fit_beside(sigma: Tensor, d: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Fit the ridge on all players but the own one (Frisch and Waugh), then the own one on the residual."""
    mine, others, count = sigma[:, own].squeeze(1), sigma[:, ~own], len(d)
    phi, error = torch.empty_like(sigma[0]), torch.empty_like(sigma[0])
    beside = others - torch.outer(mine, mine @ others) / count  # sigma^2 = 1, so that |mine|^2 = count
    phi[~own], error[~own] = _ridge(beside, d - mine * (mine @ d) / count, count - 1)
    left = d - others @ phi[~own]
    phi[own], error[own] = mine @ left / count, left.std(unbiased=count > 1) / count**0.5
    return phi, error
